// What may stand after "is".
#include <unordered_map>

#include "weft/model/jinja_filters.h"
#include "weft/model/jinja_interpreter.h"
#include "weft/model/jinja_text.h"

namespace weft::model::jinja {
namespace {

using Test = bool (*)(Interpreter&, const Value&, const Arguments&);

const Value& other(const Arguments& arguments) {
  if (arguments.positional.size() != 1) raise("the test needs one argument");
  return arguments.positional[0];
}

template <Operator kOperator>
bool compares(Interpreter& in, const Value& value, const Arguments& arguments) {
  return compare_values(kOperator, value, other(arguments), in.budget());
}

template <Kind kKind>
bool is_kind(Interpreter&, const Value& value, const Arguments&) {
  return value.is(kKind);
}

bool is_iterable(Interpreter&, const Value& value, const Arguments&) {
  return value.is_undefined() || value.is_string() || value.is_sequence() ||
         value.is(Kind::kDict) || value.is(Kind::kLoop);
}

bool is_sequence(Interpreter&, const Value& value, const Arguments&) {
  return value.is_undefined() || value.is_string() || value.is(Kind::kList) ||
         value.is(Kind::kTuple) || value.is(Kind::kDict);
}

Int whole(const Value& value) {
  if (value.is_undefined()) raise("{}", value.hint());
  if (!value.is_integral()) raise("the test needs an integer, not a {}", type_name(value));
  return value.as_int();
}

Int modulo(const Value& value, Int by) {
  if (by == 0) raise("division by zero");
  if (by == -1) return 0;
  return whole(value) % by;
}

const std::unordered_map<std::string, Test>& tests() {
  static const std::unordered_map<std::string, Test> kTests = {
      {"defined", [](Interpreter&, const Value& v, const Arguments&) { return !v.is_undefined(); }},
      {"undefined", is_kind<Kind::kUndefined>},
      {"none", is_kind<Kind::kNone>},
      {"boolean", is_kind<Kind::kBool>},
      {"true", [](Interpreter&, const Value& v,
                  const Arguments&) { return v.is(Kind::kBool) && truthy(v); }},
      {"false", [](Interpreter&, const Value& v,
                   const Arguments&) { return v.is(Kind::kBool) && !truthy(v); }},
      {"integer", is_kind<Kind::kInt>},
      {"float", is_kind<Kind::kFloat>},
      {"number", [](Interpreter&, const Value& v, const Arguments&) { return v.is_number(); }},
      {"string", is_kind<Kind::kString>},
      {"mapping", is_kind<Kind::kDict>},
      {"iterable", is_iterable},
      {"sequence", is_sequence},
      {"callable",
       [](Interpreter&, const Value& v, const Arguments&) {
         return v.is(Kind::kFunction) || v.is(Kind::kLoop) || v.is_undefined();
       }},
      {"escaped", [](Interpreter&, const Value&, const Arguments&) { return false; }},
      {"lower",
       [](Interpreter&, const Value& v, const Arguments&) { return has_only_lower(to_string(v)); }},
      {"upper",
       [](Interpreter&, const Value& v, const Arguments&) { return has_only_upper(to_string(v)); }},
      {"odd", [](Interpreter&, const Value& v, const Arguments&) { return modulo(v, 2) != 0; }},
      {"even", [](Interpreter&, const Value& v, const Arguments&) { return modulo(v, 2) == 0; }},
      {"divisibleby", [](Interpreter&, const Value& v,
                         const Arguments& a) { return modulo(v, whole(other(a))) == 0; }},
      {"sameas",
       [](Interpreter&, const Value& v, const Arguments& a) {
         const Value& o = other(a);
         if (v.kind() != o.kind()) return false;
         return v.identity() != nullptr && !v.is_string() ? v.identity() == o.identity()
                                                          : equal(v, o);
       }},
      {"in", compares<Operator::kIn>},
      {"==", compares<Operator::kEqual>},
      {"eq", compares<Operator::kEqual>},
      {"equalto", compares<Operator::kEqual>},
      {"!=", compares<Operator::kNotEqual>},
      {"ne", compares<Operator::kNotEqual>},
      {"<", compares<Operator::kLess>},
      {"lt", compares<Operator::kLess>},
      {"lessthan", compares<Operator::kLess>},
      {"<=", compares<Operator::kLessEqual>},
      {"le", compares<Operator::kLessEqual>},
      {">", compares<Operator::kGreater>},
      {"gt", compares<Operator::kGreater>},
      {"greaterthan", compares<Operator::kGreater>},
      {">=", compares<Operator::kGreaterEqual>},
      {"ge", compares<Operator::kGreaterEqual>},
      {"filter", [](Interpreter&, const Value& v,
                    const Arguments&) { return v.is_string() && is_filter(v.text()); }},
      {"test", [](Interpreter&, const Value& v,
                  const Arguments&) { return v.is_string() && is_test(v.text()); }},
  };
  return kTests;
}

}  // namespace

bool is_test(const std::string& name) { return tests().contains(name); }

bool Interpreter::apply_test(const std::string& name, const Value& value, Arguments arguments) {
  budget_.take_steps(1 + (value.is_string() ? weight(value) : 0));
  const auto found = tests().find(name);
  if (found == tests().end()) raise_unsupported("no test named '{}'", name);
  if (!arguments.named.empty()) raise("the test '{}' takes no named arguments", name);
  return found->second(*this, value, arguments);
}

}  // namespace weft::model::jinja
