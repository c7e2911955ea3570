#include "weft/model/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace weft::model::jinja {
namespace {

// Reads one code point at `position` and moves past it.
char32_t next_code_point(std::string_view text, std::size_t& position) {
  const auto lead = static_cast<unsigned char>(text[position]);
  const std::size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t c = lead < 0x80   ? lead
               : lead < 0xe0 ? lead & 0x1fU
               : lead < 0xf0 ? lead & 0xfU
                             : lead & 7U;
  for (std::size_t i = 1; i < length && position + i < text.size(); ++i) {
    c = (c << 6U) | (static_cast<unsigned char>(text[position + i]) & 0x3fU);
  }
  position += length;
  return c;
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

}  // namespace

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_valid_utf8(std::string_view text) {
  std::size_t i = 0;
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  while (i < text.size()) {
    utf8proc_int32_t c = 0;
    const auto used =
        utf8proc_iterate(data + i, static_cast<utf8proc_ssize_t>(text.size() - i), &c);
    if (used <= 0) return false;
    i += static_cast<std::size_t>(used);
  }
  return true;
}

std::int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
}

std::vector<char32_t> decode_utf8(std::string_view text) {
  std::vector<char32_t> out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) out.push_back(next_code_point(text, i));
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0U | (c >> 6U));
    out += static_cast<char>(0x80U | (c & 0x3fU));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0U | (c >> 12U));
    out += static_cast<char>(0x80U | ((c >> 6U) & 0x3fU));
    out += static_cast<char>(0x80U | (c & 0x3fU));
  } else {
    out += static_cast<char>(0xf0U | (c >> 18U));
    out += static_cast<char>(0x80U | ((c >> 12U) & 0x3fU));
    out += static_cast<char>(0x80U | ((c >> 6U) & 0x3fU));
    out += static_cast<char>(0x80U | (c & 0x3fU));
  }
}

std::string encode_utf8(const std::vector<char32_t>& code_points) {
  std::string out;
  out.reserve(code_points.size());
  for (char32_t c : code_points) append_utf8(out, c);
  return out;
}

bool is_space(char32_t c) {
  // CPython's _PyUnicode_IsWhitespace.
  return (c >= 0x9 && c <= 0xd) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

SliceBounds resolve_slice(std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                          std::int64_t step, std::int64_t length) {
  const std::int64_t low = step > 0 ? 0 : -1;
  const std::int64_t high = step > 0 ? length : length - 1;
  const auto place = [&](std::optional<std::int64_t> index, std::int64_t fallback) {
    if (!index) return fallback;
    // Far beyond any length before `length` is added, so that it cannot overflow.
    std::int64_t at = std::clamp(*index, -(std::int64_t{1} << 62), std::int64_t{1} << 62);
    if (at < 0) at += length;
    return std::clamp(at, low, high);
  };
  return {place(start, step > 0 ? low : high), place(stop, step > 0 ? high : low), step};
}

std::string slice_text(std::string_view text, std::optional<std::int64_t> start,
                       std::optional<std::int64_t> stop, std::int64_t step) {
  const bool ascii = is_ascii(text);
  if (ascii && step == 1) {
    const auto bounds = resolve_slice(start, stop, 1, static_cast<std::int64_t>(text.size()));
    if (bounds.start >= bounds.stop) return {};
    return std::string(text.substr(static_cast<std::size_t>(bounds.start),
                                   static_cast<std::size_t>(bounds.stop - bounds.start)));
  }
  const auto points = decode_utf8(text);
  const auto length = static_cast<std::int64_t>(points.size());
  const auto bounds = resolve_slice(start, stop, step, length);
  std::string out;
  // Leaving before the last step keeps a step of any size from overflowing.
  if (step > 0) {
    for (std::int64_t i = bounds.start; i < bounds.stop;) {
      append_utf8(out, points[static_cast<std::size_t>(i)]);
      if (step >= bounds.stop - i) break;
      i += step;
    }
  } else {
    for (std::int64_t i = bounds.start; i > bounds.stop;) {
      append_utf8(out, points[static_cast<std::size_t>(i)]);
      if (step <= bounds.stop - i) break;
      i += step;
    }
  }
  return out;
}

std::string strip(std::string_view text, std::optional<std::string_view> characters, bool left,
                  bool right) {
  std::vector<char32_t> set;
  if (characters) set = decode_utf8(*characters);
  const auto drop = [&](char32_t c) {
    return characters ? std::find(set.begin(), set.end(), c) != set.end() : is_space(c);
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    std::size_t next = begin;
    if (!drop(next_code_point(text, next))) break;
    begin = next;
  }
  while (right && end > begin) {
    std::size_t last = end - 1;
    while (last > begin && is_continuation(text[last])) --last;
    std::size_t position = last;
    if (!drop(next_code_point(text, position))) break;
    end = last;
  }
  return std::string(text.substr(begin, end - begin));
}

std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator,
                               std::int64_t limit) {
  std::vector<std::string> out;
  if (separator) {
    std::size_t begin = 0;
    while (limit < 0 || static_cast<std::int64_t>(out.size()) < limit) {
      const auto at = text.find(*separator, begin);
      if (at == std::string_view::npos) break;
      out.emplace_back(text.substr(begin, at - begin));
      begin = at + separator->size();
    }
    out.emplace_back(text.substr(begin));
    return out;
  }
  std::size_t position = 0;
  const auto skip_space = [&] {
    while (position < text.size()) {
      std::size_t next = position;
      if (!is_space(next_code_point(text, next))) break;
      position = next;
    }
  };
  skip_space();
  while (position < text.size()) {
    if (limit >= 0 && static_cast<std::int64_t>(out.size()) == limit) {
      out.push_back(strip(text.substr(position), std::nullopt, false, true));
      return out;
    }
    const std::size_t begin = position;
    std::size_t end = position;
    while (position < text.size()) {
      std::size_t next = position;
      if (is_space(next_code_point(text, next))) break;
      position = next;
      end = next;
    }
    out.emplace_back(text.substr(begin, end - begin));
    skip_space();
  }
  return out;
}

