// Methods of strings, lists, tuples and dicts.
#include <algorithm>
#include <unordered_map>

#include "weft/model/jinja_interpreter.h"
#include "weft/model/jinja_text.h"

namespace weft::model::jinja {
namespace {

using Method = Value (*)(Interpreter&, const Value& self, Arguments arguments);

std::optional<std::string> characters(const Parameters& parameters) {
  if (!parameters.has(0) || parameters[0].is(Kind::kNone)) return std::nullopt;
  return parameters.string(0, "");
}

template <bool kLeft, bool kRight>
Value strip_method(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("strip", std::move(arguments), {"chars"});
  const auto set = characters(p);
  return in.text(strip(self.text(), set ? std::optional<std::string_view>(*set) : std::nullopt,
                       kLeft, kRight));
}

Value strings(Interpreter& in, std::vector<std::string> parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (auto& part : parts) items.push_back(in.text(std::move(part)));
  return in.list(std::move(items));
}

template <bool kRight>
Value split_method(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("split", std::move(arguments), {"sep", "maxsplit"});
  const auto separator = characters(p);
  if (separator && separator->empty()) raise("split() with an empty separator");
  const auto view = separator ? std::optional<std::string_view>(*separator) : std::nullopt;
  const std::int64_t limit = p.integer(1, -1);
  in.budget().take_bytes(static_cast<std::int64_t>(self.text().size()));
  return strings(in,
                 kRight ? split_right(self.text(), view, limit) : split(self.text(), view, limit));
}

Value splitlines(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("splitlines", std::move(arguments), {"keepends"});
  return strings(in, split_lines(self.text(), p.flag(0, false)));
}

template <bool kStart>
Value affix_test(Interpreter&, const Value& self, Arguments arguments) {
  Parameters p(kStart ? "startswith" : "endswith", std::move(arguments),
               {"prefix", "start", "end"});
  std::string whole = self.text();
  if (p.has(1) || p.has(2)) {
    const auto bound = [&](std::size_t i) {
      return p.has(i) && !p[i].is(Kind::kNone) ? std::optional(p.integer(i, 0)) : std::nullopt;
    };
    whole = slice_text(whole, bound(1), bound(2), 1);
  }
  const auto matches = [&](const Value& affix) {
    if (affix.is_undefined()) raise("{}", affix.hint());
    if (!affix.is_string())
      raise("startswith() and endswith() need a string, not a {}", type_name(affix));
    return kStart ? whole.starts_with(affix.text()) : whole.ends_with(affix.text());
  };
  const Value& affix = p.require(0);
  if (!affix.is(Kind::kTuple)) return Value::boolean(matches(affix));
  const auto& all = affix.seq().items;
  return Value::boolean(std::any_of(all.begin(), all.end(), matches));
}

std::string replaced(Interpreter& in, const std::string& text, const std::string& from,
                     const std::string& to, std::int64_t limit) {
  // The result's size is bounded before it is made.
  const auto places =
      static_cast<std::int64_t>(text.size() / std::max<std::size_t>(from.size(), 1)) + 1;
  const auto grown =
      static_cast<std::int64_t>(std::min<std::size_t>(to.size(), std::size_t{1} << 30));
  if (places * grown > (std::int64_t{1} << 26)) {
    std::int64_t found = from.empty() ? places : 0;
    for (std::size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos;
         at += from.size())
      ++found;
    if (limit >= 0) found = std::min(found, limit);
    in.budget().take_bytes(found * grown);
  }
  return replace_text(text, from, to, limit);
}

Value replace(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("replace", std::move(arguments), {"old", "new", "count"});
  p.require(0);
  p.require(1);
  return in.text(replaced(in, self.text(), p.string(0, ""), p.string(1, ""), p.integer(2, -1)));
}

template <std::string (*kMap)(std::string_view)>
Value mapped(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("the method", std::move(arguments), {});
  in.budget().take_steps(weight(self));
  return in.text(kMap(self.text()));
}

Value join(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("join", std::move(arguments), {"iterable"});
  std::string out;
  bool first = true;
  for (const auto& item : iterate(p.require(0), in.budget())) {
    if (item.is_undefined()) raise("{}", item.hint());
    if (!item.is_string()) raise("join() needs strings, not a {}", type_name(item));
    if (!std::exchange(first, false)) out += self.text();
    out += item.text();
    in.budget().take_bytes(static_cast<std::int64_t>(self.text().size() + item.text().size()));
  }
  return in.text(std::move(out));
}

Value format(Interpreter& in, const Value& self, Arguments arguments) {
  return Value::string(brace_format(self.text(), arguments, in));
}

template <bool kRight, bool kRaise>
Value find(Interpreter&, const Value& self, Arguments arguments) {
  Parameters p("find", std::move(arguments), {"sub", "start"});
  const std::string& text = self.text();
  const std::string sub = (p.require(0), p.string(0, ""));
  std::size_t from = 0;
  if (p.has(1)) {
    const auto start =
        resolve_slice(p.integer(1, 0), std::nullopt, 1, count_code_points(text)).start;
    from = slice_text(text, 0, start, 1).size();
  }
  std::size_t at = kRight ? text.rfind(sub) : text.find(sub, from);
  if (kRight && at != std::string::npos && at < from) at = std::string::npos;
  if (at != std::string::npos)
    return Value::integer(count_code_points(std::string_view(text).substr(0, at)));
  if (kRaise) raise("index(): the substring is not there");
  return Value::integer(-1);
}

Value count(Interpreter&, const Value& self, Arguments arguments) {
  Parameters p("count", std::move(arguments), {"sub"});
  const std::string sub = (p.require(0), p.string(0, ""));
  if (sub.empty()) return Value::integer(count_code_points(self.text()) + 1);
  std::int64_t found = 0;
  for (std::size_t at = 0; (at = self.text().find(sub, at)) != std::string::npos; at += sub.size())
    ++found;
  return Value::integer(found);
}

template <bool (*kIs)(char32_t)>
Value all_are(Interpreter&, const Value& self, Arguments arguments) {
  Parameters p("the method", std::move(arguments), {});
  const auto points = decode_utf8(self.text());
  return Value::boolean(!points.empty() && std::all_of(points.begin(), points.end(), kIs));
}
bool is_alphanumeric(char32_t c) { return is_alpha(c) || is_decimal(c); }

template <bool (*kIs)(std::string_view)>
Value whole_is(Interpreter&, const Value& self, Arguments arguments) {
  Parameters p("the method", std::move(arguments), {});
  return Value::boolean(kIs(self.text()));
}

std::string padding(Interpreter& in, const std::string& fill, std::int64_t count) {
  std::string out;
  in.budget().take_bytes(std::max<std::int64_t>(count, 0) * static_cast<std::int64_t>(fill.size()));
  for (std::int64_t i = 0; i < count; ++i) out += fill;
  return out;
}

template <char kAlign>
Value justify(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("the method", std::move(arguments), {"width", "fillchar"});
  p.require(0);
  const std::string fill = p.string(1, " ");
  if (count_code_points(fill) != 1) raise("the fill character must be one character");
  const std::int64_t width = p.integer(0, 0);
  const std::int64_t missing = width - count_code_points(self.text());
  if (missing <= 0) return self;
  // Where CPython puts the odd blank of center().
  const std::int64_t left = kAlign == '<'   ? 0
                            : kAlign == '>' ? missing
                                            : missing / 2 + (missing & width & 1);
  return in.text(padding(in, fill, left) + self.text() + padding(in, fill, missing - left));
}

Value zfill(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("zfill", std::move(arguments), {"width"});
  p.require(0);
  const std::string& text = self.text();
  const std::size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const std::string zeros = padding(in, "0", p.integer(0, 0) - count_code_points(text));
  return in.text(text.substr(0, sign) + zeros + text.substr(sign));
}

template <bool kRight>
Value partition(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("partition", std::move(arguments), {"sep"});
  const std::string separator = (p.require(0), p.string(0, ""));
  if (separator.empty()) raise("partition() with an empty separator");
  const std::string& text = self.text();
  const auto at = kRight ? text.rfind(separator) : text.find(separator);
  std::vector<Value> parts;
  if (at == std::string::npos) {
    parts = {self, Value::string(""), Value::string("")};
    if (kRight) std::swap(parts[0], parts[2]);
  } else {
    parts = {in.text(text.substr(0, at)), Value::string(separator),
             in.text(text.substr(at + separator.size()))};
  }
  return in.list(std::move(parts), Kind::kTuple);
}

template <bool kPrefix>
Value remove_affix(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("removeprefix", std::move(arguments), {"affix"});
  const std::string affix = (p.require(0), p.string(0, ""));
  const std::string& text = self.text();
  if (kPrefix && text.starts_with(affix)) return in.text(text.substr(affix.size()));
  if (!kPrefix && text.ends_with(affix)) return in.text(text.substr(0, text.size() - affix.size()));
  return self;
}

// ---- list, tuple, dict

Value index_of(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("index", std::move(arguments), {"value"});
  in.budget().take_steps(weight(self));
  const auto& items = self.seq().items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], p.require(0))) return Value::integer(static_cast<Int>(i));
  }
  raise("index(): the value is not in the list");
}

