// Filters on strings, numbers and whole values; those on sequences are in
// jinja_sequence_filters.cpp.
#include "weft/model/jinja_filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "weft/base/html.h"
#include "weft/model/jinja_text.h"

namespace weft::model::jinja {
namespace {

// str() of the input, charged for.
std::string input_text(Interpreter& in, const Value& value) {
  in.budget().take_steps(weight(value));
  return to_string(value);
}

template <std::string (*kMap)(std::string_view)>
Value map_text(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("the filter", std::move(arguments), {});
  return in.text(kMap(input_text(in, value)));
}

// Jinja's own title(): words begin after white space, hyphens and brackets.
std::string title_words(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    const std::string first = slice_text(word, 0, 1, 1);
    out += to_upper(first) + to_lower(std::string_view(word).substr(first.size()));
    word.clear();
  };
  for (char32_t c : decode_utf8(text)) {
    if (is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      flush();
      append_utf8(out, c);
    } else {
      append_utf8(word, c);
    }
  }
  flush();
  return out;
}

Value trim(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("trim", std::move(arguments), {"chars"});
  const std::string set = p.has(0) && !p[0].is(Kind::kNone) ? p.string(0, "") : "";
  const bool given = p.has(0) && !p[0].is(Kind::kNone);
  return in.text(strip(input_text(in, value),
                       given ? std::optional<std::string_view>(set) : std::nullopt, true, true));
}

Value string(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("string", std::move(arguments), {});
  return value.is_string() ? value : in.text(input_text(in, value));
}

Value replace(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("replace", std::move(arguments), {"old", "new", "count"});
  const Value text = Value::string(input_text(in, value));
  Arguments rest;
  rest.positional = {Value::string(to_string(p.require(0))),
                     Value::string(to_string(p.require(1)))};
  if (p.has(2) && !p[2].is(Kind::kNone)) rest.positional.push_back(p[2]);
  return in.call(in.get_attribute(text, "replace"), std::move(rest));
}

Value indent(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("indent", std::move(arguments), {"width", "first", "blank"});
  if (!value.is_string()) {
    if (value.is_undefined()) raise("{}", value.hint());
    raise("indent needs a string, not a {}", type_name(value));
  }
  std::string by;
  if (p.has(0) && p[0].is_string()) {
    by = p[0].text();
  } else {
    const std::int64_t width = p.integer(0, 4);
    in.budget().take_bytes(std::max<std::int64_t>(width, 0));
    by = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  const bool blank = p.flag(2, false);
  const auto lines = split_lines(value.text() + "\n", false);
  in.budget().take_bytes(static_cast<std::int64_t>(lines.size() * by.size()));
  std::string out = p.flag(1, false) ? by : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out += '\n';
      if (blank || !lines[i].empty()) out += by;
    }
    out += lines[i];
  }
  return in.text(std::move(out));
}

Value tojson(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("tojson", std::move(arguments),
               {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = p.flag(0, false);
  style.sort_keys = p.flag(3, false);
  if (p.has(1) && !p[1].is(Kind::kNone)) {
    style.indented = true;
    style.item_separator = ",";
    if (p[1].is_string()) {
      style.indent = p[1].text();
    } else {
      style.indent = std::string(
          static_cast<std::size_t>(std::clamp<std::int64_t>(p.integer(1, 0), 0, 1000)), ' ');
    }
    if (style.indent.size() > 1000) raise("tojson(indent) of more than 1000 characters");
  }
  if (p.has(2) && !p[2].is(Kind::kNone)) {
    const auto pair = iterate(p[2], in.budget());
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      raise("tojson(separators) needs two strings");
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  in.budget().take_steps(weight(value));
  return in.text(to_json(value, style, in.budget()));
}

Value default_value(Interpreter&, const Value& value, Arguments arguments) {
  Parameters p("default", std::move(arguments), {"default_value", "boolean"});
  if (value.is_undefined() || (p.flag(1, false) && !truthy(value))) {
    return p.has(0) ? p[0] : Value::string("");
  }
  return value;
}

// float() of a string, as Python reads it.
bool parse_float(std::string_view text, double& out) {
  std::string digits = strip(text, std::nullopt, true, true);
  std::erase(digits, '_');
  std::string_view rest = digits;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty() || rest.starts_with("+")) return false;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), out);
  return read.ec == std::errc{} && read.ptr == rest.data() + rest.size();
}

