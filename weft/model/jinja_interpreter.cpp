#include "weft/model/jinja_interpreter.h"

#include <algorithm>

#include "weft/model/jinja_text.h"

namespace weft::model::jinja {
namespace {

constexpr int kMaxDepth = 600;  // of nested evaluations, macros included

}  // namespace

const Value* Scope::find(int name_id) const {
  for (const auto& [id, value] : variables) {
    if (id == name_id) return &value;
  }
  return parent ? parent->find(name_id) : nullptr;
}

void Scope::set(int name_id, Value value) {
  for (auto& [id, have] : variables) {
    if (id == name_id) {
      have = std::move(value);
      return;
    }
  }
  variables.emplace_back(name_id, std::move(value));
}

Interpreter::Enter::Enter(Interpreter& interpreter) : interpreter(interpreter) {
  interpreter.budget_.take_steps(1);
  if (++interpreter.depth_ > kMaxDepth) {
    --interpreter.depth_;
    throw Failure{ErrorCode::kResourceExhausted, "the template recurses too deeply"};
  }
}

Interpreter::Interpreter(const Program& program, Budget& budget)
    : program_(program), budget_(budget), globals_(make_globals()) {}

Interpreter::~Interpreter() {
  for (auto& scope : macro_scopes_) scope->variables.clear();
  for (auto& attributes : namespaces_) *attributes = Dict{};
}

std::string Interpreter::run(const std::map<std::string, Value>& variables) {
  scope_ = std::make_shared<Scope>();
  for (const auto& [name, id] : program_.ids) {
    if (name == "loop") loop_id_ = id;
    if (const auto found = variables.find(name); found != variables.end())
      scope_->set(id, found->second);
  }
  std::string out;
  out_ = &out;
  try {
    execute(program_.body);
  } catch (Failure& failure) {
    if (failure.offset == Failure::kNoOffset) failure.offset = at_;
    throw;
  }
  return out;
}

void Interpreter::write(std::string_view text) {
  budget_.take_steps(static_cast<std::int64_t>(text.size() / 64));
  if ((budget_.output_bytes -= static_cast<std::int64_t>(text.size())) < 0) {
    throw Failure{ErrorCode::kResourceExhausted, "the template writes more than 64 MiB"};
  }
  *out_ += text;
}

Value Interpreter::text(std::string text) {
  budget_.take_bytes(static_cast<std::int64_t>(text.size()) + 64);
  return Value::string(std::move(text));
}

Value Interpreter::list(std::vector<Value> items, Kind kind) {
  budget_.take_bytes(static_cast<std::int64_t>(items.size() * sizeof(Value)) + 128);
  return Value::sequence(kind, std::move(items));
}

Value Interpreter::make_namespace(Dict attributes) {
  for (const auto& [key, value] : attributes.items) {
    if (key.is_string() && key.text().starts_with('_')) {
      raise("namespaces cannot have attributes that begin with an underscore ('{}')", key.text());
    }
  }
  budget_.take_bytes(256);
  auto shared = std::make_shared<Dict>(std::move(attributes));
  namespaces_.push_back(shared);
  return Value::object(Kind::kNamespace, shared);
}

// ---- expressions

Value Interpreter::evaluate_name(int name_id) {
  if (const Value* found = scope_->find(name_id)) return *found;
  const std::string& name = program_.names[static_cast<std::size_t>(name_id)];
  if (const auto found = globals_.find(name); found != globals_.end()) return found->second;
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::evaluate(const Expression& e) {
  Enter enter(*this);
  switch (e.kind) {
    case ExpressionKind::kConstant:
      return e.constant;
    case ExpressionKind::kName:
      return evaluate_name(e.name_id);
    case ExpressionKind::kCaptured:
      return captured_value_;
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: {
      std::vector<Value> items;
      items.reserve(e.items.size());
      for (const auto& item : e.items) items.push_back(evaluate(*item));
      return list(std::move(items), e.kind == ExpressionKind::kList ? Kind::kList : Kind::kTuple);
    }
    case ExpressionKind::kDict:
      return evaluate_dict(e);
    case ExpressionKind::kAttribute: {
      const Value object = evaluate(*e.items[0]);
      at_ = e.offset;
      return get_attribute(object, e.name);
    }
    case ExpressionKind::kItem:
      return evaluate_item(e);
    case ExpressionKind::kCall:
      return evaluate_call(e);
    case ExpressionKind::kFilter:
      return evaluate_filter(e);
    case ExpressionKind::kTest:
      return evaluate_test(e);
    case ExpressionKind::kNot:
      return Value::boolean(!truthy(evaluate(*e.items[0])));
    case ExpressionKind::kAnd: {
      Value left = evaluate(*e.items[0]);
      return truthy(left) ? evaluate(*e.items[1]) : left;
    }
    case ExpressionKind::kOr: {
      Value left = evaluate(*e.items[0]);
      return truthy(left) ? left : evaluate(*e.items[1]);
    }
    case ExpressionKind::kCompare:
      return evaluate_compare(e);
    case ExpressionKind::kBinary: {
      const Value left = evaluate(*e.items[0]);
      const Value right = evaluate(*e.items[1]);
      at_ = e.offset;
      return binary_operation(e.op, left, right, budget_);
    }
    case ExpressionKind::kNegate:
    case ExpressionKind::kPositive: {
      const Value value = evaluate(*e.items[0]);
      at_ = e.offset;
      if (value.is_undefined()) raise("{}", value.hint());
      if (!value.is_number()) raise("a {} has no sign", type_name(value));
      const bool negate = e.kind == ExpressionKind::kNegate;
      if (value.is(Kind::kFloat))
        return Value::real(negate ? -value.as_double() : value.as_double());
      return negate ? binary_operation(Operator::kSubtract, Value::integer(0), value, budget_)
                    : Value::integer(value.as_int());
    }
    case ExpressionKind::kConcat:
      return evaluate_concat(e);
    case ExpressionKind::kConditional:
      return evaluate_conditional(e);
    case ExpressionKind::kSlice:
      raise("a slice is only allowed between brackets");
    case ExpressionKind::kNamespaceAttribute:
      break;
  }
  raise("this expression cannot be evaluated");
}

Value Interpreter::evaluate_conditional(const Expression& e) {
  if (truthy(evaluate(*e.items[0]))) return evaluate(*e.items[1]);
  if (e.items[2] != nullptr) return evaluate(*e.items[2]);
  return Value::undefined("the inline if is false and has no else");
}

Value Interpreter::evaluate_dict(const Expression& e) {
  Dict out;
  for (std::size_t i = 0; i + 1 < e.items.size(); i += 2) {
    Value key = evaluate(*e.items[i]);
    require_hashable(key);
    out.set(std::move(key), evaluate(*e.items[i + 1]));
  }
  budget_.take_bytes(static_cast<std::int64_t>(e.items.size() * sizeof(Value)) + 256);
  return Value::dict(std::move(out));
}

Value Interpreter::evaluate_concat(const Expression& e) {
  std::string out;
  for (const auto& item : e.items) {
    const Value value = evaluate(*item);
    budget_.take_steps(weight(value));
    out += to_string(value);
  }
  return text(std::move(out));
}

Value Interpreter::evaluate_item(const Expression& e) {
  const Value object = evaluate(*e.items[0]);
  const Expression& key = *e.items[1];
  if (key.kind != ExpressionKind::kSlice) {
    const Value index = evaluate(key);
    at_ = e.offset;
    return get_item(object, index);
  }
  std::optional<std::int64_t> bounds[3];
  bool numbers = true;
  for (std::size_t i = 0; i < 3; ++i) {
    if (key.items[i] == nullptr) continue;
    const Value bound = evaluate(*key.items[i]);
    if (bound.is(Kind::kNone)) continue;
    if (!bound.is_integral()) {
      numbers = false;  // TypeError in Python, which Jinja turns into an undefined value
    } else {
      bounds[i] = to_index(bound, "a slice");
    }
  }
  at_ = e.offset;
  if (object.is_undefined()) raise("{}", object.hint());
  const std::int64_t step = bounds[2].value_or(1);
  if (step == 0) raise("the step of a slice cannot be 0");
  if (numbers && object.is_string()) {
    budget_.take_steps(weight(object));
    return text(slice_text(object.text(), bounds[0], bounds[1], step));
  }
  if (numbers && (object.is(Kind::kList) || object.is(Kind::kTuple))) {
    const auto& items = object.seq().items;
    const auto range =
        resolve_slice(bounds[0], bounds[1], step, static_cast<std::int64_t>(items.size()));
    std::vector<Value> out;
    for (Int i = range.start; step > 0 ? i < range.stop : i > range.stop; i += step) {
      out.push_back(items[static_cast<std::size_t>(i)]);
    }
    return list(std::move(out), object.kind());
  }
  return Value::undefined(fmt::format("a {} cannot be sliced", type_name(object)));
}

Arguments Interpreter::arguments(const Expression& call, std::size_t first) {
  Arguments out;
  for (std::size_t i = first; i < call.items.size(); ++i)
    out.positional.push_back(evaluate(*call.items[i]));
  for (const auto& [name, value] : call.named) out.named.emplace_back(name, evaluate(*value));
  if (call.star != nullptr) {
    for (auto& value : iterate(evaluate(*call.star), budget_))
      out.positional.push_back(std::move(value));
  }
  if (call.star_star != nullptr) {
    const Value more = evaluate(*call.star_star);
    if (!more.is(Kind::kDict))
      raise("the argument after ** must be a dict, not a {}", type_name(more));
    for (const auto& [key, value] : more.entries().items) {
      if (!key.is_string()) raise("keywords must be strings");
      out.named.emplace_back(key.text(), value);
    }
  }
  return out;
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) raise("{}", callee.hint());
  if (callee.is(Kind::kLoop)) {
    const auto& recurse = callee.loop().recurse;
    if (!recurse) raise("the loop must be marked 'recursive' to be called");
    if (arguments.positional.size() != 1) raise("loop() takes one argument");
    return recurse(*this, arguments.positional[0]);
  }
  if (!callee.is(Kind::kFunction)) raise("a {} cannot be called", type_name(callee));
  // The function may be the last holder of itself while it runs.
  const Value keep = callee;
  return keep.function().call(*this, std::move(arguments));
}

Value Interpreter::evaluate_call(const Expression& e) {
  const Value callee = evaluate(*e.items[0]);
  Arguments given = arguments(e, 1);
  at_ = e.offset;
  return call(callee, std::move(given));
}

Value Interpreter::evaluate_filter(const Expression& e) {
  const Value input = evaluate(*e.items[0]);
  Arguments given = arguments(e, 1);
  at_ = e.offset;
  return apply_filter(e.name, input, std::move(given));
}

Value Interpreter::evaluate_test(const Expression& e) {
  const Value value = evaluate(*e.items[0]);
  Arguments given = arguments(e, 1);
  at_ = e.offset;
  return Value::boolean(apply_test(e.name, value, std::move(given)));
}

Value Interpreter::evaluate_compare(const Expression& e) {
  Value left = evaluate(*e.items[0]);
  for (std::size_t i = 0; i < e.comparisons.size(); ++i) {
    Value right = evaluate(*e.items[i + 1]);
    at_ = e.offset;
    if (!compare_values(e.comparisons[i], left, right, budget_)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::get_attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) raise("{}", object.hint());
  if (object.is(Kind::kLoop)) return loop_attribute(object, name);
  if (object.is(Kind::kNamespace)) {
    if (const Value* found = object.entries().find(std::string_view(name))) return *found;
    return Value::undefined(fmt::format("the namespace has no attribute '{}'", name));
  }
  if (name.starts_with("__")) {
    return Value::undefined(
        fmt::format("access to attribute '{}' of a {} is unsafe", name, type_name(object)));
  }
  if (object.is(Kind::kTuple) && object.seq().type_name == "group") {
    if (name == "grouper") return object.seq().items[0];
    if (name == "list") return object.seq().items[1];
  }
  Value method;
  if (find_method(object, name, method)) return method;
  if (object.is(Kind::kDict)) {
    if (const Value* found = object.entries().find(std::string_view(name))) return *found;
  }
  if (object.is(Kind::kFunction) && name == "name") return text(object.function().name);
  return Value::undefined(
      fmt::format("'{} object' has no attribute '{}'", type_name(object), name));
}

Value Interpreter::get_item(const Value& object, const Value& key) {
  if (object.is_undefined()) raise("{}", object.hint());
  const auto missing = [&] {
    return Value::undefined(
        fmt::format("'{} object' has no element {}", type_name(object),
                    key.is_sequence() || key.is(Kind::kDict) ? "of that key" : repr(key)));
  };
  if (object.is(Kind::kDict)) {
    if (key.is(Kind::kList) || key.is(Kind::kDict)) return missing();
    if (const Value* found = object.entries().find(key)) return *found;
  } else if (key.is_integral()) {
    Int index = key.as_int();
    if (object.is(Kind::kList) || object.is(Kind::kTuple)) {
      const auto& items = object.seq().items;
      if (index < 0) index += static_cast<Int>(items.size());
      if (index < 0 || index >= static_cast<Int>(items.size())) return missing();
      return items[static_cast<std::size_t>(index)];
    }
    if (object.is_string()) {
      if (index > (Int{1} << 40) || index < -(Int{1} << 40)) return missing();
      const auto at = static_cast<std::int64_t>(index);
      budget_.take_steps(weight(object));
      const std::string& all = object.text();
      std::string one = slice_text(all, at, at == -1 ? std::nullopt : std::optional(at + 1), 1);
      // Below -length a slice starts at 0; an index is out of range there.
      if (one.empty() || (at < 0 && -at > count_code_points(all))) return missing();
      return text(std::move(one));
    }
  }
  if (key.is_string()) {
    if (object.is(Kind::kDict)) {
      Value method;
      return find_method(object, key.text(), method) ? method : missing();
    }
    return get_attribute(object, key.text());
  }
  return missing();
}

}  // namespace weft::model::jinja
