#include "weft/model/jinja_interpreter.h"

#include <algorithm>
#include <ctime>

#include "weft/model/jinja_text.h"

namespace weft::model::jinja {
namespace {

constexpr int kMaxDepth = 600;              // of nested evaluations, macros included
constexpr std::int64_t kMaxRange = 100000;  // as in Jinja2's sandbox

Value function(std::string name, std::function<Value(Interpreter&, Arguments)> call) {
  return Value::object(Kind::kFunction,
                       std::make_shared<Function>(Function{std::move(name), std::move(call)}));
}

Value make_range(Interpreter& interpreter, Arguments arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) {
    raise("range() takes one to three numbers");
  }
  std::int64_t bounds[3] = {0, 0, 1};
  if (given.size() == 1) {
    bounds[1] = to_index(given[0], "range()");
  } else {
    for (std::size_t i = 0; i < given.size(); ++i) bounds[i] = to_index(given[i], "range()");
  }
  const Int start = bounds[0], stop = bounds[1], step = bounds[2];
  if (step == 0) raise("range() needs a step that is not 0");
  const Int count = step > 0 ? (stop > start ? (stop - start + step - 1) / step : 0)
                             : (start > stop ? (start - stop - step - 1) / -step : 0);
  if (count > kMaxRange) raise("range() of more than 100,000 numbers");
  std::vector<Value> items;
  for (Int i = 0; i < count; ++i) items.push_back(Value::integer(start + i * step));
  return interpreter.list(std::move(items));
}

Dict make_dict(Interpreter& interpreter, Arguments arguments) {
  Dict out;
  if (arguments.positional.size() > 1) raise("dict() takes at most one positional argument");
  for (const auto& source : arguments.positional) {
    if (source.is(Kind::kDict)) {
      out = source.entries();
      continue;
    }
    for (const auto& pair : iterate(source, interpreter.budget())) {
      auto items = iterate(pair, interpreter.budget());
      if (items.size() != 2) raise("dict() needs pairs");
      require_hashable(items[0]);
      out.set(items[0], items[1]);
    }
  }
  for (auto& [name, value] : arguments.named) out.set(Value::string(name), std::move(value));
  interpreter.budget().take_bytes(static_cast<std::int64_t>(out.items.size() * 2 * sizeof(Value)));
  return out;
}

Value strftime_now(Interpreter& interpreter, Arguments arguments) {
  Parameters parameters("strftime_now", std::move(arguments), {"format"});
  const std::string format = parameters.string(0, "");
  if (format.size() > 256) raise("strftime_now() takes a format of at most 256 characters");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[8192];
  const std::size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  return interpreter.text(std::string(buffer, size));
}

Value raise_exception(Interpreter&, Arguments arguments) {
  Parameters parameters("raise_exception", std::move(arguments), {"message"});
  // The template speaks to the caller: no place in the source is added.
  throw Failure{ErrorCode::kInvalidArgument, to_string(parameters.require(0)), Failure::kNoOffset,
                true};
}

Value loop_attribute(const Value& value, const std::string& name) {
  auto& loop = value.loop();
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto size = static_cast<std::int64_t>(loop.items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(size - index);
  if (name == "revindex0") return Value::integer(size - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == size);
  if (name == "length") return Value::integer(size);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") {
    return index == 0 ? Value::undefined("there is no previous item") : loop.items[loop.index - 1];
  }
  if (name == "nextitem") {
    return index + 1 == size ? Value::undefined("there is no next item")
                             : loop.items[loop.index + 1];
  }
  if (name == "cycle") {
    return function("cycle", [value](Interpreter&, Arguments arguments) {
      if (arguments.positional.empty()) raise("no items for cycling given");
      return arguments.positional[value.loop().index % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    return function("changed", [value](Interpreter& interpreter, Arguments arguments) {
      auto& loop = value.loop();
      Value now = interpreter.list(std::move(arguments.positional), Kind::kTuple);
      const bool changed = !loop.has_changed || !equal(loop.last_changed, now);
      loop.has_changed = true;
      loop.last_changed = std::move(now);
      return Value::boolean(changed);
    });
  }
  return Value::undefined(fmt::format("'loop' has no attribute '{}'", name));
}

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

struct Interpreter::Enter {
  explicit Enter(Interpreter& interpreter) : interpreter(interpreter) {
    interpreter.budget_.take_steps(1);
    if (++interpreter.depth_ > kMaxDepth) {
      --interpreter.depth_;
      throw Failure{ErrorCode::kResourceExhausted, "the template recurses too deeply"};
    }
  }
  ~Enter() { --interpreter.depth_; }
  Interpreter& interpreter;
};

Interpreter::Interpreter(const Program& program, Budget& budget)
    : program_(program), budget_(budget) {
  globals_["range"] = function("range", make_range);
  globals_["dict"] = function("dict", [](Interpreter& interpreter, Arguments arguments) {
    return Value::dict(make_dict(interpreter, std::move(arguments)));
  });
  globals_["namespace"] = function("namespace", [](Interpreter& interpreter, Arguments arguments) {
    return interpreter.make_namespace(make_dict(interpreter, std::move(arguments)));
  });
  globals_["raise_exception"] = function("raise_exception", raise_exception);
  globals_["strftime_now"] = function("strftime_now", strftime_now);
}

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
      return Value::integer(negate ? -value.as_int() : value.as_int());
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

// ---- statements

Interpreter::Flow Interpreter::execute(const Body& body) {
  Enter enter(*this);
  for (const auto& statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Statement& s) {
  budget_.take_steps(1);
  switch (s.kind) {
    case StatementKind::kData:
      write(s.text);
      break;
    case StatementKind::kOutput: {
      const Value value = evaluate(*s.value);
      at_ = s.offset;
      budget_.take_steps(weight(value));
      if (value.is_string()) {
        write(value.text());
      } else {
        write(to_string(value));
      }
      break;
    }
    case StatementKind::kFor:
      execute_for(s);
      break;
    case StatementKind::kIf:
      return execute_if(s);
    case StatementKind::kSet:
      assign(*s.target, evaluate(*s.value));
      break;
    case StatementKind::kSetBlock:
    case StatementKind::kFilterBlock:
    case StatementKind::kScope:
      execute_captured(s);
      break;
    case StatementKind::kMacro:
      scope_->set(s.name_id, make_macro(s));
      break;
    case StatementKind::kCallBlock:
      execute_call_block(s);
      break;
    case StatementKind::kWith: {
      auto inner = std::make_shared<Scope>();
      inner->parent = scope_;
      for (const auto& [target, expression] : s.bindings) {
        Value value = evaluate(*expression);
        std::swap(scope_, inner);
        assign(*target, std::move(value));
        std::swap(scope_, inner);
      }
      const auto outer = std::exchange(scope_, inner);
      const Flow flow = execute(s.body);
      scope_ = outer;
      return flow;
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_if(const Statement& s) {
  for (const auto& [condition, body] : s.branches) {
    if (truthy(evaluate(*condition))) return execute(body);
  }
  return execute(s.otherwise);
}

void Interpreter::execute_for(const Statement& s) {
  const Value iterable = evaluate(*s.value);
  at_ = s.offset;
  run_loop(s, iterate(iterable, budget_), 0);
}

void Interpreter::run_loop(const Statement& s, std::vector<Value> items, std::int64_t depth) {
  Enter enter(*this);
  const auto outer = scope_;
  const auto inside = [&](auto&& work) {
    scope_ = std::make_shared<Scope>();
    scope_->parent = outer;
    work();
    scope_ = outer;
  };
  if (s.test != nullptr) {
    std::vector<Value> kept;
    for (auto& item : items) {
      inside([&] {
        assign(*s.target, item);
        if (truthy(evaluate(*s.test))) kept.push_back(std::move(item));
      });
    }
    items = std::move(kept);
  }
  auto loop = std::make_shared<Loop>();
  loop->items = std::move(items);
  loop->depth0 = depth;
  if (s.recursive) {
    loop->recurse = [&s, outer, depth](Interpreter& self, const Value& iterable) {
      std::string buffer;
      std::string* const out = std::exchange(self.out_, &buffer);
      const auto scope = std::exchange(self.scope_, outer);
      self.run_loop(s, iterate(iterable, self.budget_), depth + 1);
      self.scope_ = scope;
      self.out_ = out;
      return self.text(std::move(buffer));
    };
  }
  // As Jinja2's compiled loops: an iteration left by break or continue does not count.
  bool completed = false;
  const Value loop_value = Value::object(Kind::kLoop, loop);
  for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
    Flow flow = Flow::kNext;
    inside([&] {
      if (loop_id_ >= 0) scope_->set(loop_id_, loop_value);
      assign(*s.target, loop->items[loop->index]);
      flow = execute(s.body);
    });
    if (flow == Flow::kNext) completed = true;
    if (flow == Flow::kBreak) break;
  }
  loop->recurse = nullptr;
  if (!completed && !s.otherwise.empty()) inside([&] { execute(s.otherwise); });
}

std::string Interpreter::capture(const Body& body, const std::shared_ptr<Scope>& scope) {
  std::string buffer;
  std::string* const out = std::exchange(out_, &buffer);
  const auto outer = std::exchange(scope_, scope);
  execute(body);
  scope_ = outer;
  out_ = out;
  return buffer;
}

void Interpreter::execute_captured(const Statement& s) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope_;
  std::string buffer = capture(s.body, inner);
  if (s.kind == StatementKind::kScope) return write(buffer);
  captured_value_ = text(std::move(buffer));
  Value value = evaluate(*s.value);
  captured_value_ = Value();
  if (s.kind == StatementKind::kSetBlock) return assign(*s.target, std::move(value));
  budget_.take_steps(weight(value));
  write(to_string(value));
}

Value Interpreter::make_macro(const Statement& s) {
  budget_.take_bytes(256);
  macro_scopes_.push_back(scope_);
  // The weak reference is alive as long as this interpreter, which runs the macro.
  std::weak_ptr<Scope> weak = scope_;
  return function(s.text, [&s, weak](Interpreter& self, Arguments arguments) {
    return self.run_macro(s, weak.lock(), std::move(arguments));
  });
}

Value Interpreter::run_macro(const Statement& s, const std::shared_ptr<Scope>& defined_in,
                             Arguments arguments) {
  Enter enter(*this);
  auto inner = std::make_shared<Scope>();
  inner->parent = defined_in;
  auto& named = arguments.named;
  const auto take_named = [&](std::string_view name, Value& value) {
    const auto found =
        std::find_if(named.begin(), named.end(), [&](const auto& a) { return a.first == name; });
    if (found == named.end()) return false;
    value = std::move(found->second);
    named.erase(found);
    return true;
  };
  const auto id_of = [&](const char* name) {
    const auto found = program_.ids.find(name);
    return found == program_.ids.end() ? -1 : found->second;
  };
  const auto outer = std::exchange(scope_, inner);
  for (std::size_t i = 0; i < s.parameters.size(); ++i) {
    const auto& parameter = s.parameters[i];
    Value value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (!take_named(parameter.name, value)) {
      value =
          parameter.fallback != nullptr
              ? evaluate(*parameter.fallback)
              : Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    }
    inner->set(parameter.name_id, std::move(value));
  }
  if (const int id = id_of("caller"); id >= 0) {
    Value caller = Value::undefined("no caller defined");
    const bool given = take_named("caller", caller);
    // A caller block inside a macro still sees the macro's own caller.
    if (given || s.kind == StatementKind::kMacro) inner->set(id, std::move(caller));
  }
  if (const int id = id_of("kwargs"); id >= 0) {
    Dict rest;
    for (auto& [name, value] : named) rest.set(Value::string(name), std::move(value));
    named.clear();
    inner->set(id, Value::dict(std::move(rest)));
  }
  if (!named.empty()) raise("the macro '{}' takes no argument '{}'", s.text, named.front().first);
  if (const int id = id_of("varargs"); id >= 0) {
    std::vector<Value> rest;
    for (std::size_t i = s.parameters.size(); i < arguments.positional.size(); ++i) {
      rest.push_back(arguments.positional[i]);
    }
    inner->set(id, list(std::move(rest), Kind::kTuple));
  } else if (arguments.positional.size() > s.parameters.size()) {
    raise("the macro '{}' takes at most {} arguments", s.text, s.parameters.size());
  }
  std::string out = capture(s.body, inner);
  scope_ = outer;
  return text(std::move(out));
}

void Interpreter::execute_call_block(const Statement& s) {
  const Expression& call_expression = *s.value;
  const Value callee = evaluate(*call_expression.items[0]);
  Arguments given = arguments(call_expression, 1);
  given.named.emplace_back("caller", make_macro(s));
  at_ = s.offset;
  const Value value = call(callee, std::move(given));
  budget_.take_steps(weight(value));
  write(to_string(value));
}

void Interpreter::assign(const Expression& target, Value value) {
  if (target.kind == ExpressionKind::kName) return scope_->set(target.name_id, std::move(value));
  at_ = target.offset;
  if (target.kind == ExpressionKind::kNamespaceAttribute) {
    const Value object = evaluate_name(target.name_id);
    if (!object.is(Kind::kNamespace)) raise("attributes can only be set on a namespace()");
    if (target.name.starts_with('_')) {
      raise("namespaces cannot have attributes that begin with an underscore ('{}')", target.name);
    }
    return object.mutable_entries().set(Value::string(target.name), std::move(value));
  }
  if (value.is_undefined()) raise("{}", value.hint());
  auto items = iterate(value, budget_);
  if (items.size() != target.items.size()) {
    raise("cannot unpack {} values into {} names", items.size(), target.items.size());
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.items[i], std::move(items[i]));
}

}  // namespace weft::model::jinja
