// Python's two ways to format: "%s" % x and "{}".format(x), as far as templates go.
#include <cmath>
#include <cstdio>

#include "weft/model/jinja_interpreter.h"
#include "weft/model/jinja_text.h"

namespace weft::model::jinja {
namespace {

constexpr std::int64_t kMaxWidth = 10000;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';    // + - or blank
  bool alternate = false, zero = false, comma = false;
  std::int64_t width = 0, precision = -1;
  char type = '\0';
};

std::int64_t read_number(std::string_view text, std::size_t& at) {
  std::int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = value * 10 + (text[at++] - '0');
    if (value > kMaxWidth) raise("a width or precision of more than {} in a format", kMaxWidth);
  }
  return value;
}

std::string pad(std::string body, const Spec& spec, char fallback) {
  const std::int64_t missing = spec.width - count_code_points(body);
  if (missing <= 0) return body;
  const char align = spec.align != '\0' ? spec.align : fallback;
  const std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  std::size_t sign = 0;
  if (align == '=' && !body.empty() && (body[0] == '-' || body[0] == '+' || body[0] == ' '))
    sign = 1;
  out += body.substr(0, sign);
  for (std::int64_t i = 0; i < left; ++i) out += spec.fill;
  out += body.substr(sign);
  for (std::int64_t i = left; i < missing; ++i) out += spec.fill;
  return out;
}

std::string with_sign(std::string digits, bool negative, char sign) {
  if (negative) return "-" + digits;
  return sign == '-' ? digits : std::string(1, sign) + digits;
}