bool parse_int(std::string_view text, std::int64_t base, Int& out) {
  std::string digits = strip(text, std::nullopt, true, true);
  std::erase(digits, '_');
  std::size_t at = 0;
  bool negative = false;
  if (at < digits.size() && (digits[at] == '+' || digits[at] == '-'))
    negative = digits[at++] == '-';
  const auto prefix = to_lower(std::string_view(digits).substr(std::min(at, digits.size()), 2));
  if ((prefix == "0x" && (base == 16 || base == 0)) ||
      (prefix == "0o" && (base == 8 || base == 0)) ||
      (prefix == "0b" && (base == 2 || base == 0))) {
    if (base == 0) base = prefix == "0x" ? 16 : prefix == "0o" ? 8 : 2;
    at += 2;
  }
  if (base == 0) base = 10;
  if (at >= digits.size()) return false;
  out = 0;
  for (; at < digits.size(); ++at) {
    const char c = digits[at];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 10
                      : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                             : 99;
    if (digit >= base) return false;
    if (__builtin_mul_overflow(out, static_cast<Int>(base), &out) ||
        __builtin_add_overflow(out, static_cast<Int>(digit), &out)) {
      raise("an integer grows beyond 127 bits");
    }
  }
  if (negative) out = -out;  // of a number of 0 or more
  return true;
}

Value integer_of(double value, const Value& fallback) {
  if (!std::isfinite(value)) return fallback;
  if (std::fabs(value) > 1e37) raise("an integer grows beyond 127 bits");
  return Value::integer(static_cast<Int>(value));
}

Value to_int(Interpreter&, const Value& value, Arguments arguments) {
  Parameters p("int", std::move(arguments), {"default", "base"});
  const Value fallback = p.has(0) ? p[0] : Value::integer(0);
  if (value.is_undefined()) raise("{}", value.hint());
  if (value.is_integral()) return Value::integer(value.as_int());
  if (value.is(Kind::kFloat)) return integer_of(value.as_double(), fallback);
  if (!value.is_string()) return fallback;
  Int whole = 0;
  if (parse_int(value.text(), p.integer(1, 10), whole)) return Value::integer(whole);
  double real = 0;
  return parse_float(value.text(), real) ? integer_of(real, fallback) : fallback;
}

Value to_float(Interpreter&, const Value& value, Arguments arguments) {
  Parameters p("float", std::move(arguments), {"default"});
  const Value fallback = p.has(0) ? p[0] : Value::real(0.0);
  if (value.is_undefined()) raise("{}", value.hint());
  if (value.is_number()) return Value::real(value.as_double());
  double real = 0;
  return value.is_string() && parse_float(value.text(), real) ? Value::real(real) : fallback;
}

Value absolute(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("abs", std::move(arguments), {});
  if (value.is_undefined()) raise("{}", value.hint());
  if (!value.is_number()) raise("abs needs a number, not a {}", type_name(value));
  if (value.is(Kind::kFloat)) return Value::real(std::fabs(value.as_double()));
  if (value.as_int() >= 0) return Value::integer(value.as_int());
  return binary_operation(Operator::kSubtract, Value::integer(0), value, in.budget());
}

Value round_number(Interpreter&, const Value& value, Arguments arguments) {
  Parameters p("round", std::move(arguments), {"precision", "method"});
  if (value.is_undefined()) raise("{}", value.hint());
  if (!value.is_number()) raise("round needs a number, not a {}", type_name(value));
  const std::int64_t precision = p.integer(0, 0);
  const std::string method = p.string(1, "common");
  if (precision < -300 || precision > 300) raise("round(precision) must be within 300");
  if (method == "common") {
    if (value.is_integral() && precision >= 0) return Value::integer(value.as_int());
    if (precision >= 0) {
      // printf rounds the exact binary value half to even, as Python does.
      char buffer[800];
      std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), value.as_double());
      double out = 0;
      std::from_chars(buffer, buffer + std::char_traits<char>::length(buffer), out);
      return Value::real(out);
    }
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    const double out = std::nearbyint(value.as_double() / scale) * scale;
    return value.is_integral() ? integer_of(out, Value::integer(0)) : Value::real(out);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value::real(std::ceil(value.as_double() * scale) / scale);
  if (method == "floor") return Value::real(std::floor(value.as_double() * scale) / scale);
  raise("round(method) must be common, ceil or floor");
}

