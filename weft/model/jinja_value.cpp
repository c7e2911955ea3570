#include "weft/model/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "weft/model/jinja_text.h"

namespace weft::model::jinja {
namespace {

int depth_of(const Value& value) {
  if (value.is_sequence()) return value.seq().depth;
  if (value.is(Kind::kDict)) return value.entries().depth;
  return 0;
}

constexpr std::int64_t kMaxWeight = std::int64_t{1} << 40;

void bound_depth(int depth) {
  if (depth > kMaxValueDepth) {
    throw Failure{ErrorCode::kResourceExhausted, "the template nests values more than 600 deep"};
  }
}

}  // namespace

Value Value::undefined(std::string hint) {
  Value v;
  v.object_ = std::make_shared<std::string>(std::move(hint));
  return v;
}
const std::string& Value::hint() const {
  static const std::string kPlain = "the value is undefined";
  return object_ ? *static_cast<const std::string*>(object_.get()) : kPlain;
}
Value Value::boolean(bool b) {
  Value v(Kind::kBool);
  v.int_ = b ? 1 : 0;
  return v;
}
Value Value::integer(Int i) {
  Value v(Kind::kInt);
  v.int_ = i;
  return v;
}
Value Value::real(double d) {
  Value v(Kind::kFloat);
  v.real_ = d;
  return v;
}
Value Value::string(std::string text) {
  Value v(Kind::kString);
  v.object_ = std::make_shared<std::string>(std::move(text));
  return v;
}
Value Value::sequence(Kind kind, std::vector<Value> items) {
  auto sequence = std::make_shared<Sequence>();
  for (const auto& item : items) {
    sequence->depth = std::max(sequence->depth, depth_of(item) + 1);
    sequence->weight = std::min(kMaxWeight, sequence->weight + jinja::weight(item));
  }
  bound_depth(sequence->depth);
  sequence->items = std::move(items);
  Value v(kind);
  v.object_ = std::move(sequence);
  return v;
}
Value Value::dict(Dict entries) {
  Value v(Kind::kDict);
  v.object_ = std::make_shared<Dict>(std::move(entries));
  return v;
}
Value Value::object(Kind kind, std::shared_ptr<void> object) {
  Value v(kind);
  v.object_ = std::move(object);
  return v;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = index.find(std::string(key));
  return found == index.end() ? nullptr : &items[found->second].second;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.text()));
  for (const auto& [have, value] : items) {
    if (!have.is_string() && equal(have, key)) return &value;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  depth = std::max({depth, depth_of(value) + 1, depth_of(key) + 1});
  bound_depth(depth);
  weight = std::min(kMaxWeight, weight + jinja::weight(key) + jinja::weight(value));
  if (const Value* have = find(key)) {
    const_cast<Value&>(*have) = std::move(value);
    return;
  }
  if (key.is_string()) index.emplace(key.text(), items.size());
  items.emplace_back(std::move(key), std::move(value));
}

std::int64_t weight(const Value& value) {
  if (value.is_string()) return 1 + static_cast<std::int64_t>(value.text().size() / 32);
  if (value.is_sequence()) return value.seq().weight;
  if (value.is(Kind::kDict)) return value.entries().weight;
  return 1;
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kView:
    case Kind::kIterator:
      return value.seq().type_name.empty() ? "generator" : value.seq().type_name;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kFunction:
      return "function";
  }
  return "object";
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0.0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return !value.seq().items.empty();
    case Kind::kDict:
      return !value.entries().items.empty();
    default:
      return true;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple: {
      const auto& x = a.seq().items;
      const auto& y = b.seq().items;
      return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), equal);
    }
    case Kind::kDict: {
      const auto& x = a.entries();
      const auto& y = b.entries();
      if (x.items.size() != y.items.size()) return false;
      return std::all_of(x.items.begin(), x.items.end(), [&](const auto& item) {
        const Value* other = y.find(item.first);
        return other != nullptr && equal(item.second, *other);
      });
    }
    default:
      return a.identity() == b.identity();
  }
}

int compare(const Value& a, const Value& b, std::string_view operation) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) {
      return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
    }
    const double x = a.as_double(), y = b.as_double();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  // UTF-8 sorts bytewise as its code points do.
  if (a.is_string() && b.is_string()) return a.text().compare(b.text());
  if (a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
    const auto& x = a.seq().items;
    const auto& y = b.seq().items;
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equal(x[i], y[i])) return compare(x[i], y[i], operation);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  if (a.is_undefined()) raise("{}", a.hint());
  if (b.is_undefined()) raise("{}", b.hint());
  raise("'{}' is not supported between {} and {}", operation, type_name(a), type_name(b));
}