std::string group_thousands(std::string digits) {
  auto end = digits.find_first_not_of("0123456789");
  if (end == std::string::npos) end = digits.size();
  for (std::size_t at = end; at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string format_integer(Int value, const Spec& spec, char type) {
  const bool negative = value < 0;
  std::string digits;
  if (type == 'x' || type == 'X' || type == 'o' || type == 'b') {
    const unsigned base = type == 'o' ? 8 : type == 'b' ? 2 : 16;
    auto rest =
        negative ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
    const char* alphabet = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    do {
      digits.insert(digits.begin(), alphabet[static_cast<std::size_t>(rest % base)]);
      rest /= base;
    } while (rest != 0);
    if (spec.alternate) digits = std::string("0") + type + digits;
  } else {
    digits = format_int(value);
    if (negative) digits.erase(0, 1);
    if (spec.comma) digits = group_thousands(std::move(digits));
  }
  return with_sign(std::move(digits), negative, spec.sign);
}

std::string format_real(double value, const Spec& spec, char type) {
  const char c_format[] = {'%', '.', '*', type == '%' ? 'f' : type, '\0'};
  const double shown = type == '%' ? value * 100 : value;
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  std::string digits(400 + static_cast<std::size_t>(precision), '\0');
  const int size =
      std::snprintf(digits.data(), digits.size(), c_format, precision, std::fabs(shown));
  digits.resize(static_cast<std::size_t>(std::max(size, 0)));
  if (spec.comma) digits = group_thousands(std::move(digits));
  if (type == '%') digits += '%';
  return with_sign(std::move(digits), std::signbit(shown) && !std::isnan(shown), spec.sign);
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const std::string first = slice_text(text, 0, 1, 1);
  if (first.size() < text.size() && is_align(text[first.size()])) {
    spec.fill = first;
    spec.align = text[first.size()];
    at = first.size() + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[at++];
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' '))
    spec.sign = text[at++];
  if (at < text.size() && text[at] == '#') spec.alternate = (++at, true);
  if (at < text.size() && text[at] == '0' && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
    ++at;
  }
  spec.width = read_number(text, at);
  if (at < text.size() && text[at] == ',') spec.comma = (++at, true);
  if (at < text.size() && text[at] == '.') {
    ++at;
    spec.precision = read_number(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) raise("the format specification '{}' is not supported", text);
  return spec;
}

std::string format_value(const Value& value, std::string_view text) {
  if (text.empty()) return to_string(value);
  const Spec spec = parse_spec(text);
  if (value.is_string()) {
    if (spec.type != '\0' && spec.type != 's') raise("the format '{}' does not fit a string", text);
    std::string body = value.text();
    if (spec.precision >= 0) body = slice_text(body, 0, spec.precision, 1);
    return pad(std::move(body), spec, '<');
  }
  if (!value.is_number()) raise("the format '{}' does not fit a {}", text, type_name(value));
  const std::string_view integer_types("dxXob");
  const std::string_view real_types("fFeEgG%");
  char type = spec.type;
  if (type == '\0') {
    if (value.is(Kind::kFloat) && spec.precision < 0) {
      const std::string body = repr(value);
      const bool negative = body[0] == '-';
      return pad(with_sign(negative ? body.substr(1) : body, negative, spec.sign), spec, '>');
    }
    type = value.is(Kind::kFloat) ? 'g' : 'd';
  }
  if (integer_types.find(type) != std::string_view::npos && value.is_integral()) {
    return pad(format_integer(value.as_int(), spec, type), spec, '>');
  }
  if (real_types.find(type) != std::string_view::npos) {
    return pad(format_real(value.as_double(), spec, type), spec, '>');
  }
  raise("the format '{}' is not supported for a {}", text, type_name(value));
}

}  // namespace

std::string percent_format(std::string_view format, const Value& arguments, Budget& budget) {
  std::string out;
  std::size_t next = 0;
  const bool is_tuple = arguments.is(Kind::kTuple);
  const auto take = [&]() -> Value {
    if (is_tuple) {
      if (next >= arguments.seq().items.size()) raise("not enough arguments for the format string");
      return arguments.seq().items[next++];
    }
    if (next++ > 0) raise("not enough arguments for the format string");
    return arguments;
  };
  bool named = false;
  for (std::size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    if (++at >= format.size()) raise("the format string ends with a lone %");
    Spec spec;
    Value value;
    bool have = false;
    if (format[at] == '(') {
      const auto end = format.find(')', at);
      if (end == std::string_view::npos || !arguments.is(Kind::kDict))
        raise("%(name) needs a dict");
      const Value* found = arguments.entries().find(format.substr(at + 1, end - at - 1));
      if (found == nullptr) raise("the format string names a key that is not there");
      value = *found;
      have = named = true;
      at = end + 1;
    }
    for (;
         at < format.size() && std::string_view("-+ 0#").find(format[at]) != std::string_view::npos;
         ++at) {
      if (format[at] == '-') spec.align = '<';
      if (format[at] == '+') spec.sign = '+';
      if (format[at] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (format[at] == '0') spec.zero = true;
      if (format[at] == '#') spec.alternate = true;
    }
    spec.width = read_number(format, at);
    if (at < format.size() && format[at] == '.') {
      ++at;
      spec.precision = read_number(format, at);
    }
    if (at >= format.size()) raise("the format string ends inside a directive");
    const char type = format[at++];
    if (type == '%') {
      out += '%';
      continue;
    }
    if (!have) value = take();
    if (spec.zero && spec.align != '<' && type != 's' && type != 'r') {
      spec.fill = "0";
      spec.align = '=';
    }
    budget.take_steps(weight(value));
    std::string body;
    if (type == 's' || type == 'r') {
      body = type == 's' ? to_string(value) : repr(value);
      if (spec.precision >= 0) body = slice_text(body, 0, spec.precision, 1);
    } else if (!value.is_number()) {
      raise("%{} needs a number, not a {}", type, type_name(value));
    } else if (type == 'd' || type == 'i' || type == 'u') {
      if (!value.is_integral() && !(std::fabs(value.as_double()) < 1e37)) {
        raise("%d of a number that is no integer of 127 bits");
      }
      const Int whole = value.is_integral() ? value.as_int() : static_cast<Int>(value.as_double());
      body = format_integer(whole, spec, 'd');
    } else if ((type == 'x' || type == 'X' || type == 'o') && value.is_integral()) {
      body = format_integer(value.as_int(), spec, type);
    } else if (std::string_view("fFeEgG").find(type) != std::string_view::npos) {
      body = format_real(value.as_double(), spec, type);
    } else {
      raise("the directive %{} is not supported", type);
    }
    out += pad(std::move(body), spec, '>');
    budget.take_bytes(static_cast<std::int64_t>(spec.width) + 16);
  }
  if (is_tuple ? next < arguments.seq().items.size()
               : (next == 0 && !named && !arguments.is(Kind::kDict))) {
    raise("not all arguments were used by the format string");
  }
  budget.take_bytes(static_cast<std::int64_t>(out.size()));
  return out;
}

std::string brace_format(std::string_view format, const Arguments& arguments,
                         Interpreter& interpreter) {
  std::string out;
  std::size_t automatic = 0;
  for (std::size_t at = 0; at < format.size();) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      out += c;
      ++at;
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == c) {
      out += c;
      at += 2;
      continue;
    }
    const auto end = format.find('}', at);
    if (c == '}' || end == std::string_view::npos) raise("the format string has a single '{}'", c);
    std::string_view field = format.substr(at + 1, end - at - 1);
    at = end + 1;
    if (field.find('{') != std::string_view::npos)
      raise("nested replacement fields are not supported");
    std::string_view spec;
    if (const auto colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    const auto dot = field.find_first_of(".[");
    const std::string name(field.substr(0, dot));
    Value value;
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      if (name.size() > 4) raise("the format string names argument {}", name);
      const std::size_t index = name.empty() ? automatic++ : std::stoul(name);
      if (index >= arguments.positional.size()) raise("the format string needs more arguments");
      value = arguments.positional[index];
    } else {
      bool found = false;
      for (const auto& [key, named] : arguments.named) {
        if (key == name) {
          value = named;
          found = true;
        }
      }
      if (!found) raise("the format string names '{}', which is not given", name);
    }
    if (dot != std::string_view::npos) {
      std::string_view path = field.substr(dot);
      if (path[0] != '.' || path.find('[') != std::string_view::npos)
        raise("subscripts in a format string are not supported");
      for (const auto& part : split(path.substr(1), ".", -1))
        value = interpreter.get_attribute(value, part);
    }
    interpreter.budget().take_steps(weight(value));
    if (conversion == 'r') value = Value::string(repr(value));
    if (conversion == 's') value = Value::string(to_string(value));
    out += format_value(value, spec);
  }
  interpreter.budget().take_bytes(static_cast<std::int64_t>(out.size()));
  return out;
}

}  // namespace weft::model::jinja
