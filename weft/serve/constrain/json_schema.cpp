#include "weft/serve/constrain/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "weft/base/hash.h"
#include "weft/serve/constrain/json_text.h"
#include "weft/serve/constrain/regex.h"
#include "weft/serve/constrain/schema_merge.h"

namespace weft::serve::constrain {

namespace {

constexpr std::int64_t kCopyBudget = 3'000'000;  // JSON values; about a second
constexpr std::int64_t kMaxNodes = 50'000;       // of one object's graph

std::unexpected<Error> unsupported(std::string_view path, std::string_view what) {
  return fail(ErrorCode::kUnsupported, "schema {}: {}", path, what);
}
std::unexpected<Error> invalid(std::string_view path, std::string_view what) {
  return fail(ErrorCode::kInvalidArgument, "schema {}: {}", path, what);
}

// The three rules that any value needs, first in every grammar.
enum : int { kValueRule = 0, kObjectRule = 1, kArrayRule = 2, kStringRule = 3, kFreeRules = 4 };

Expr listed(char open, char close, const Expr& item) {
  const Expr more = repeat(sequence({text_of(","), json_space(), item}), 0, -1);
  const Expr items = sequence({json_space(), item, more, json_space()});
  return sequence({text_of(std::string(1, open)), choice({json_space(), items}),
                   text_of(std::string(1, close))});
}

void add_free_rules(Grammar& grammar) {
  const Expr member =
      sequence({call(kStringRule), json_space(), text_of(":"), json_space(), call(kValueRule)});
  grammar.rules.push_back(
      {"a value",
       choice({call(kObjectRule), call(kArrayRule), call(kStringRule), json_number(),
               text_of("true"), text_of("false"), text_of("null")}),
       true});
  grammar.rules.push_back({"an object", listed('{', '}', member), true});
  grammar.rules.push_back({"an array", listed('[', ']', call(kValueRule)), true});
  grammar.rules.push_back({"a string", json_string(), true});
}

int nesting(const Json& value) {
  int deepest = 0;
  if (value.is_structured()) {
    for (const auto& each : value) deepest = std::max(deepest, nesting(each));
  }
  return deepest + 1;
}

// One character as a small automaton, since it is written out up to maxLength times. In
// long strings it has one spelling only, which needs half the states.
const Expr& plain_character() {
  static const Expr kOne = exactly(*build_automaton(json_plain_character()));
  return kOne;
}
const Expr& any_character(std::int64_t max) {
  static const Expr kOne = exactly(*build_automaton(json_character()));
  return max > 1000 ? plain_character() : kOne;
}

// A state machine under construction: node 0 is its begin, node 1 its end.
class Graph {
 public:
  Graph() { expr_.kind = Expr::Kind::kGraph, expr_.nodes = 2; }
  int node() { return expr_.nodes++; }
  void arc(int from, Expr label, int to) {
    expr_.arcs.emplace_back(from, to);
    expr_.parts.push_back(std::move(label));
  }
  Expr take() { return std::move(expr_); }

 private:
  Expr expr_;
};

class SchemaReader {
 public:
  explicit SchemaReader(const Json& root) : root_(root) {}

  Result<Grammar> run() {
    if (nesting(root_) > kMaxNesting) {
      return fail(ErrorCode::kResourceExhausted, "schema #: nests more than {} deep", kMaxNesting);
    }
    add_free_rules(grammar_);
    WEFT_ASSIGN(grammar_.root, rule_for(root_, "#"));
    while (!queue_.empty()) {
      const Waiting next = std::move(queue_.front());
      queue_.pop_front();
      WEFT_ASSIGN(Expr body, body_of(next.schema, next.path));
      grammar_.rules[static_cast<std::size_t>(next.rule)].body = std::move(body);
    }
    return std::move(grammar_);
  }

 private:
  struct Waiting {
    int rule;
    Json schema;
    std::string path;
  };
  using Types = unsigned;

  SchemaPlace place(const std::string& path) { return {root_, path, &budget_, 0}; }