Value format_filter(Interpreter& in, const Value& value, Arguments arguments) {
  Value values;
  if (!arguments.named.empty()) {
    Dict dict;
    for (auto& [name, each] : arguments.named) dict.set(Value::string(name), std::move(each));
    values = Value::dict(std::move(dict));
  } else {
    values = in.list(std::move(arguments.positional), Kind::kTuple);
  }
  return Value::string(percent_format(input_text(in, value), values, in.budget()));
}

Value center(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("center", std::move(arguments), {"width"});
  Arguments rest;
  rest.positional = {Value::integer(p.integer(0, 80))};
  return in.call(in.get_attribute(Value::string(input_text(in, value)), "center"), std::move(rest));
}

Value truncate(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("truncate", std::move(arguments), {"length", "killwords", "end", "leeway"});
  const std::string text = input_text(in, value);
  const std::int64_t limit = p.integer(0, 255);
  const std::string end = p.string(2, "...");
  const std::int64_t leeway = p.integer(3, 5);
  const std::int64_t end_length = count_code_points(end);
  if (limit < end_length || leeway < 0) raise("truncate(length) is shorter than its end");
  if (count_code_points(text) <= limit + leeway) return in.text(text);
  std::string cut = slice_text(text, 0, limit - end_length, 1);
  if (!p.flag(1, false)) {
    if (const auto blank = cut.rfind(' '); blank != std::string::npos) cut.resize(blank);
  }
  return in.text(cut + end);
}

Value wordcount(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("wordcount", std::move(arguments), {});
  std::int64_t words = 0;
  bool inside = false;
  for (char32_t c : decode_utf8(input_text(in, value))) {
    const bool word = is_alpha(c) || is_decimal(c) || c == '_';
    if (word && !inside) ++words;
    inside = word;
  }
  return Value::integer(words);
}

Value attribute(Interpreter& in, const Value& value, Arguments arguments) {
  Parameters p("attr", std::move(arguments), {"name"});
  const std::string name = (p.require(0), p.string(0, ""));
  // attr looks at attributes only, never at items.
  Value method;
  if (value.is(Kind::kDict)) {
    return find_method(value, name, method)
               ? method
               : Value::undefined(fmt::format("a dict has no attribute '{}'", name));
  }
  return in.get_attribute(value, name);
}

}  // namespace

const std::unordered_map<std::string, Filter>& value_filters() {
  static const std::unordered_map<std::string, Filter> kFilters = {
      {"abs", absolute},
      {"attr", attribute},
      {"capitalize", map_text<capitalize>},
      {"center", center},
      {"d", default_value},
      {"default", default_value},
      {"e", map_text<escape_html>},
      {"escape", map_text<escape_html>},
      {"forceescape", map_text<escape_html>},
      {"float", to_float},
      {"format", format_filter},
      {"indent", indent},
      {"int", to_int},
      {"lower", map_text<to_lower>},
      {"replace", replace},
      {"round", round_number},
      {"safe", string},
      {"string", string},
      {"title", map_text<title_words>},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", map_text<to_upper>},
      {"wordcount", wordcount}};
  return kFilters;
}

bool is_filter(const std::string& name) {
  return value_filters().contains(name) || sequence_filters().contains(name);
}

Value Interpreter::apply_filter(const std::string& name, const Value& input, Arguments arguments) {
  budget_.take_steps(1);
  for (const auto* table : {&value_filters(), &sequence_filters()}) {
    if (const auto found = table->find(name); found != table->end()) {
      return found->second(*this, input, std::move(arguments));
    }
  }
  raise_unsupported("no filter named '{}'", name);
}

}  // namespace weft::model::jinja
