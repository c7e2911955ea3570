// Constrained output: what the compilers accept, that masks are exact, and that hostile
// input gets an error in bounded time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <regex>

#include "tests/support/byte_tokenizer.h"
#include "weft/base/rng.h"
#include "weft/serve/constrain/constraint.h"

namespace weft::serve::constrain {
namespace {

using ::testing::HasSubstr;
using Kind = ConstraintSpec::Kind;

std::uint64_t test_seed() {
  const char* given = std::getenv("WEFT_TEST_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("WEFT_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

std::shared_ptr<const TokenTrie> trie() {
  static const auto kTrie = [] {
    const test::ByteTokenizer tokenizer(test::json_pieces());
    return std::make_shared<const TokenTrie>(tokenizer, tokenizer.vocab_size(), tokenizer.eos());
  }();
  return kTrie;
}

std::shared_ptr<const Constraint> compiled(Kind kind, const std::string& text) {
  const auto made = make_constraint({kind, text, {}}, trie());
  EXPECT_TRUE(made) << text << ": " << made.error().message;
  return made ? *made : nullptr;
}
bool matches(const std::shared_ptr<const Constraint>& constraint, std::string_view text) {
  ConstraintState state(constraint);
  return state.accept_bytes(text) && state.accepting();
}
bool matches(Kind kind, const std::string& grammar, std::string_view text) {
  return matches(compiled(kind, grammar), text);
}
Error refusal(Kind kind, const std::string& text) {
  const auto begin = std::chrono::steady_clock::now();
  const auto made = make_constraint({kind, text, {}}, trie());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(seconds, 20) << text.substr(0, 100);
  EXPECT_FALSE(made) << text.substr(0, 200);
  return made ? Error{} : made.error();
}

TEST(Regex, MatchesWhatItsSyntaxSays) {
  const auto yes = [](const char* pattern, std::string_view text) {
    EXPECT_TRUE(matches(Kind::kRegex, pattern, text)) << pattern << " / " << text;
  };
  const auto no = [](const char* pattern, std::string_view text) {
    EXPECT_FALSE(matches(Kind::kRegex, pattern, text)) << pattern << " / " << text;
  };
  yes("a(b|c)*d", "abcbd");
  no("a(b|c)*d", "abc");
  yes("^[0-9]{2,3}$", "123");
  no("[0-9]{2,3}", "1234");
  yes("\\d+\\.\\d*?", "12.");
  yes("[^a-c]", "\xC3\xA9");
  no("[^a-c]", "b");
  yes("(?:x|(?P<name>y))", "y");
  yes("\\u00e9\\x41",
      "\xC3\xA9"
      "A");
  yes(".", "\xF0\x9F\x98\x80");
  no(".", "\n");
  no(".", "\xC3");
  yes("[]a]+", "]a");
  yes("[a\\-z]", "-");
  yes("a{0}b", "b");
  yes("(|x)y", "y");
}

TEST(Regex, EqualsTheStandardLibraryOnRandomExpressions) {
  Rng rng(test_seed(), RngUse::kTest, 1);
  std::function<std::string(int)> random_pattern = [&](int depth) -> std::string {
    switch (depth <= 0 ? rng.next_below(3) : rng.next_below(8)) {
      case 0:
        return "a";
      case 1:
        return "b";
      case 2:
        return "[bc]";
      case 3:
        return random_pattern(depth - 1) + random_pattern(depth - 1);
      case 4:
        return "(" + random_pattern(depth - 1) + "|" + random_pattern(depth - 1) + ")";
      case 5:
        return "(" + random_pattern(depth - 1) + ")*";
      case 6:
        return "(" + random_pattern(depth - 1) + ")?";
      default:
        return "(" + random_pattern(depth - 1) + "){1,2}";
    }
  };
  for (int i = 0; i < 200; ++i) {
    const std::string pattern = random_pattern(4);
    // libstdc++'s usual matcher backtracks, for hours on some of these; this flag of its own
    // takes the one that follows all paths at once.
    const std::regex oracle(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
    const auto constraint = compiled(Kind::kRegex, pattern);
    ASSERT_TRUE(constraint);
    for (int k = 0; k < 40; ++k) {
      std::string text;
      for (std::uint32_t n = rng.next_below(7); n > 0; --n) {
        text += static_cast<char>('a' + rng.next_below(3));
      }
      EXPECT_EQ(matches(constraint, text), std::regex_match(text, oracle))
          << pattern << " / " << text;
    }
  }
}

constexpr const char* kArithmetic = R"g(
# a small language with recursion in the middle and on the right
root   ::= ws expr (";" ws expr)*
expr   ::= term (("+" | "-") ws term)*
term   ::= factor ("*" ws factor)*
factor ::= number | "(" ws expr ")" ws | name
number ::= [0-9]+ ("." [0-9]{1,3})? ws
name   ::= [a-z\u00e0-\u00ff] [a-z0-9_]* ws
ws     ::= [ \t\n]*
)g";

TEST(Gbnf, FollowsRecursion) {
  const auto c = compiled(Kind::kGbnf, kArithmetic);
  EXPECT_TRUE(matches(c, "1+2*(x_1 - 3.25)"));
  EXPECT_TRUE(matches(c, "((((7))))"));
  EXPECT_TRUE(matches(c, "\xC3\xA9; b"));
  EXPECT_FALSE(matches(c, "1+"));
  EXPECT_FALSE(matches(c, "((7)"));
  EXPECT_FALSE(matches(c, "3.1415"));
}

// Nested things of unlike kinds: masks must look at the stack to know what may follow.
constexpr const char* kNested = R"g(
root ::= a | b
a ::= "[" (item ("," item)*)? "]"
b ::= "{" (str ":" item ("," str ":" item)*)? "}"
item ::= a | b | str | "tru" "e" | "null"
str ::= "\"" char* "\""
char ::= [^"\\\n] | "\\" ["n\\]
)g";

void expect_exact_masks(const std::shared_ptr<const Constraint>& constraint, Rng& rng, int replies,
                        int tokens) {
  for (int reply = 0; reply < replies; ++reply) {
    ConstraintState state(constraint);
    std::string text;
    for (int n = 0; n < tokens && !state.complete(); ++n) {
      const auto allowed = state.allowed();
      ASSERT_TRUE(allowed) << allowed.error().message;
      std::vector<model::TokenId> choices;
      for (model::TokenId id = 0; id < trie()->vocab_size(); ++id) {
        const auto at = static_cast<std::size_t>(id);
        const bool bit = (((*allowed)[at / 64] >> (at % 64)) & 1U) != 0;
        if (trie()->is_eos(id)) {
          EXPECT_EQ(bit, state.accepting()) << text;
          continue;
        }
        const std::string bytes(trie()->bytes(id));
        ConstraintState fresh(constraint);
        const bool fits = !bytes.empty() && fresh.accept_bytes(text + bytes);
        ASSERT_EQ(bit, fits) << "after '" << text << "' token '" << bytes << "'";
        if (bit) choices.push_back(id);
      }
      if (choices.empty()) break;
      const auto id = choices[rng.next_below(static_cast<std::uint32_t>(choices.size()))];
      ASSERT_TRUE(state.accept(id));
      text += trie()->bytes(id);
    }
  }
}

TEST(Masks, AreExactlyTheTokensThatFit) {
  Rng rng(test_seed(), RngUse::kTest, 2);
  expect_exact_masks(compiled(Kind::kGbnf, kNested), rng, 8, 40);
  expect_exact_masks(compiled(Kind::kGbnf, kArithmetic), rng, 4, 30);
  expect_exact_masks(compiled(Kind::kRegex, "(ab|a)*\"[a-z]{3,40}\"(true|tru|e)?"), rng, 4, 30);
  expect_exact_masks(
      compiled(Kind::kJsonSchema,
               R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},
                   "tags":{"type":"array","items":{"enum":["true","nul",null,true]}},
                   "deep":{"$ref":"#"}},"required":["name"],"additionalProperties":{"type":"integer"}})"),
      rng, 8, 40);
}

