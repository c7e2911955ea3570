// Chat templates: what each construct of the Jinja subset gives, and what lies outside it. The
// expected texts are those of Jinja2 3.1.6 with trim_blocks and lstrip_blocks.
#include "weft/model/chat_template.h"

#include <gmock/gmock.h>

namespace weft::model {
namespace {

using ::testing::HasSubstr;

// The template over a fixed conversation and a few variables; an error's text in "!...".
std::string render(std::string_view source, bool prompt = false) {
  const auto made = ChatTemplate::parse(source);
  if (!made) return "!" + made.error().message;
  const Json messages = Json::parse(R"([
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": " Hi <b> \"you\" "},
      {"role": "assistant", "content": "Hello", "tool_calls": null}])");
  const Json extra = Json::parse(R"({"bos_token": "<s>", "xs": [3, 1, 2], "empty": [],
      "d": {"b": 1, "a": [true, null, 2.5, "é"]}})");
  const auto out = made->render(messages, prompt, extra);
  return out ? *out : "!" + out.error().message;
}

struct Expectation {
  const char* source;
  const char* text;
};
void expect_all(std::initializer_list<Expectation> all) {
  for (const Expectation& each : all) EXPECT_EQ(render(each.source), each.text) << each.source;
}

TEST(ChatTemplate, Loops) {
  expect_all({
      {"{% for m in messages %}{{ m.role }}:{{ m['content']|length }} {% endfor %}",
       "system:9 user:14 assistant:5 "},
      {"{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ "
       "loop.last }} {% endfor %}",
       "103TrueFalse 212FalseFalse 321FalseTrue "},
      {"{% for x in empty %}x{% else %}none{% endfor %}", "none"},
      {"{% for x in xs if x > 1 %}{{ loop.index }}={{ x }}/{{ loop.length }};{% endfor %}",
       "1=3/2;2=2/2;"},
      {"{% for k, v in {'p': 1, 'q': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "p1q2"},
      {"{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "32"},
      {"{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "3"},
      {"{% for x in range(6, 0, -2) %}{{ x }}{{ loop.cycle('a', 'b') }}{% endfor %}", "6a4b2a"},
      {"{% for x in xs %}{{ loop.previtem }}<{{ loop.nextitem }} {% endfor %}", "<1 3<2 1< "},
      {"{% for m in messages[1:] %}{{ m.role[0] }}{% endfor %}{{ xs[::-1] }}", "ua[2, 1, 3]"},
      {"{% for x in [1, [2, [3]]] recursive %}{% if x is number %}{{ x }}{% else %}({{ loop(x) "
       "}}){% endif %}{% endfor %}",
       "1(2(3))"},
  });
}

TEST(ChatTemplate, AssignmentsInsideALoopStayThereButForNamespaces) {
  expect_all({
      {"{% set n = 0 %}{% for x in xs %}{% set n = n + x %}{% endfor %}{{ n }}", "0"},
      {"{% set ns = namespace(n=0, seen=false) %}{% for x in xs %}{% set ns.n = ns.n + x %}{% "
       "endfor %}{{ ns.n }}{{ ns.seen }}",
       "6False"},
      {"{% if true %}{% set y = 2 %}{% endif %}{{ y }}", "2"},
      {"{% set a, b = 1, 'two' %}{{ b }}{{ a }}", "two1"},
      {"{% set t | upper %}a{{ bos_token }}{% endset %}{{ t }}", "A<S>"},
      {"{% with z = 3 %}{{ z }}{% endwith %}{{ z is defined }}", "3False"},
  });
  EXPECT_THAT(render("{% set d.b = 2 %}"), HasSubstr("!"));
}

TEST(ChatTemplate, Filters) {
  expect_all({
      {"{{ messages[1].content | trim }}|", "Hi <b> \"you\"|"},
      {"{{ xs | sort | join('-') }}{{ xs | sum }}{{ xs | max }}{{ xs | first }}{{ xs | last }}",
       "1-2-36332"},
      {"{{ d | tojson }}", R"({"b": 1, "a": [true, null, 2.5, "é"]})"},
      {"{{ d | tojson(indent=2) }}",
       "{\n  \"b\": 1,\n  \"a\": [\n    true,\n    null,\n    2.5,\n    \"é\"\n  ]\n}"},
      {"{{ messages[1].content | tojson }}", R"(" Hi <b> \"you\" ")"},
      {"{{ messages | map(attribute='role') | list }}", "['system', 'user', 'assistant']"},
      {"{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first }}",
       " Hi <b> \"you\" "},
      {"{{ xs | reject('odd') | list }}{{ xs | select('gt', 1) | list }}", "[2][3, 2]"},
      {"{{ nothing | default('d') }}{{ '' | default('e', true) }}{{ '' | default('f') }}", "de"},
      {"{{ 'a,b,c'.split(',') | reverse | list }}", "['c', 'b', 'a']"},
      {"{{ 'one two' | title }}{{ 'x' | upper }}{{ 'Ä' | lower }}{{ 'hello' | capitalize }}",
       "One TwoXäHello"},
      {"{{ '%s is %d' | format('x', 3) }}{{ 3.7 | int }}{{ '4' | int + 1 }}{{ 2 | float }}",
       "x is 3352.0"},
      {"{{ d | dictsort }}{{ d | items | list | length }}",
       "[('a', [True, None, 2.5, 'é']), ('b', 1)]2"},
      {"{{ 'a\nb' | indent(2) }}{{ 'a' | replace('a', 'b') }}{{ [1, 1, 2] | unique | list }}",
       "a\n  bb[1, 2]"},
      {"{{ d | string }}{{ none | string }}{{ true }}",
       "{'b': 1, 'a': [True, None, 2.5, 'é']}NoneTrue"},
      {"{% filter upper %}a{{ 1 }}b{% endfilter %}", "A1B"},
  });
}

TEST(ChatTemplate, ExpressionsFollowPython) {
  expect_all({
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1 ~ 'a' ~ 2.0 }}",
       "3 -4 2 3.5 1024 1a2.0"},
      {"{{ 1 < 2 < 3 }} {{ 'a' in 'cat' }} {{ 2 not in xs }} {{ not [] }}", "True True False True"},
      {"{{ 'y' if xs else 'n' }}{{ 'z' if empty }}|", "y|"},
      {"{{ nothing }}|{{ nothing is defined }}|{{ none is none }}|{{ d is mapping }}|{{ 'a' is "
       "string }}",
       "|False|True|True|True"},
      {"{{ (1,) }}{{ (1, 2) }}{{ [] }}{{ {} }}", "(1,)(1, 2)[]{}"},
      {"{{ 'abc'[-1] }}{{ 'abc'[:2] }}{{ xs[0] }}{{ d.a[3] }}{{ d['b'] }}", "cab3é1"},
      {"{{ '  x '.strip() }}{{ 'x'.startswith('x') }}{{ 'a-b'.split('-')[1] }}{{ 'ab'.upper() }}",
       "xTruebAB"},
      {"{{ d.get('zz') }}{{ d.get('zz', 0) }}{{ 'b' in d }}{{ 'it''s' }}", "None0Trueits"},
      {"{{ true and 'x' or 'y' }}{{ '' or 'y' }}", "xy"},
      {"{{ 1.0 }} {{ 1e20 }} {{ 0.1 + 0.2 }} {{ 10 ** 20 }}",
       "1.0 1e+20 0.30000000000000004 100000000000000000000"},
  });
}