Value count_items(Interpreter& in, const Value& self, Arguments arguments) {
  Parameters p("count", std::move(arguments), {"value"});
  in.budget().take_steps(weight(self));
  const auto& items = self.seq().items;
  return Value::integer(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return equal(item, p.require(0)); }));
}

Value copy(Interpreter&, const Value& self, Arguments) { return self; }

Value view(Interpreter& in, std::vector<Value> items, const char* name) {
  Value out = in.list(std::move(items), Kind::kView);
  out.mutable_seq().type_name = name;
  return out;
}

Value keys(Interpreter& in, const Value& self, Arguments) {
  return view(in, iterate(self, in.budget()), "dict_keys");
}

Value values(Interpreter& in, const Value& self, Arguments) {
  std::vector<Value> out;
  for (const auto& [key, value] : self.entries().items) out.push_back(value);
  return view(in, std::move(out), "dict_values");
}

Value items(Interpreter& in, const Value& self, Arguments) {
  std::vector<Value> out;
  for (const auto& [key, value] : self.entries().items)
    out.push_back(in.list({key, value}, Kind::kTuple));
  return view(in, std::move(out), "dict_items");
}

Value get(Interpreter&, const Value& self, Arguments arguments) {
  Parameters p("get", std::move(arguments), {"key", "default"});
  require_hashable(p.require(0));
  if (const Value* found = self.entries().find(p[0])) return *found;
  return p.has(1) ? p[1] : Value::none();
}