TEST(Masks, AreTheSameAfterWhatWasLearnedIsForgotten) {
  const auto constraint = compiled(Kind::kGbnf, kNested);
  ConstraintState state(constraint);
  std::string text;
  // Deep enough that configurations are forgotten and built again on the way.
  for (int i = 0; i < 900; ++i) {
    ASSERT_TRUE(state.allowed());
    ASSERT_TRUE(state.accept_bytes(i % 2 == 0 ? "[" : "{\"k\":"));
  }
  ASSERT_TRUE(state.accept_bytes("null"));
  for (int i = 900; i-- > 0;) {
    ASSERT_TRUE(state.allowed());
    ASSERT_TRUE(state.accept_bytes(i % 2 == 0 ? "]" : "}")) << i;
  }
  EXPECT_TRUE(state.complete());
}

TEST(Hostile, GbnfGetsAnErrorThatNamesTheRule) {
  const auto error = [](const std::string& text) { return refusal(Kind::kGbnf, text).message; };
  EXPECT_THAT(error("root ::= root \"a\" | \"b\""), HasSubstr("'root' is left-recursive"));
  EXPECT_THAT(error("root ::= a\na ::= b\nb ::= a \"x\" | \"y\""), HasSubstr("left-recursive"));
  // Hidden behind a rule that can be empty.
  EXPECT_THAT(error("root ::= e root \"a\" | \"b\"\ne ::= \"x\"?"), HasSubstr("left-recursive"));
  EXPECT_THAT(error("root ::= (\"\")*"), HasSubstr("'root' repeats something"));
  EXPECT_THAT(error("root ::= \"a\" (e e)+\ne ::= \"\" | \"\"?"), HasSubstr("only be empty"));
  EXPECT_THAT(error("root ::= \"a\" missing"), HasSubstr("rule 'missing' is used but not defined"));
  EXPECT_THAT(error("root ::= \"a\" root"), HasSubstr("'root' can never end"));
  EXPECT_THAT(error("start ::= \"a\""), HasSubstr("no rule 'root'"));
  EXPECT_THAT(error("root ::= [^\\x00-\\U0010FFFF]"), HasSubstr("rule 'root': a class has no"));
  EXPECT_THAT(error("root ::= [z-a]"), HasSubstr("ends before it begins"));
  EXPECT_THAT(error("root ::= \"a\"{3,1}"), HasSubstr("{3,1}"));
  EXPECT_THAT(error("root ::= \"a\"{999999999999}"), HasSubstr("rule 'root': repeats more than"));
  EXPECT_THAT(error("root ::= \"a\n"), HasSubstr("no closing"));
  EXPECT_THAT(error("root ::= \"a\"\nroot ::= \"b\""), HasSubstr("defined twice"));
  EXPECT_THAT(error("root ::= " + std::string(100'000, '(')), HasSubstr("nests groups"));
  EXPECT_THAT(error("root ::= (\"a\"{10000}){10000}"), HasSubstr("'root'"));
  EXPECT_THAT(error("root ::= [ab]* \"a\" [ab]{40}"), HasSubstr("'root': it needs more than"));
  EXPECT_THAT(error("root ::= \"a\"**"), HasSubstr("repeats a repetition"));
  EXPECT_FALSE(error("").empty());
  EXPECT_FALSE(error("root").empty());
  EXPECT_FALSE(error("root ::= \"\\q\"").empty());
}

TEST(Hostile, LongChainsOfRulesNeitherNestCallsNorTakeLong) {
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 15'000; ++i) {
    chain += fmt::format("r{} ::= \"a\" r{} | r{}\n", i, i + 1, i + 1);
  }
  const std::string open = chain + "r15000 ::= r0\n";
  EXPECT_THAT(refusal(Kind::kGbnf, open).message, HasSubstr("left-recursive"));
  // Too many calls are open at once before the first byte is read.
  EXPECT_THAT(refusal(Kind::kGbnf, chain + "r15000 ::= \"z\"\n").message,
              HasSubstr("too many ways"));
  std::string wide = "root ::= ";
  for (int i = 0; i < 15'000; ++i) wide += fmt::format("r{} | ", i);
  wide += "\"x\"\n";
  for (int i = 0; i < 15'000; ++i) wide += fmt::format("r{} ::= \"{}\"\n", i, i);
  EXPECT_TRUE(compiled(Kind::kGbnf, wide));
}

TEST(Hostile, AmbiguousGrammarsEndWithAnErrorNotAHang) {
  const auto constraint = compiled(
      Kind::kGbnf, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\" root \"d\" | \"x\"\n");
  ConstraintState state(constraint);
  bool ended = false;
  for (int i = 0; i < 200 && !ended; ++i) {
    ended = !state.allowed() || !state.accept_bytes("a");
  }
  if (!ended) {
    EXPECT_TRUE(state.accept_bytes("x"));
  }
}

TEST(Hostile, RegexGetsAnErrorWithItsPosition) {
  const auto error = [](const std::string& text) { return refusal(Kind::kRegex, text).message; };
  EXPECT_THAT(error("(ab"), HasSubstr("at byte 3"));
  EXPECT_THAT(error("a)"), HasSubstr("')'"));
  EXPECT_THAT(error("(?=a)b"), HasSubstr("look-around"));
  EXPECT_THAT(error("(a)\\1"), HasSubstr("back reference"));
  EXPECT_THAT(error("[b-a]"), HasSubstr("range"));
  EXPECT_THAT(error("a{5,2}"), HasSubstr("{5,2}"));
  EXPECT_THAT(error("((a{1000}){1000}){1000}"), HasSubstr("the regular expression"));
  EXPECT_THAT(error("(a|b)*a(a|b){60}"), HasSubstr("needs more than"));
  EXPECT_THAT(error(std::string(5000, '(')), HasSubstr("nests groups"));
  EXPECT_THAT(error("\xFF"), HasSubstr("UTF-8"));
  EXPECT_THAT(error("*"), HasSubstr("repeats nothing"));
  EXPECT_THAT(error("(){5}"), HasSubstr("only be empty"));
}

TEST(Hostile, SchemasGetAnErrorThatNamesThePlace) {
  const auto error = [](const std::string& text) {
    return refusal(Kind::kJsonSchema, text).message;
  };
  EXPECT_THAT(error(R"({"$ref":"#"})"), HasSubstr("schema # is left-recursive"));
  EXPECT_THAT(error(R"({"$ref":"#/$defs/no"})"), HasSubstr("names nothing"));
  EXPECT_THAT(error(R"({"allOf":[{"$ref":"#"}]})"), HasSubstr("circle"));
  EXPECT_THAT(error(R"({"properties":{"a":{"minimum":5,"maximum":4}},"required":["a"]})"),
              HasSubstr("#/properties/a"));
  EXPECT_THAT(error(R"({"type":"integer","minimum":0.5,"maximum":0.7})"), HasSubstr("no integer"));
  EXPECT_THAT(error(R"({"type":"string","minLength":5,"maxLength":4})"),
              HasSubstr("minLength is 5"));
  EXPECT_THAT(error(R"({"type":"string","minLength":5,"pattern":"^a?$"})"), HasSubstr("no string"));
  EXPECT_THAT(error(R"({"type":"string","maxLength":1e15})"), HasSubstr("#/maxLength"));
  EXPECT_THAT(error(R"({"type":"array","items":{"$ref":"#"},"minItems":1})"),
              HasSubstr("never end"));
  EXPECT_THAT(error(R"({"type":"array","uniqueItems":true})"), HasSubstr("#/uniqueItems"));
  EXPECT_THAT(error(R"({"not":{"enum":[1]}})"), HasSubstr("#/not"));
  EXPECT_THAT(error(R"({"oneOf":[{"type":"number"},{"type":"integer"}]})"), HasSubstr("#/oneOf/1"));
  EXPECT_THAT(error(R"({"enum":[]})"), HasSubstr("enum"));
  EXPECT_THAT(error(R"({"type":"text"})"), HasSubstr("#/type"));
  EXPECT_THAT(error("false"), HasSubstr("nothing fulfils"));
  EXPECT_THAT(error("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(error(R"({"type":"string","pattern":"(?<=a)b"})"), HasSubstr("#/pattern"));
  std::string deep;
  for (int i = 0; i < 400; ++i) deep += R"({"items":)";
  deep += "{}" + std::string(400, '}');
  EXPECT_THAT(error(deep), HasSubstr("nests"));
  // References that double at every step.
  std::string twice = R"({"allOf":[{"$ref":"#/$defs/a0"}],"$defs":{)";
  for (int i = 0; i < 25; ++i) {
    twice += fmt::format(
        R"("a{0}":{{"properties":{{"p{0}":{{}}}},"allOf":[{{"$ref":"#/$defs/a{1}"}},{{"$ref":"#/$defs/a{1}"}}]}},)",
        i, i + 1);
  }
  twice += R"("a25":{}}})";
  EXPECT_THAT(error(twice), HasSubstr("unfold to too much"));
}

TEST(Schema, TextsFulfilIt) {
  const auto yes = [](const char* schema, std::string_view text) {
    EXPECT_TRUE(matches(Kind::kJsonSchema, schema, text)) << schema << " / " << text;
  };
  const auto no = [](const char* schema, std::string_view text) {
    EXPECT_FALSE(matches(Kind::kJsonSchema, schema, text)) << schema << " / " << text;
  };
  yes(R"({"type":"integer","minimum":-5,"maximum":120})", "-5");
  yes(R"({"type":"integer","minimum":-5,"maximum":120})", "99");
  no(R"({"type":"integer","minimum":-5,"maximum":120})", "121");
  no(R"({"type":"integer","minimum":-5,"maximum":120})", "-6");
  no(R"({"type":"integer","minimum":-5,"maximum":120})", "007");
  yes(R"({"type":"number","exclusiveMinimum":0.25,"maximum":1.5})", "0.2501");
  yes(R"({"type":"number","exclusiveMinimum":0.25,"maximum":1.5})", "1.500");
  no(R"({"type":"number","exclusiveMinimum":0.25,"maximum":1.5})", "0.250");
  no(R"({"type":"number","exclusiveMinimum":0.25,"maximum":1.5})", "1.51");
  yes(R"({"type":"integer","multipleOf":7,"minimum":10})", "21");
  no(R"({"type":"integer","multipleOf":7,"minimum":10})", "7");
  yes(R"({"type":"string","minLength":2,"maxLength":3})", "\"\\u00e9\xC3\xA9\"");
  no(R"({"type":"string","minLength":2,"maxLength":3})", "\"a\"");
  yes(R"({"type":"string","pattern":"b+"})", "\"abbc\"");
  no(R"({"type":"string","pattern":"^b+$"})", "\"abbc\"");
  yes(R"({"type":"string","pattern":"^\"$"})", "\"\\\"\"");
  yes(R"({"properties":{"a":{"type":"null"},"b":true},"required":["b"]})",
      R"({"a": null,"b":[1]})");
  yes(R"({"properties":{"a":{"type":"null"},"b":true},"required":["b"]})", R"({"b":{"x":{}}})");
  no(R"({"properties":{"a":{"type":"null"},"b":true},"required":["b"]})", R"({"a":null})");
  no(R"({"properties":{"a":{}},"additionalProperties":{"type":"null"}})", R"({"a":1,"a":null})");
  yes(R"({"properties":{"a":{}},"additionalProperties":{"type":"null"}})", R"({"a":1,"aa":null})");
  no(R"({"patternProperties":{"^x":{"type":"null"}},"additionalProperties":false})",
     R"({"y":null})");
  yes(R"({"patternProperties":{"^x":{"type":"null"}},"additionalProperties":false})",
      R"({"xy":null})");
  no(R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"maxProperties":2,"minProperties":2})",
     R"({"a":1})");
  yes(R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"maxProperties":2,"minProperties":2})",
      R"({"a":1,"c":2})");
  no(R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"maxProperties":2})",
     R"({"a":1,"b":1,"c":2})");
  yes(R"({"prefixItems":[{"type":"null"}],"items":{"type":"boolean"},"maxItems":2})",
      "[null,true]");
  no(R"({"prefixItems":[{"type":"null"}],"items":{"type":"boolean"},"maxItems":2})",
     "[null,true,true]");
  yes(R"({"type":"array","items":{"type":"null"},"minItems":2})", "[null, null,null]");
  no(R"({"type":"array","items":{"type":"null"},"minItems":2})", "[null]");
  yes(R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},
                  {"properties":{"a":{"minimum":3}}}]})",
      R"({"a":3})");
  no(R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},
                  {"properties":{"a":{"minimum":3}}}]})",
     R"({"a":2})");
  yes(R"({"oneOf":[{"properties":{"k":{"const":"x"},"v":{"type":"null"}},"required":["k","v"]},
                   {"properties":{"k":{"const":"y"}},"required":["k"]}]})",
      R"({"k":"x","v":null})");
  yes(R"({"$defs":{"t":{"properties":{"n":{"$ref":"#/$defs/t"}},"additionalProperties":false}},"$ref":"#/$defs/t"})",
      R"({"n":{"n":{}}})");
  yes(R"({"enum":["a\n",{"x":[1]},2.5]})", R"({"x":[1]})");
  yes(R"({"enum":["a\n",{"x":[1]},2.5]})", "\"a\\n\"");
  yes("{}", R"({"a":[1,-2.5e+3,"x\u00e9\ud83d\ude00",true,null,{}]})");
  no("{}", R"(["\ud83d"])");
  no("{}", "[1,]");
  yes(R"({"type":"string","format":"date"})", "\"2024-02-28\"");
  no(R"({"type":"string","format":"date"})", "\"2024-02-30\"");
}

TEST(Schema, LargeBoundsStayFast) {
  const auto begin = std::chrono::steady_clock::now();
  const auto constraint = compiled(Kind::kJsonSchema, R"({"type":"string","maxLength":5000})");
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 20);
  EXPECT_TRUE(matches(constraint, "\"" + std::string(5000, 'x') + "\""));
  EXPECT_FALSE(matches(constraint, "\"" + std::string(5001, 'x') + "\""));
  // Places in a long string are alike, so they share their masks.
  EXPECT_LT(constraint->mask_groups(), 6000);
}

}  // namespace
}  // namespace weft::serve::constrain
