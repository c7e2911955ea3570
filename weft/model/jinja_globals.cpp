// What every template finds besides its variables: functions and `loop`.
#include <ctime>

#include "weft/model/jinja_interpreter.h"

namespace weft::model::jinja {

Value make_function(std::string name, std::function<Value(Interpreter&, Arguments)> call) {
  return Value::object(Kind::kFunction,
                       std::make_shared<Function>(Function{std::move(name), std::move(call)}));
}

namespace {

constexpr std::int64_t kMaxRange = 100000;  // as in Jinja2's sandbox

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

}  // namespace

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
    return make_function("cycle", [value](Interpreter&, Arguments arguments) {
      if (arguments.positional.empty()) raise("no items for cycling given");
      return arguments.positional[value.loop().index % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    return make_function("changed", [value](Interpreter& interpreter, Arguments arguments) {
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

std::map<std::string, Value> make_globals() {
  std::map<std::string, Value> out;
  out["range"] = make_function("range", make_range);
  out["dict"] = make_function("dict", [](Interpreter& interpreter, Arguments arguments) {
    return Value::dict(make_dict(interpreter, std::move(arguments)));
  });
  out["namespace"] = make_function("namespace", [](Interpreter& interpreter, Arguments arguments) {
    return interpreter.make_namespace(make_dict(interpreter, std::move(arguments)));
  });
  out["raise_exception"] = make_function("raise_exception", raise_exception);
  out["strftime_now"] = make_function("strftime_now", strftime_now);
  return out;
}

}  // namespace weft::model::jinja