std::vector<std::string> split_right(std::string_view text,
                                     std::optional<std::string_view> separator,
                                     std::int64_t limit) {
  if (limit < 0) return split(text, separator, -1);
  std::vector<std::string> out;
  if (separator) {
    std::size_t end = text.size();
    while (static_cast<std::int64_t>(out.size()) < limit) {
      if (end < separator->size()) break;
      const auto at = text.substr(0, end).rfind(*separator);
      if (at == std::string_view::npos) break;
      out.emplace_back(text.substr(at + separator->size(), end - at - separator->size()));
      end = at;
    }
    out.emplace_back(text.substr(0, end));
  } else {
    auto words = split(text, std::nullopt, -1);
    while (!words.empty() && static_cast<std::int64_t>(out.size()) < limit) {
      out.push_back(words.back());
      words.pop_back();
    }
    if (!words.empty()) {
      // The rest keeps its inner white space: cut as many words from the right.
      std::string rest(text);
      for (const auto& word : out) {
        rest = strip(rest, std::nullopt, false, true);
        rest.resize(rest.size() - word.size());
      }
      out.push_back(strip(rest, std::nullopt, true, true));
    }
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> out;
  std::size_t begin = 0, i = 0;
  while (i < text.size()) {
    std::size_t next = i;
    const char32_t c = next_code_point(text, next);
    const bool ends = (c >= 0xa && c <= 0xd) || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (ends) {
      if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
      out.emplace_back(text.substr(begin, (keep_ends ? next : i) - begin));
      begin = next;
    }
    i = next;
  }
  if (begin < text.size()) out.emplace_back(text.substr(begin));
  return out;
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         std::int64_t limit) {
  std::string out;
  std::int64_t done = 0;
  if (from.empty()) {
    std::size_t i = 0;
    while (limit < 0 || done < limit) {
      out += to;
      ++done;
      if (i >= text.size()) return out;
      std::size_t next = i;
      next_code_point(text, next);
      out += text.substr(i, next - i);
      i = next;
    }
    out += text.substr(i);
    return out;
  }
  std::size_t begin = 0;
  while (limit < 0 || done < limit) {
    const auto at = text.find(from, begin);
    if (at == std::string_view::npos) break;
    out += text.substr(begin, at - begin);
    out += to;
    begin = at + from.size();
    ++done;
  }
  out += text.substr(begin);
  return out;
}

std::string repr_text(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const bool twice = text.find('"') != std::string_view::npos;
  const char quote = single && !twice ? '"' : '\'';
  std::string out(1, quote);
  static constexpr char kHex[] = "0123456789abcdef";
  const auto hex = [&](char32_t c, int digits) {
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[(c >> shift) & 0xfU];
  };
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_utf8(out, c);
    } else if (c < 0x100) {
      out += "\\x";
      hex(c, 2);
    } else if (c < 0x10000) {
      out += "\\u";
      hex(c, 4);
    } else {
      out += "\\U";
      hex(c, 8);
    }
  }
  out += quote;
  return out;
}

std::string repr_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  // Shortest digits that read back, then Python's choice of notation.
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const auto e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  const std::string exponent_text(text.substr(e + 1));
  const int exponent = std::atoi(exponent_text.c_str());
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    const std::string magnitude = std::to_string(std::abs(exponent));
    if (magnitude.size() < 2) out += "0";
    return out + magnitude;
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto point = static_cast<std::size_t>(exponent + 1);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

void append_json_text(std::string& out, std::string_view text, bool ensure_ascii) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto unit = [&](char32_t c) {
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kHex[(c >> shift) & 0xfU];
  };
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(text, i);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (c < 0x20 || (ensure_ascii && c > 0x7e && c < 0x10000)) {
          unit(c);
        } else if (ensure_ascii && c >= 0x10000) {
          unit(0xd800 + ((c - 0x10000) >> 10U));
          unit(0xdc00 + ((c - 0x10000) & 0x3ffU));
        } else {
          out += text.substr(begin, i - begin);
        }
    }
  }
  out += '"';
}

}  // namespace weft::model::jinja