TEST(ChatTemplate, Macros) {
  expect_all({
      {"{% macro tag(name, body='-', last=false) %}<{{ name }}>{{ body }}{{ last }}{% endmacro "
       "%}{{ tag('a') }}{{ tag('b', last=true, body='x') }}",
       "<a>-False<b>xTrue"},
      {"{% macro down(n) %}{{ n }}{% if n > 0 %}{{ down(n - 1) }}{% endif %}{% endmacro %}{{ "
       "down(3) }}",
       "3210"},
      {"{% macro box() %}[{{ caller('in') }}]{% endmacro %}{% call(x) box() %}{{ x }}!{% endcall "
       "%}",
       "[in!]"},
      {"{% macro m() %}{{ bos_token }}{% endmacro %}{{ m() | length }}", "3"},
      {"{% macro v() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1, 2, k=3) }}",
       "(1, 2){'k': 3}"},
  });
  EXPECT_THAT(render("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"), HasSubstr("!"));
}

TEST(ChatTemplate, WhiteSpace) {
  expect_all({
      {"a\n{% if true %}\nb\n{% endif %}\nc\n", "a\nb\nc"},  // trim_blocks
      {"a\n    {% if true %}b{% endif %}\nc", "a\nbc"},      // lstrip_blocks
      {"a  {{- 1 -}}  b", "a1b"},
      {"a \n\n{%- if true -%} \n b {%- endif -%} \n c", "abc"},
      {"a\n   {%+ if true %}b{% endif +%}\nc", "a\n   b\nc"},
      {"{{ 1 }}\n{{ 2 }}\n\n", "1\n2\n"},
      {"a {# gone #} b\n{#- gone -#}\n c", "a  bc"},
      {"{% raw %}{{ x }}{% y %}{% endraw %}", "{{ x }}{% y %}"},
      {"{% generation %}kept{% endgeneration %}", "kept"},
  });
}

