#include "weft/model/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "weft/base/hex.h"
#include "weft/model/jinja_text.h"
#include "weft/model/jinja_value.h"

namespace weft::model::jinja {
namespace {

[[noreturn]] void fail_at(std::size_t offset, std::string message) {
  throw Failure{ErrorCode::kInvalidArgument, std::move(message), offset};
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

// Longest first, so that "//" is not two "/".
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) root();
    add(TokenKind::kEnd, "", source_.size());
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return position_ + ahead < source_.size() ? source_[position_ + ahead] : '\0';
  }
  bool starts(std::string_view text) const { return source_.substr(position_).starts_with(text); }
  void add(TokenKind kind, std::string text, std::size_t offset) {
    tokens_.push_back({kind, std::move(text), offset});
  }

  std::size_t skip_space(std::size_t at) const {
    while (at < source_.size()) {
      std::size_t next = at + 1;
      while (next < source_.size() && (static_cast<unsigned char>(source_[next]) & 0xc0U) == 0x80U)
        ++next;
      const auto points = decode_utf8(source_.substr(at, next - at));
      if (!is_space(points[0])) break;
      at = next;
    }
    return at;
  }

  // Text up to the next tag, then the tag.
  void root() {
    const std::size_t begin = position_;
    std::size_t tag = begin;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        add(TokenKind::kData, std::string(source_.substr(begin)), begin);
        position_ = source_.size();
        return;
      }
      const char kind = source_[tag + 1];
      if (kind == '%' || kind == '{' || kind == '#') break;
    }
    const char kind = source_[tag + 1];
    position_ = tag + 2;
    char sign = '\0';
    if (peek() == '-' || peek() == '+') sign = source_[position_++];
    data(source_.substr(begin, tag - begin), begin, sign, kind == '{');
    if (kind == '#') {
      comment(tag);
    } else if (kind == '{') {
      add(TokenKind::kVariableBegin, "", tag);
      inside(tag, false);
    } else if (!raw(tag)) {
      add(TokenKind::kBlockBegin, "", tag);
      inside(tag, true);
    }
  }

  // Emits text before a tag, stripped as the tag's sign and lstrip_blocks ask.
  void data(std::string_view text, std::size_t offset, char sign, bool variable) {
    std::string out(text);
    if (sign == '-') {
      out = strip(text, std::nullopt, false, true);
    } else if (sign != '+' && !variable) {
      const auto newline = text.rfind('\n');
      const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) &&
          strip(text.substr(line), std::nullopt, true, true).empty()) {
        out = text.substr(0, line);
      }
    }
    if (!out.empty()) add(TokenKind::kData, std::move(out), offset);
  }

  // After "%}" or "#}" (trim_blocks) or a signed form of either or "}}".
  void end_tag(char sign, bool trims) {
    const std::size_t begin = position_;
    if (sign == '-') {
      position_ = skip_space(position_);
    } else if (sign != '+' && trims && peek() == '\n') {
      ++position_;
    }
    line_starting_ = position_ > begin && source_[position_ - 1] == '\n';
  }

  void comment(std::size_t tag) {
    const auto end = source_.find("#}", position_);
    if (end == std::string_view::npos) fail_at(tag, "the comment has no end (\"#}\")");
    char sign = '\0';
    if (end > position_ && (source_[end - 1] == '-' || source_[end - 1] == '+'))
      sign = source_[end - 1];
    position_ = end + 2;
    end_tag(sign, true);
  }

  // {% raw %} ... {% endraw %}; false if the tag is another one.
  bool raw(std::size_t tag) {
    std::size_t at = skip_space(position_);
    if (!source_.substr(at).starts_with("raw")) return false;
    at = skip_space(at + 3);
    if (source_.substr(at).starts_with("-%}")) {
      position_ = skip_space(at + 3);
    } else if (source_.substr(at).starts_with("%}")) {
      position_ = at + 2;
    } else {
      return false;
    }
    line_starting_ = source_[position_ - 1] == '\n';
    const std::size_t begin = position_;
    for (std::size_t open = begin;; ++open) {
      open = source_.find("{%", open);
      if (open == std::string_view::npos) fail_at(tag, "the raw block has no {% endraw %}");
      std::size_t name = open + 2;
      char sign = '\0';
      if (name < source_.size() && (source_[name] == '-' || source_[name] == '+'))
        sign = source_[name++];
      name = skip_space(name);
      if (!source_.substr(name).starts_with("endraw")) continue;
      name = skip_space(name + 6);
      char end_sign = '\0';
      if (name < source_.size() && (source_[name] == '-' || source_[name] == '+'))
        end_sign = source_[name++];
      if (!source_.substr(name).starts_with("%}")) continue;
      data(source_.substr(begin, open - begin), begin, sign, false);
      position_ = name + 2;
      end_tag(end_sign, true);
      return true;
    }
  }

  // Tokens of a tag up to its end.
  void inside(std::size_t tag, bool block) {
    const std::string_view end = block ? "%}" : "}}";
    std::vector<char> open;
    for (;;) {
      if (position_ >= source_.size()) {
        fail_at(tag, block ? "the tag has no end (\"%}\")" : "the expression has no end (\"}}\")");
      }
      if (open.empty()) {
        const char sign = peek() == '-' || (block && peek() == '+') ? peek() : '\0';
        if (source_.substr(position_ + (sign != '\0' ? 1 : 0)).starts_with(end)) {
          add(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "", position_);
          position_ += end.size() + (sign != '\0' ? 1 : 0);
          end_tag(sign, block);
          return;
        }
      }
      const std::size_t after_space = skip_space(position_);
      if (after_space != position_) {
        position_ = after_space;
        continue;
      }
      const char c = peek();
      if (is_digit(c)) {
        number();
      } else if (is_name_start(c)) {
        const std::size_t begin = position_;
        while (is_name_part(peek())) ++position_;
        add(TokenKind::kName, std::string(source_.substr(begin, position_ - begin)), begin);
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        symbol(open);
      }
    }
  }

  void symbol(std::vector<char>& open) {
    const auto* found = std::find_if(kOperators.begin(), kOperators.end(),
                                     [&](std::string_view op) { return starts(op); });
    if (found == kOperators.end()) {
      fail_at(position_,
              fmt::format("unexpected character {}", repr_text(source_.substr(position_, 1))));
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') {
      if (open.size() > 200) fail_at(position_, "brackets are nested more than 200 deep");
      open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail_at(position_, fmt::format("unexpected '{}'", c));
      if (open.back() != c) {
        fail_at(position_, fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      }
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(*found), position_);
    position_ += found->size();
  }

  std::size_t digits(std::size_t at) const {
    while (at < source_.size() &&
           (is_digit(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void number() {
    const std::size_t begin = position_;
    std::size_t end = digits(begin);
    bool real = false;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    const auto digit_at = [&](std::size_t at) {
      return at < source_.size() && is_digit(source_[at]);
    };
    if (!after_dot) {
      if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
        end = digits(end + 1);
        real = true;
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        std::size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
          ++exponent;
        if (digit_at(exponent)) {
          end = digits(exponent);
          real = true;
        }
      }
    }
    if (!real && end == begin + 1 && source_[begin] == '0' && end < source_.size()) {
      const char prefix = static_cast<char>(source_[end] | 0x20);
      if (prefix == 'x' || prefix == 'o' || prefix == 'b') {
        fail_at(begin, "hexadecimal, octal and binary numbers are not supported");
      }
    }
    std::string text(source_.substr(begin, end - begin));
    std::erase(text, '_');
    add(real ? TokenKind::kFloat : TokenKind::kInteger, std::move(text), begin);
    position_ = end;
  }

  void string(char quote) {
    const std::size_t begin = position_++;
    std::string out;
    for (;;) {
      if (position_ >= source_.size()) fail_at(begin, "the string has no closing quote");
      const char c = source_[position_++];
      if (c == quote) break;
      if (c != '\\') {
        out += c;
        continue;
      }
      if (position_ >= source_.size()) fail_at(begin, "the string has no closing quote");
      escape(out, begin);
    }
    add(TokenKind::kString, std::move(out), begin);
  }

  // One escape of Python's unicode-escape codec, after the backslash.
  void escape(std::string& out, std::size_t begin) {
    const char c = source_[position_++];
    switch (c) {
      case '\n':
        return;
      case '\\':
      case '\'':
      case '"':
        out += c;
        return;
      case 'a':
        out += '\a';
        return;
      case 'b':
        out += '\b';
        return;
      case 'f':
        out += '\f';
        return;
      case 'n':
        out += '\n';
        return;
      case 'r':
        out += '\r';
        return;
      case 't':
        out += '\t';
        return;
      case 'v':
        out += '\v';
        return;
      case 'x':
        return hex(out, 2, begin);
      case 'u':
        return hex(out, 4, begin);
      case 'U':
        return hex(out, 8, begin);
      case 'N':
        fail_at(begin, "\\N{...} escapes are not supported");
      default:
        break;
    }
    if (c >= '0' && c <= '7') {
      char32_t value = static_cast<char32_t>(c - '0');
      for (int i = 0; i < 2 && peek() >= '0' && peek() <= '7'; ++i) {
        value = value * 8 + static_cast<char32_t>(source_[position_++] - '0');
      }
      append_utf8(out, value);
      return;
    }
    out += '\\';
    out += c;
  }

  void hex(std::string& out, int count, std::size_t begin) {
    char32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const int digit = hex_digit(peek());
      if (digit < 0) fail_at(begin, "the string has a truncated \\x, \\u or \\U escape");
      value = value * 16 + static_cast<char32_t>(digit);
      ++position_;
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
      fail_at(begin, "the string escapes a code point that does not exist");
    }
    append_utf8(out, value);
  }

  std::string_view source_;
  std::size_t position_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

Position position_of(std::string_view source, std::size_t offset) {
  const std::string_view before = source.substr(0, std::min(offset, source.size()));
  const auto newline = before.rfind('\n');
  const std::string_view line =
      newline == std::string_view::npos ? before : before.substr(newline + 1);
  return {static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<std::size_t>(count_code_points(line)) + 1};
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace weft::model::jinja