std::string format_int(Int value) {
  if (value == 0) return "0";
  std::string digits;
  const bool negative = value < 0;
  unsigned __int128 rest =
      negative ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  for (; rest != 0; rest /= 10) digits += static_cast<char>('0' + static_cast<int>(rest % 10));
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string to_string(const Value& value) { return value.is_string() ? value.text() : repr(value); }

std::string repr(const Value& value) {
  const auto join = [](const std::vector<Value>& items) {
    std::string out;
    for (const auto& item : items) {
      if (!out.empty()) out += ", ";
      // An undefined item of a container shows its name in Python.
      out += item.is_undefined() ? "Undefined" : repr(item);
    }
    return out;
  };
  switch (value.kind()) {
    case Kind::kUndefined:
      return "";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.as_int() != 0 ? "True" : "False";
    case Kind::kInt:
      return format_int(value.as_int());
    case Kind::kFloat:
      return repr_float(value.as_double());
    case Kind::kString:
      return repr_text(value.text());
    case Kind::kList:
      return "[" + join(value.seq().items) + "]";
    case Kind::kTuple:
      return "(" + join(value.seq().items) + (value.seq().items.size() == 1 ? ",)" : ")");
    case Kind::kView:
      return value.seq().type_name + "([" + join(value.seq().items) + "])";
    case Kind::kDict: {
      std::string out = "{";
      for (const auto& [key, item] : value.entries().items) {
        if (out.size() > 1) out += ", ";
        out += repr(key) + ": " + (item.is_undefined() ? "Undefined" : repr(item));
      }
      return out + "}";
    }
    default:
      raise("a {} cannot be printed", type_name(value));
  }
}

std::vector<Value> iterate(const Value& value, Budget& budget) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kString: {
      std::vector<Value> out;
      const auto points = decode_utf8(value.text());
      budget.take_bytes(static_cast<std::int64_t>(points.size() * (sizeof(Value) + 48)));
      for (char32_t c : points) {
        std::string one;
        append_utf8(one, c);
        out.push_back(Value::string(std::move(one)));
      }
      return out;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      budget.take_steps(static_cast<std::int64_t>(value.seq().items.size() / 8));
      return value.seq().items;
    case Kind::kIterator: {
      auto& sequence = value.mutable_seq();
      std::vector<Value> out(
          sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.consumed),
          sequence.items.end());
      sequence.consumed = sequence.items.size();
      budget.take_steps(static_cast<std::int64_t>(out.size() / 8));
      return out;
    }
    case Kind::kDict: {
      std::vector<Value> out;
      budget.take_steps(static_cast<std::int64_t>(value.entries().items.size() / 8));
      for (const auto& [key, item] : value.entries().items) out.push_back(key);
      return out;
    }
    default:
      raise("a {} cannot be iterated", type_name(value));
  }
}

std::int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return count_code_points(value.text());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return static_cast<std::int64_t>(value.seq().items.size());
    case Kind::kDict:
      return static_cast<std::int64_t>(value.entries().items.size());
    case Kind::kLoop:
      return static_cast<std::int64_t>(value.loop().items.size());
    default:
      raise("a {} has no length", type_name(value));
  }
}

void require_hashable(const Value& value) {
  if (value.is(Kind::kList) || value.is(Kind::kDict)) {
    raise("a {} cannot be the key of a dict", type_name(value));
  }
  if (value.is(Kind::kTuple)) {
    for (const auto& item : value.seq().items) require_hashable(item);
  }
}

namespace {

std::string json_key(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return key.text();
    case Kind::kNone:
      return "null";
    case Kind::kBool:
      return key.as_int() != 0 ? "true" : "false";
    case Kind::kInt:
      return format_int(key.as_int());
    case Kind::kFloat:
      return repr_float(key.as_double());
    default:
      raise("tojson: the key of an object must be a string, not a {}", type_name(key));
  }
}

void write_json(std::string& out, const Value& value, const JsonStyle& style, int level,
                Budget& budget) {
  budget.take_steps(1);
  const std::size_t begin = out.size();
  const auto line = [&](int at) {
    if (!style.indented) return;
    out += '\n';
    for (int i = 0; i < at; ++i) out += style.indent;
  };
  switch (value.kind()) {
    case Kind::kNone:
      out += "null";
      break;
    case Kind::kBool:
      out += value.as_int() != 0 ? "true" : "false";
      break;
    case Kind::kInt:
      out += format_int(value.as_int());
      break;
    case Kind::kFloat: {
      const double d = value.as_double();
      out += std::isnan(d)   ? "NaN"
             : std::isinf(d) ? (d > 0 ? "Infinity" : "-Infinity")
                             : repr_float(d);
      break;
    }
    case Kind::kString:
      append_json_text(out, value.text(), style.ensure_ascii);
      break;
    case Kind::kList:
    case Kind::kTuple: {
      const auto& items = value.seq().items;
      out += '[';
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += style.item_separator;
        line(level + 1);
        write_json(out, items[i], style, level + 1, budget);
      }
      if (!items.empty()) line(level);
      out += ']';
      return;
    }
    case Kind::kDict: {
      auto items = value.entries().items;
      if (style.sort_keys) {
        std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
          return compare(a.first, b.first, "<") < 0;
        });
      }
      out += '{';
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += style.item_separator;
        line(level + 1);
        append_json_text(out, json_key(items[i].first), style.ensure_ascii);
        out += style.key_separator;
        write_json(out, items[i].second, style, level + 1, budget);
      }
      if (!items.empty()) line(level);
      out += '}';
      return;
    }
    case Kind::kUndefined:
      raise("tojson: {}", value.hint());
    default:
      raise("tojson: a {} is not JSON", type_name(value));
  }
  budget.take_bytes(static_cast<std::int64_t>(out.size() - begin));
}

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  std::string out;
  write_json(out, value, style, 0, budget);
  return out;
}

}  // namespace weft::model::jinja