TEST(ChatTemplate, AsTransformersCallsIt) {
  EXPECT_EQ(render("{% if add_generation_prompt %}go{% endif %}", true), "go");
  EXPECT_EQ(render("{% if add_generation_prompt %}go{% endif %}", false), "");
  EXPECT_EQ(render("{{ tools is none }}{{ documents is none }}"), "TrueTrue");
  // Keys of a message that are null are as if they were not there.
  EXPECT_EQ(render("{{ messages[2].tool_calls is defined }}"), "False");
  EXPECT_EQ(ChatTemplate::parse("{{ 1 }}")->source(), "{{ 1 }}");
}

TEST(ChatTemplate, ErrorsNameLineColumnAndConstruct) {
  for (const auto& [source, says] : std::initializer_list<std::pair<const char*, const char*>>{
           {"a\n  {% include 'x' %}", "line 2, column 6: the tag 'include' is not supported"},
           {"{% extends 'x' %}", "'extends'"},
           {"{% block a %}{% endblock %}", "'block'"},
           {"{% import 'x' as y %}", "'import'"},
           {"{{ 'a' | urlize }}", "urlize"},
           {"{{ 'a' | pprint }}", "pprint"},
           {"{{ 1 is prime }}", "prime"},
           {"{% if true %}", "line 1"},
           {"{% endif %}", "endif"},
           {"{% for x %}{% endfor %}", "line 1"},
           {"{{ 1 + }}", "line 1, column 8"},
           {"\n\n{{ 'unterminated }}", "line 3"},
           {"{{ (1 }}", "line 1"},
           {"{% frobnicate %}", "frobnicate"},
           {"{# never closed", "line 1"},
           {"{{ missing.x }}", "'missing' is undefined"},
           {"{{ xs.frob() }}", "frob"},
           {"{{ 'a' + 1 }}", "line 1"},
           {"{{ 1 / 0 }}", "line 1"},
           {"{{ range(10000000) | length }}", "line 1"},
           {"{{ nofunction(1) }}", "nofunction"}}) {
    const std::string out = render(source);
    EXPECT_TRUE(out.starts_with("!")) << source << " gave " << out;
    EXPECT_THAT(out, HasSubstr(says)) << source;
  }
  EXPECT_EQ(render("{{ raise_exception('Roles must alternate') }}"), "!Roles must alternate");
}

TEST(ChatTemplate, EndsWithinItsLimits) {
  for (const char* source :
       {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",  // steps
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",  // nesting
        "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}"
        "{% set ns.s = ns.s + ns.s %}{% endfor %}",  // memory
        "{{ 'a' * 1000000000 }}", "{{ 9 ** 9 ** 9 }}", "{{ [1] * 1000000000 }}"}) {
    EXPECT_TRUE(render(source).starts_with("!")) << source;
  }
  const std::string deep = std::string(5000, '(') + "1" + std::string(5000, ')');
  EXPECT_TRUE(render("{{ " + deep + " }}").starts_with("!"));
}

}  // namespace
}  // namespace weft::model
