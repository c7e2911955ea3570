// Arithmetic and comparison as Python does them, and the binding of arguments.
#include <algorithm>
#include <cmath>

#include "weft/model/jinja_interpreter.h"
#include "weft/model/jinja_text.h"

namespace weft::model::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void refuse(Operator op, const Value& a, const Value& b) {
  if (a.is_undefined()) raise("{}", a.hint());
  if (b.is_undefined()) raise("{}", b.hint());
  raise("unsupported operands for {}: {} and {}", kSymbols[static_cast<int>(op)], type_name(a),
        type_name(b));
}

[[noreturn]] void overflow() { raise("an integer grows beyond 127 bits"); }

Value power(Int base, Int exponent) {
  if (exponent < 0)
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  Int result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return Value::integer(result);
}

Value integer_operation(Operator op, Int a, Int b) {
  Int out = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &out)) overflow();
      return Value::integer(out);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &out)) overflow();
      return Value::integer(out);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &out)) overflow();
      return Value::integer(out);
    case Operator::kPower:
      return power(a, b);
    default:
      break;
  }
  if (b == 0) raise("division by zero");
  if (op == Operator::kDivide) return Value::real(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {  // the one quotient that can overflow
    if (op == Operator::kModulo) return Value::integer(0);
    if (__builtin_sub_overflow(Int{0}, a, &out)) overflow();
    return Value::integer(out);
  }
  Int quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    --quotient;
  }
  return Value::integer(op == Operator::kModulo ? rest : quotient);
}

Value real_operation(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSubtract:
      return Value::real(a - b);
    case Operator::kMultiply:
      return Value::real(a * b);
    case Operator::kPower:
      return Value::real(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) raise("division by zero");
  if (op == Operator::kDivide) return Value::real(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == Operator::kModulo) return Value::real(rest);
  return Value::real(std::floor((a - rest) / b + 0.5));
}

Value repeat(const Value& value, Int count, Budget& budget) {
  if (count < 0) count = 0;
  const Int unit = value.is_string() ? static_cast<Int>(value.text().size())
                                     : static_cast<Int>(value.seq().items.size() * sizeof(Value));
  const Int total = unit == 0 ? 0 : count > (Int{1} << 40) ? Int{1} << 60 : unit * count;
  budget.take_bytes(static_cast<std::int64_t>(total) + 64);
  if (value.is_string()) {
    std::string out;
    if (unit != 0) {
      for (Int i = 0; i < count; ++i) out += value.text();
    }
    return Value::string(std::move(out));
  }
  std::vector<Value> items;
  if (unit != 0) {
    for (Int i = 0; i < count; ++i) {
      items.insert(items.end(), value.seq().items.begin(), value.seq().items.end());
    }
  }
  return Value::sequence(value.kind(), std::move(items));
}

}  // namespace

Value binary_operation(Operator op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return integer_operation(op, a.as_int(), b.as_int());
    return real_operation(op, a.as_double(), b.as_double());
  }
  const auto is_list = [](const Value& v) { return v.is(Kind::kList) || v.is(Kind::kTuple); };
  if (op == Operator::kAdd && a.is_string() && b.is_string()) {
    budget.take_bytes(static_cast<std::int64_t>(a.text().size() + b.text().size()) + 64);
    return Value::string(a.text() + b.text());
  }
  if (op == Operator::kAdd && is_list(a) && a.kind() == b.kind()) {
    auto items = a.seq().items;
    items.insert(items.end(), b.seq().items.begin(), b.seq().items.end());
    budget.take_bytes(static_cast<std::int64_t>(items.size() * sizeof(Value)) + 128);
    return Value::sequence(a.kind(), std::move(items));
  }
  if (op == Operator::kMultiply) {
    if ((a.is_string() || is_list(a)) && b.is_integral()) return repeat(a, b.as_int(), budget);
    if ((b.is_string() || is_list(b)) && a.is_integral()) return repeat(b, a.as_int(), budget);
  }
  if (op == Operator::kModulo && a.is_string()) {
    return Value::string(percent_format(a.text(), b, budget));
  }
  refuse(op, a, b);
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  budget.take_steps(weight(container));
  if (container.is_string()) {
    if (!item.is_string()) raise("'in' a string needs a string, not a {}", type_name(item));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(Kind::kDict)) {
    require_hashable(item);
    return container.entries().find(item) != nullptr;
  }
  const auto items = iterate(container, budget);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& each) { return equal(each, item); });
}

bool compare_values(Operator op, const Value& a, const Value& b, Budget& budget) {
  if (op == Operator::kIn) return contains(b, a, budget);
  if (op == Operator::kNotIn) return !contains(b, a, budget);
  budget.take_steps(std::min(weight(a), weight(b)));
  switch (op) {
    case Operator::kEqual:
      return equal(a, b);
    case Operator::kNotEqual:
      return !equal(a, b);
    case Operator::kLess:
      return compare(a, b, "<") < 0;
    case Operator::kLessEqual:
      return compare(a, b, "<=") <= 0;
    case Operator::kGreater:
      return compare(a, b, ">") > 0;
    case Operator::kGreaterEqual:
      return compare(a, b, ">=") >= 0;
    default:
      break;
  }
  raise("not a comparison");
}

std::int64_t to_index(const Value& value, std::string_view what) {
  if (value.is_undefined()) raise("{}", value.hint());
  if (!value.is_integral()) raise("{} needs an integer, not a {}", what, type_name(value));
  constexpr Int kLimit = Int{1} << 62;
  return static_cast<std::int64_t>(std::clamp(value.as_int(), -kLimit, kLimit));
}

Parameters::Parameters(std::string_view function, Arguments arguments,
                       std::initializer_list<const char*> names)
    : function_(function), names_(names), values_(names.size()), given_(names.size(), false) {
  if (arguments.positional.size() > names_.size()) {
    raise("{}() takes at most {} arguments", function_, names_.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = std::move(arguments.positional[i]);
    given_[i] = true;
  }
  for (auto& [name, value] : arguments.named) {
    const auto found =
        std::find_if(names_.begin(), names_.end(), [&](const char* have) { return name == have; });
    if (found == names_.end()) raise("{}() takes no argument '{}'", function_, name);
    const auto index = static_cast<std::size_t>(found - names_.begin());
    if (given_[index]) raise("{}() got '{}' twice", function_, name);
    values_[index] = std::move(value);
    given_[index] = true;
  }
}

const Value& Parameters::require(std::size_t index) const {
  if (!given_[index]) raise("{}() needs the argument '{}'", function_, names_[index]);
  return values_[index];
}

bool Parameters::flag(std::size_t index, bool fallback) const {
  return given_[index] ? truthy(values_[index]) : fallback;
}

std::int64_t Parameters::integer(std::size_t index, std::int64_t fallback) const {
  if (!given_[index]) return fallback;
  return to_index(values_[index], fmt::format("{}({})", function_, names_[index]));
}

std::string Parameters::string(std::size_t index, std::string fallback) const {
  if (!given_[index]) return fallback;
  const Value& value = values_[index];
  if (value.is_undefined()) raise("{}", value.hint());
  if (!value.is_string()) {
    raise("{}({}) needs a string, not a {}", function_, names_[index], type_name(value));
  }
  return value.text();
}

}  // namespace weft::model::jinja