  // Equal schemas share a rule; bodies are made one after the other, so that a long
  // chain of schemas does not nest our calls.
  Result<int> rule_for(const Json& schema, const std::string& path) {
    if (says_nothing(schema)) return static_cast<int>(kValueRule);
    const Hash128 key = xxh3_128(bytes_of(dump_json(schema)));
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    if (grammar_.rules.size() >= kMaxRules) {
      return fail(ErrorCode::kResourceExhausted, "schema {}: more than {} different schemas", path,
                  kMaxRules);
    }
    const auto id = static_cast<int>(grammar_.rules.size());
    grammar_.rules.push_back({fmt::format("schema {}", path), {}, false});
    known_.emplace(key, id);
    queue_.push_back({id, schema, path});
    return id;
  }
  Result<Expr> call_for(const Json& schema, const std::string& path) {
    WEFT_ASSIGN(const int id, rule_for(schema, path));
    return call(id);
  }

  Result<Expr> body_of(const Json& schema, const std::string& path) {
    if (schema.is_object() && schema.contains("$ref") && only(schema, {"$ref"})) {
      if (!schema["$ref"].is_string()) return invalid(path + "/$ref", "must be a string");
      const auto reference = schema["$ref"].get<std::string>();
      WEFT_ASSIGN(const Json* target, resolve(root_, reference, path));
      return call_for(*target, reference);
    }
    WEFT_ASSIGN(const Json flat, flattened(schema, place(path)));
    if (flat.is_boolean()) return invalid(path, "nothing fulfils it");
    WEFT_TRY(refuse_keywords(flat, path));
    for (const char* key : {"anyOf", "oneOf"}) {
      if (flat.contains(key)) return alternatives(flat, key, path);
    }
    if (flat.contains("const")) return values(flat, Json::array({flat["const"]}), path);
    if (flat.contains("enum")) return values(flat, flat["enum"], path);
    WEFT_ASSIGN(const Types types, generated_types(flat, path));
    std::vector<Expr> each;
    if ((types & kNull) != 0) each.push_back(text_of("null"));
    if ((types & kBoolean) != 0) each.push_back(choice({text_of("true"), text_of("false")}));
    if ((types & (kInteger | kFraction)) != 0) {
      WEFT_ASSIGN(Expr number, number_of(flat, (types & kFraction) == 0, path));
      each.push_back(std::move(number));
    }
    if ((types & kString) != 0) {
      WEFT_ASSIGN(Expr text, string_of(flat, path));
      each.push_back(std::move(text));
    }
    if ((types & kArray) != 0) {
      WEFT_ASSIGN(Expr array, array_of(flat, path));
      each.push_back(std::move(array));
    }
    if ((types & kObject) != 0) {
      WEFT_ASSIGN(Expr object, object_of(flat, path));
      each.push_back(std::move(object));
    }
    return choice(std::move(each));
  }

  static bool only(const Json& schema, std::initializer_list<std::string_view> keys) {
    return std::ranges::all_of(schema.items(), [&](const auto& item) {
      return is_annotation(item.key()) || std::ranges::find(keys, item.key()) != keys.end();
    });
  }

  Status refuse_keywords(const Json& schema, const std::string& path) {
    for (const char* key :
         {"if", "dependentSchemas", "dependentRequired", "dependencies", "unevaluatedProperties",
          "unevaluatedItems", "contains", "minContains", "maxContains", "$dynamicRef",
          "$recursiveRef", "additionalItems", "not"}) {
      const Json* value = json_find(schema, key);
      if (value == nullptr) continue;
      const std::string_view name = key;
      if (name.starts_with("unevaluated") && says_nothing(*value)) continue;
      if (name == "not" && value->is_boolean() && !value->get<bool>()) continue;
      if (name == "not" && value->is_object() && only(*value, {"type"})) continue;
      if (name == "additionalItems" && !schema.contains("items")) continue;
      if (name == "additionalItems" && !schema["items"].is_array()) continue;
      if (name == "additionalItems") continue;  // with items as an array: array_of
      if ((name == "minContains" || name == "maxContains") && !schema.contains("contains"))
        continue;
      if (name == "if" && !schema.contains("then") && !schema.contains("else")) continue;
      return unsupported(fmt::format("{}/{}", path, key), "this keyword is not supported");
    }
    return {};
  }