using Table = std::unordered_map<std::string, Method>;

const Table& table_of(Kind kind) {
  static const Table kString = {{"strip", strip_method<true, true>},
                                {"lstrip", strip_method<true, false>},
                                {"rstrip", strip_method<false, true>},
                                {"split", split_method<false>},
                                {"rsplit", split_method<true>},
                                {"splitlines", splitlines},
                                {"startswith", affix_test<true>},
                                {"endswith", affix_test<false>},
                                {"replace", replace},
                                {"upper", mapped<to_upper>},
                                {"lower", mapped<to_lower>},
                                {"title", mapped<to_title>},
                                {"capitalize", mapped<capitalize>},
                                {"swapcase", mapped<swap_case>},
                                {"join", join},
                                {"format", format},
                                {"find", find<false, false>},
                                {"rfind", find<true, false>},
                                {"index", find<false, true>},
                                {"rindex", find<true, true>},
                                {"count", count},
                                {"isalpha", all_are<is_alpha>},
                                {"isdigit", all_are<is_decimal>},
                                {"isdecimal", all_are<is_decimal>},
                                {"isnumeric", all_are<is_decimal>},
                                {"isalnum", all_are<is_alphanumeric>},
                                {"isspace", all_are<is_space>},
                                {"isupper", whole_is<has_only_upper>},
                                {"islower", whole_is<has_only_lower>},
                                {"isascii", whole_is<is_ascii>},
                                {"ljust", justify<'<'>},
                                {"rjust", justify<'>'>},
                                {"center", justify<'^'>},
                                {"zfill", zfill},
                                {"partition", partition<false>},
                                {"rpartition", partition<true>},
                                {"removeprefix", remove_affix<true>},
                                {"removesuffix", remove_affix<false>}};
  static const Table kSequence = {{"index", index_of}, {"count", count_items}, {"copy", copy}};
  static const Table kDict = {
      {"keys", keys}, {"values", values}, {"items", items}, {"get", get}, {"copy", copy}};
  static const Table kNothing;
  if (kind == Kind::kString) return kString;
  if (kind == Kind::kList || kind == Kind::kTuple) return kSequence;
  return kind == Kind::kDict ? kDict : kNothing;
}

// What Python has and the immutable sandbox refuses to hand out.
bool changes_its_object(Kind kind, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "extend", "insert", "pop",
                                               "remove", "clear",  "sort",   "reverse"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto in = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (kind == Kind::kList && in(kList)) || (kind == Kind::kDict && in(kDict));
}

}  // namespace

bool find_method(const Value& object, const std::string& name, Value& method) {
  const Table& table = table_of(object.kind());
  const auto found = table.find(name);
  if (found == table.end()) {
    if (!changes_its_object(object.kind(), name)) return false;
    method = Value::undefined(
        fmt::format("templates may not change a {}: '{}' is not allowed", type_name(object), name));
    return true;
  }
  method = Value::object(
      Kind::kFunction,
      std::make_shared<Function>(Function{
          name, [call = found->second, object](Interpreter& interpreter, Arguments arguments) {
            return call(interpreter, object, std::move(arguments));
          }}));
  return true;
}

}  // namespace weft::model::jinja
