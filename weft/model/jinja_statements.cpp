// The interpreter's statements; expressions are in jinja_interpreter.cpp.
#include <algorithm>

#include "weft/model/jinja_interpreter.h"

namespace weft::model::jinja {

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
  return make_function(s.text, [&s, weak](Interpreter& self, Arguments arguments) {
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