  // The types of the replies: those declared, or those that the keywords speak of.
  Result<Types> generated_types(const Json& schema, const std::string& path) {
    WEFT_ASSIGN(Types types, types_of(schema, path));
    if (!schema.contains("type")) {
      const Types spoken = spoken_types(schema);
      if (spoken != 0) types = spoken;
    }
    if (const Json* no = json_find(schema, "not"); no != nullptr && no->is_object()) {
      if (no->contains("type")) {
        WEFT_ASSIGN(const Types excluded, types_of(*no, path + "/not"));
        types &= ~excluded;
      } else {
        types = 0;
      }
      if (types == 0) return invalid(path + "/not", "excludes everything");
    }
    return types;
  }

  Result<Expr> alternatives(const Json& schema, const char* key, const std::string& path) {
    const Json& list = schema[key];
    const std::string here = fmt::format("{}/{}", path, key);
    if (!list.is_array() || list.empty()) return invalid(here, "must be an array, not empty");
    Json base = schema;
    base.erase(key);
    std::vector<Expr> each;
    std::vector<Json> flats;
    for (std::size_t i = 0; i < list.size(); ++i) {
      Json branch = list[i];
      if (!says_nothing(base)) branch = Json{{"allOf", Json::array({base, branch})}};
      const std::string branch_path = fmt::format("{}/{}", here, i);
      WEFT_ASSIGN(Json flat, flattened(branch, place(branch_path)));
      if (flat.is_boolean()) {
        if (flat.get<bool>()) flat = Json::object();
        if (flat.is_boolean()) continue;  // cannot be fulfilled beside the rest
      }
      if (std::string_view(key) == "oneOf") {
        for (const Json& other : flats) {
          if (disjoint(flat, other, place(branch_path))) continue;
          return unsupported(branch_path,
                             "it may be fulfilled together with another of oneOf; use anyOf, or "
                             "give them a required property with different const values");
        }
        flats.push_back(flat);
      }
      WEFT_ASSIGN(Expr one, call_for(branch, branch_path));
      each.push_back(std::move(one));
    }
    if (each.empty()) return invalid(here, "none of it can be fulfilled");
    return choice(std::move(each));
  }

  Result<Expr> values(const Json& schema, const Json& list, const std::string& path) {
    if (!list.is_array() || list.empty())
      return invalid(path + "/enum", "must be an array, not empty");
    std::vector<Expr> each;
    for (const auto& value : list) {
      WEFT_ASSIGN(const bool fits, fulfils(value, schema, path));
      if (fits) each.push_back(text_of(literal(value)));
    }
    if (each.empty()) return invalid(path, "no value of enum or const fulfils the rest of it");
    return choice(std::move(each));
  }
  static std::string literal(const Json& value) {
    if (value.is_string()) {
      return "\"" + json_spelling(value.get_ref<const std::string&>()) + "\"";
    }
    return dump_json(value);
  }

  // Whether a listed value fulfils the other keywords.
  Result<bool> fulfils(const Json& value, const Json& schema, const std::string& path) {
    WEFT_ASSIGN(const Types types, types_of(schema, path));
    const Types type = type_of_value(value);
    if ((types & type) == 0) return false;
    if (schema.contains("const") && schema["const"] != value) return false;
    if (schema.contains("enum") &&
        std::ranges::find(schema["enum"], value) == schema["enum"].end()) {
      return false;
    }
    if (schema.contains("not")) {
      WEFT_ASSIGN(const Types excluded, types_of(schema["not"], path + "/not"));
      if ((excluded & type) != 0) return false;
    }
    if (value.is_number()) return number_fulfils(value, schema, path);
    if (value.is_string()) {
      WEFT_ASSIGN(const Expr text, string_of(schema, path));
      WEFT_ASSIGN(const Automaton automaton, build_automaton(text, [this](int rule) {
                    return &grammar_.rules[static_cast<std::size_t>(rule)].body;
                  }));
      return automaton.accepts(literal(value));
    }
    if (value.is_structured()) {
      for (const auto& [key, ignored] : schema.items()) {
        if (is_annotation(key) || key == "const" || key == "enum" || key == "type") continue;
        return unsupported(path,
                           fmt::format("'{}' beside an enum or const with objects or arrays", key));
      }
    }
    return true;
  }
  Result<bool> number_fulfils(const Json& value, const Json& schema, const std::string& path) {
    const double number = value.get<double>();
    const auto bound = [&](const char* key) { return json_find(schema, key); };
    if (const Json* b = bound("minimum"); b && b->is_number() && number < b->get<double>())
      return false;
    if (const Json* b = bound("maximum"); b && b->is_number() && number > b->get<double>())
      return false;
    if (const Json* b = bound("exclusiveMinimum");
        b && b->is_number() && number <= b->get<double>()) {
      return false;
    }
    if (const Json* b = bound("exclusiveMaximum");
        b && b->is_number() && number >= b->get<double>()) {
      return false;
    }
    if (const Json* m = bound("multipleOf")) {
      if (!m->is_number_integer() || !value.is_number_integer()) {
        return unsupported(path + "/multipleOf", "beside an enum, with fractions");
      }
      return *m != 0 && value.get<std::int64_t>() % m->get<std::int64_t>() == 0;
    }
    return true;
  }

  // A keyword that counts: 0 or more. `absent` if it is not there.
  Result<std::int64_t> count(const Json& schema, const char* key, std::int64_t absent,
                             const std::string& path) {
    const Json* value = json_find(schema, key);
    if (value == nullptr) return absent;
    const std::string here = fmt::format("{}/{}", path, key);
    if (!value->is_number() || std::floor(value->get<double>()) != value->get<double>() ||
        value->get<double>() < 0) {
      return invalid(here, "must be an integer of 0 or more");
    }
    if (value->get<double>() > static_cast<double>(kMaxRepeat)) {
      return fail(ErrorCode::kResourceExhausted, "schema {}: {} is more than {}", here,
                  dump_json(*value), kMaxRepeat);
    }
    return static_cast<std::int64_t>(value->get<double>());
  }
  Status check_range(std::int64_t min, std::int64_t max, const char* what,
                     const std::string& path) {
    if (max < 0 || min <= max) return {};
    return invalid(
        path, fmt::format("min{} is {}, max{} is {}: nothing fulfils both", what, min, what, max));
  }

  Result<Expr> number_of(const Json& schema, bool integers, const std::string& path) {
    std::optional<DecimalBound> low, high;
    const auto bound = [&](const char* key, bool exclusive, bool upper,
                           std::optional<DecimalBound>& out) -> Status {
      const Json* value = json_find(schema, key);
      if (value == nullptr) return {};
      if (!value->is_number()) return invalid(fmt::format("{}/{}", path, key), "must be a number");
      if (out) {
        const double known = std::stod(out->number), given = value->get<double>();
        if (upper ? given > known : given < known) return {};
        if (given == known && !exclusive) return {};
      }
      out = DecimalBound{dump_json(*value), exclusive};
      return {};
    };
    WEFT_TRY(bound("minimum", false, false, low));
    WEFT_TRY(bound("exclusiveMinimum", true, false, low));
    WEFT_TRY(bound("maximum", false, true, high));
    WEFT_TRY(bound("exclusiveMaximum", true, true, high));
    const Json* multiple = json_find(schema, "multipleOf");
    if (!low && !high && multiple == nullptr) return integers ? json_integer() : json_number();
    auto numbers = numbers_between(low, high, integers || multiple != nullptr);
    if (!numbers) return std::unexpected(numbers.error().in(fmt::format("schema {}", path)));
    if (multiple != nullptr) {
      const std::string here = path + "/multipleOf";
      if (!multiple->is_number() || multiple->get<double>() <= 0) {
        return invalid(here, "must be a number above 0");
      }
      const double divisor = multiple->get<double>();
      if (std::floor(divisor) != divisor || divisor > 10'000) {
        return unsupported(here, "only integers from 1 to 10000 are supported");
      }
      numbers = intersect(*numbers, multiples_of(static_cast<std::int64_t>(divisor)));
      if (!numbers) return std::unexpected(numbers.error().in(fmt::format("schema {}", here)));
    }
    if (numbers->states.empty()) {
      return invalid(path, fmt::format("no {} of at most {} digits lies within its bounds",
                                       integers ? "integer" : "number", integers ? 18 : 15));
    }
    return exactly(std::move(*numbers));
  }

  // What may stand between the quotes, for keys and for strings that have more to
  // fulfil than a length.
  Result<Automaton> string_automaton(const Json& schema, const std::string& path) {
    WEFT_ASSIGN(const std::int64_t min, count(schema, "minLength", 0, path));
    WEFT_ASSIGN(const std::int64_t max, count(schema, "maxLength", -1, path));
    WEFT_TRY(check_range(min, max, "Length", path));
    const auto located = [&](auto result) {
      if (!result) result = std::unexpected(result.error().in(fmt::format("schema {}", path)));
      return result;
    };
    WEFT_ASSIGN(Automaton out, located(build_automaton(repeat(plain_character(), min, max))));
    std::vector<std::string> patterns;
    for (const char* key : {"pattern", kPatterns}) {
      const Json* value = json_find(schema, key);
      if (value == nullptr) continue;
      const Json list = value->is_array() ? *value : Json::array({*value});
      for (const auto& each : list) {
        if (!each.is_string()) return invalid(path + "/pattern", "must be a string");
        patterns.push_back(each.get<std::string>());
      }
    }
    for (const std::string& pattern : patterns) {
      WEFT_ASSIGN(const Automaton one, pattern_automaton(pattern, path + "/pattern"));
      WEFT_ASSIGN(out, located(intersect(out, one)));
    }
    if (const Json* format = json_find(schema, "format");
        format != nullptr && format->is_string()) {
      if (const auto known = format_pattern(format->get_ref<const std::string&>())) {
        WEFT_ASSIGN(const Automaton one,
                    pattern_automaton("^(" + std::string(*known) + ")$", path + "/format"));
        WEFT_ASSIGN(out, located(intersect(out, one)));
      }
    }
    if (out.states.empty()) {
      return invalid(path, "no string fulfils its pattern, format and length together");
    }
    return out;
  }
  Result<Automaton> pattern_automaton(const std::string& pattern, const std::string& path) {
    auto expr = read_regex(pattern, {.search = true, .spell = spell_json});
    if (!expr) return std::unexpected(expr.error().in(fmt::format("schema {}", path)));
    auto out = build_automaton(*expr);
    if (!out) return std::unexpected(out.error().in(fmt::format("schema {}", path)));
    return out;
  }

  Result<Expr> string_of(const Json& schema, const std::string& path) {
    const bool more = schema.contains("pattern") || schema.contains(kPatterns) ||
                      (schema.contains("format") && schema["format"].is_string() &&
                       format_pattern(schema["format"].get_ref<const std::string&>()));
    Expr inside;
    if (more) {
      WEFT_ASSIGN(Automaton automaton, string_automaton(schema, path));
      inside = exactly(std::move(automaton));
    } else {
      WEFT_ASSIGN(const std::int64_t min, count(schema, "minLength", 0, path));
      WEFT_ASSIGN(const std::int64_t max, count(schema, "maxLength", -1, path));
      WEFT_TRY(check_range(min, max, "Length", path));
      if (min == 0 && max < 0) return call(kStringRule);
      inside = repeat(any_character(max), min, max);
    }
    return sequence({text_of("\""), std::move(inside), text_of("\"")});
  }

  Result<Expr> array_of(const Json& schema, const std::string& path) {
    std::vector<const Json*> first;
    const Json* rest = json_find(schema, "items");
    std::string rest_path = path + "/items", first_path = path + "/prefixItems";
    const Json* prefix = json_find(schema, "prefixItems");
    if (rest != nullptr && rest->is_array()) {  // draft 7
      prefix = rest;
      first_path = path + "/items";
      rest = json_find(schema, "additionalItems");
      rest_path = path + "/additionalItems";
    }
    if (prefix != nullptr) {
      if (!prefix->is_array()) return invalid(first_path, "must be an array of schemas");
      for (const auto& each : *prefix) first.push_back(&each);
    }
    WEFT_ASSIGN(const std::int64_t min, count(schema, "minItems", 0, path));
    WEFT_ASSIGN(std::int64_t max, count(schema, "maxItems", -1, path));
    WEFT_TRY(check_range(min, max, "Items", path));
    if (const Json* unique = json_find(schema, "uniqueItems");
        unique != nullptr && *unique == true && (max < 0 || max > 1)) {
      return unsupported(path + "/uniqueItems",
                         "no automaton can compare items; leave it out or set maxItems to 1");
    }
    const auto is_false = [](const Json* s) {
      return s != nullptr && s->is_boolean() && !s->get<bool>();
    };
    const auto prefixed = static_cast<std::int64_t>(first.size());
    if (is_false(rest)) max = max < 0 ? prefixed : std::min(max, prefixed);
    for (std::int64_t i = 0; i < prefixed; ++i) {
      if (is_false(first[static_cast<std::size_t>(i)])) max = max < 0 ? i : std::min(max, i);
    }
    if (max >= 0 && min > max) {
      return invalid(path, fmt::format("asks for {} items, and only {} can be there", min, max));
    }
    Graph graph;
    const int close = graph.node();
    graph.arc(close, sequence({json_space(), text_of("]")}), 1);
    int at = graph.node();
    graph.arc(0, text_of("["), at);
    const std::int64_t last = max >= 0 ? max : std::max(min, prefixed) + 1;
    for (std::int64_t i = 0;; ++i) {
      if (i >= min) graph.arc(at, {}, close);
      if (max >= 0 && i == max) break;
      Expr item = call(kValueRule);
      if (i < prefixed) {
        WEFT_ASSIGN(item, call_for(*first[static_cast<std::size_t>(i)],
                                   fmt::format("{}/{}", first_path, i)));
      } else if (rest != nullptr) {
        WEFT_ASSIGN(item, call_for(*rest, rest_path));
      }
      std::vector<Expr> parts;
      if (i > 0) parts.push_back(text_of(","));
      parts.push_back(json_space());
      parts.push_back(std::move(item));
      const bool loops = max < 0 && i >= last;
      const int next = loops ? at : graph.node();
      graph.arc(at, sequence(std::move(parts)), next);
      if (loops) break;
      at = next;
    }
    return graph.take();
  }

  struct Property {
    Expr label;  // "name": value
    bool required;
  };

  Result<Expr> object_of(const Json& schema, const std::string& path);
  Result<std::vector<Property>> properties_of(const Json& schema, const std::string& path,
                                              std::set<std::string>& names);
  Result<std::vector<Expr>> extra_members(const Json& schema, const std::string& path,
                                          const std::set<std::string>& names);
  static Expr member(Expr key, Expr value) {
    return sequence({text_of("\""), std::move(key), text_of("\""), json_space(), text_of(":"),
                     json_space(), std::move(value)});
  }

  const Json& root_;
  Grammar grammar_;
  std::map<Hash128, int> known_;
  std::deque<Waiting> queue_;
  std::int64_t budget_ = kCopyBudget;
};

// The declared properties, in their order, then required ones that are not declared.
// One that can never be is left out.
Result<std::vector<SchemaReader::Property>> SchemaReader::properties_of(
    const Json& schema, const std::string& path, std::set<std::string>& names) {
  std::vector<Property> out;
  Json declared = schema.value("properties", Json::object());
  if (!declared.is_object()) return invalid(path + "/properties", "must be an object");
  const Json required = schema.value("required", Json::array());
  if (!required.is_array()) return invalid(path + "/required", "must be an array of strings");
  std::set<std::string> must;
  for (const auto& each : required) {
    if (!each.is_string()) return invalid(path + "/required", "must be an array of strings");
    must.insert(each.get<std::string>());
  }
  const Json* patterns = json_find(schema, "patternProperties");
  std::vector<std::pair<Automaton, const Json*>> by_pattern;
  if (patterns != nullptr) {
    if (!patterns->is_object()) return invalid(path + "/patternProperties", "must be an object");
    for (const auto& [pattern, value] : patterns->items()) {
      WEFT_ASSIGN(Automaton one, pattern_automaton(pattern, path + "/patternProperties"));
      by_pattern.emplace_back(std::move(one), &value);
    }
  }
  std::vector<std::pair<std::string, Json>> all;
  for (const auto& [name, value] : declared.items()) all.emplace_back(name, value);
  const Json* additional = json_find(schema, "additionalProperties");
  for (const auto& each : required) {
    const auto name = each.get<std::string>();
    if (declared.contains(name)) continue;
    declared[name] = true;
    const bool matched = std::ranges::any_of(
        by_pattern, [&](const auto& p) { return p.first.accepts(json_spelling(name)); });
    all.emplace_back(name, matched || additional == nullptr ? Json(true) : *additional);
  }
  std::optional<Automaton> allowed_names;
  if (const Json* rule = json_find(schema, "propertyNames");
      rule != nullptr && !says_nothing(*rule)) {
    WEFT_ASSIGN(const Json flat, flattened(*rule, place(path + "/propertyNames")));
    if (flat.is_boolean() ||
        !only(flat, {"type", "pattern", kPatterns, "minLength", "maxLength", "format"})) {
      return unsupported(path + "/propertyNames", "only pattern, format and lengths are supported");
    }
    WEFT_ASSIGN(allowed_names, string_automaton(flat, path + "/propertyNames"));
  }
  for (auto& [name, value] : all) {
    names.insert(name);
    for (const auto& [pattern, pattern_schema] : by_pattern) {
      if (!pattern.accepts(json_spelling(name))) continue;
      value = says_nothing(value) ? *pattern_schema
                                  : Json{{"allOf", Json::array({value, *pattern_schema})}};
    }
    const std::string here = fmt::format("{}/properties/{}", path, name.substr(0, 80));
    WEFT_ASSIGN(const Json flat, flattened(value, place(here)));
    const bool never = (flat.is_boolean() && !flat.get<bool>()) ||
                       (allowed_names && !allowed_names->accepts(json_spelling(name)));
    if (never && must.contains(name)) return invalid(here, "is required and can never be there");
    if (never) continue;
    WEFT_ASSIGN(Expr body, call_for(value, here));
    out.push_back({member(text_of(json_spelling(name)), std::move(body)), must.contains(name)});
  }
  return out;
}

// Properties beyond the declared ones: each key fulfils exactly one of the patterns, or
// none and the value is of additionalProperties.
Result<std::vector<Expr>> SchemaReader::extra_members(const Json& schema, const std::string& path,
                                                      const std::set<std::string>& names) {
  Json rule = schema.value("propertyNames", Json::object());
  WEFT_ASSIGN(rule, flattened(rule, place(path + "/propertyNames")));
  WEFT_ASSIGN(Automaton free, string_automaton(rule, path + "/propertyNames"));
  std::vector<Expr> spelled;
  for (const std::string& name : names) spelled.push_back(text_of(json_spelling(name)));
  if (!spelled.empty()) {
    WEFT_ASSIGN(const Automaton declared, build_automaton(choice(std::move(spelled))));
    WEFT_ASSIGN(free, subtract(free, declared));
  }
  std::vector<Expr> out;
  const auto add = [&](Automaton keys, const Json& value, const std::string& here) -> Status {
    WEFT_ASSIGN(const Json flat, flattened(value, place(here)));
    if (keys.states.empty() || (flat.is_boolean() && !flat.get<bool>())) return {};
    WEFT_ASSIGN(Expr body, call_for(value, here));
    const auto id = static_cast<int>(grammar_.rules.size());
    grammar_.rules.push_back({here + " (key)", exactly(std::move(keys)), false});
    out.push_back(member(call(id), std::move(body)));
    return {};
  };
  std::vector<std::pair<Automaton, const Json*>> by_pattern;
  const Json patterns = schema.value("patternProperties", Json::object());
  for (const auto& [pattern, value] : patterns.items()) {
    WEFT_ASSIGN(Automaton one, pattern_automaton(pattern, path + "/patternProperties"));
    by_pattern.emplace_back(std::move(one), &value);
  }
  Automaton unmatched = free;
  for (std::size_t i = 0; i < by_pattern.size(); ++i) {
    WEFT_ASSIGN(Automaton keys, intersect(free, by_pattern[i].first));
    for (std::size_t j = 0; j < by_pattern.size(); ++j) {
      if (j == i) continue;
      WEFT_ASSIGN(keys, subtract(keys, by_pattern[j].first));
    }
    WEFT_TRY(add(std::move(keys), *by_pattern[i].second, path + "/patternProperties"));
    WEFT_ASSIGN(unmatched, subtract(unmatched, by_pattern[i].first));
  }
  const Json* additional = json_find(schema, "additionalProperties");
  WEFT_TRY(add(std::move(unmatched), additional == nullptr ? Json(true) : *additional,
               path + "/additionalProperties"));
  return out;
}

Result<Expr> SchemaReader::object_of(const Json& schema, const std::string& path) {
  std::set<std::string> names;
  WEFT_ASSIGN(std::vector<Property> properties, properties_of(schema, path, names));
  WEFT_ASSIGN(const std::int64_t min, count(schema, "minProperties", 0, path));
  WEFT_ASSIGN(const std::int64_t max, count(schema, "maxProperties", -1, path));
  WEFT_TRY(check_range(min, max, "Properties", path));
  const auto declared = static_cast<std::int64_t>(properties.size());
  const auto must = std::ranges::count_if(properties, [](const auto& p) { return p.required; });
  // A schema that names its properties and does not ask for more gets no more.
  const bool extras = schema.contains("patternProperties") || names.empty() || min > declared ||
                      (schema.contains("additionalProperties"));
  std::vector<Expr> extra;
  if (extras) {
    WEFT_ASSIGN(extra, extra_members(schema, path, names));
  }
  if (!extra.empty() && min > must + 1) {
    return unsupported(path + "/minProperties",
                       "with properties that are not named, since keys could repeat; name them, "
                       "or set additionalProperties to false");
  }
  if (extra.empty() && min > declared) {
    return invalid(path + "/minProperties",
                   fmt::format("asks for {} properties, and only {} can be there", min, declared));
  }
  // Nodes by (properties looked at, members written, up to what is worth counting).
  const std::int64_t counted = std::max<std::int64_t>({1, min, std::min(max, declared + 1)});
  const std::int64_t top = max >= 0 ? std::max(counted, std::min(max, kMaxRepeat)) : counted;
  if ((declared + 1) * (top + 1) > kMaxNodes) {
    return fail(
        ErrorCode::kResourceExhausted,
        "schema {}: {} properties with minProperties or maxProperties are too many to count", path,
        declared);
  }
  Graph graph;
  const int close = graph.node();
  graph.arc(close, sequence({json_space(), text_of("}")}), 1);
  const auto width = static_cast<int>(top + 1);
  const int base = graph.node();
  for (std::int64_t i = 1; i < (declared + 1) * width; ++i) graph.node();
  const auto node = [&](std::int64_t i, std::int64_t c) {
    return base + static_cast<int>(i) * width + static_cast<int>(std::min(c, top));
  };
  const auto joined = [](std::int64_t c, const Expr& label) {
    return c > 0 ? sequence({text_of(","), json_space(), label}) : sequence({json_space(), label});
  };
  graph.arc(0, text_of("{"), node(0, 0));
  for (std::int64_t c = 0; c <= top; ++c) {
    const bool room = max < 0 || c < max;
    for (std::int64_t i = 0; i < declared; ++i) {
      if (c > i) continue;
      const Property& property = properties[static_cast<std::size_t>(i)];
      if (room) graph.arc(node(i, c), joined(c, property.label), node(i + 1, c + 1));
      if (!property.required) graph.arc(node(i, c), {}, node(i + 1, c));
    }
    if (c >= min) graph.arc(node(declared, c), {}, close);
    if (!room) continue;
    for (const Expr& label : extra)
      graph.arc(node(declared, c), joined(c, label), node(declared, c + 1));
  }
  return graph.take();
}

}  // namespace

Result<Grammar> read_json_schema(const Json& schema) { return SchemaReader(schema).run(); }

Grammar any_json(bool only_objects) {
  Grammar out;
  add_free_rules(out);
  out.root = only_objects ? kObjectRule : kValueRule;
  return out;
}

}  // namespace weft::serve::constrain
