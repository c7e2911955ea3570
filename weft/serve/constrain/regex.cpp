#include "weft/serve/constrain/regex.h"

#include <optional>

#include "weft/base/hex.h"

namespace weft::serve::constrain {

namespace {

constexpr char32_t kBadUtf8 = 0xFFFFFFFF;

CodePoints digits() {
  CodePoints out;
  out.add('0', '9');
  return out;
}
CodePoints words() {
  CodePoints out = digits();
  out.add('a', 'z');
  out.add('A', 'Z');
  out.add('_', '_');
  return out;
}
CodePoints spaces() { return CodePoints::of(U" \t\n\r\f\v"); }

class Reader {
 public:
  Reader(std::string_view pattern, const RegexOptions& options)
      : whole_(pattern), rest_(pattern), options_(options) {}

  Result<Expr> run() {
    if (whole_.size() > kMaxSourceBytes) {
      return fail(ErrorCode::kInvalidArgument, "the expression has more than {} bytes",
                  kMaxSourceBytes);
    }
    WEFT_ASSIGN(Expr out, alternatives(0));
    if (!rest_.empty()) return bad("has a ')' without its '('");
    return out;
  }

 private:
  std::size_t at() const { return whole_.size() - rest_.size(); }
  std::unexpected<Error> bad(std::string_view what,
                             ErrorCode code = ErrorCode::kInvalidArgument) const {
    return fail(code, "the regular expression {} (at byte {})", what, at());
  }
  std::unexpected<Error> unsupported(std::string_view what) const {
    return bad(fmt::format("uses {}, which no finite automaton can follow", what),
               ErrorCode::kUnsupported);
  }
  bool next_is(char c) const { return !rest_.empty() && rest_.front() == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  Expr spelled(const CodePoints& chars) const {
    return options_.spell ? options_.spell(chars) : any_of(chars);
  }
  Expr anything() const { return repeat(spelled(CodePoints::all()), 0, -1); }

  Result<Expr> alternatives(int depth) {
    std::vector<Expr> each;
    do {
      WEFT_ASSIGN(Expr one, alternative(depth));
      each.push_back(std::move(one));
    } while (take('|'));
    return choice(std::move(each));
  }

  Result<Expr> alternative(int depth) {
    std::vector<Expr> parts;
    bool from_begin = false, to_end = false;
    if (next_is('^')) {
      if (depth > 0) return bad("has a '^' inside a group", ErrorCode::kUnsupported);
      take('^');
      from_begin = true;
    }
    if (depth == 0 && take("\\A")) from_begin = true;
    while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
      const bool ends =
          rest_.front() == '$' || rest_.starts_with("\\z") || rest_.starts_with("\\Z");
      if (ends) {
        const std::size_t length = rest_.front() == '$' ? 1 : 2;
        if (depth > 0 || (rest_.size() > length && rest_[length] != '|')) {
          return bad("has an end anchor before its end", ErrorCode::kUnsupported);
        }
        rest_.remove_prefix(length);
        to_end = true;
        break;
      }
      WEFT_ASSIGN(Expr item, quantified(depth));
      parts.push_back(std::move(item));
    }
    if (options_.search && depth == 0) {
      if (!from_begin) parts.insert(parts.begin(), anything());
      if (!to_end) parts.push_back(anything());
    }
    return sequence(std::move(parts));
  }

  Result<Expr> quantified(int depth) {
    WEFT_ASSIGN(Expr item, atom(depth));
    for (int count = 0;; ++count) {
      std::int64_t min = 0, max = -1;
      if (take('*')) {
      } else if (take('+')) {
        min = 1;
      } else if (take('?')) {
        max = 1;
      } else if (next_is('{')) {
        WEFT_ASSIGN(const bool is_bound, bounds(min, max));
        if (!is_bound) break;
      } else {
        break;
      }
      if (count > 0) return bad("repeats a repetition; put the inner one into a group");
      if (take('+')) return unsupported("a possessive repetition");
      take('?');  // lazy: which match is found differs, which texts match does not
      item = repeat(std::move(item), min, max);
    }
    return item;
  }

  // Reads {m}, {m,} or {m,n}; false (and nothing is taken) if it is none of these.
  Result<bool> bounds(std::int64_t& min, std::int64_t& max) {
    const std::string_view before = rest_;
    take('{');
    const auto number = [&]() -> std::optional<std::int64_t> {
      std::int64_t value = 0;
      std::size_t count = 0;
      while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
        value = std::min<std::int64_t>(value * 10 + (rest_.front() - '0'), std::int64_t{1} << 40);
        rest_.remove_prefix(1);
        ++count;
      }
      return count > 0 ? std::optional(value) : std::nullopt;
    };
    const auto low = number();
    std::optional<std::int64_t> high = low;
    if (low && take(',')) high = next_is('}') ? std::optional<std::int64_t>(-1) : number();
    if (!low || !high || !take('}')) {
      rest_ = before;
      return bad("has a '{' that begins no bounds; write it as \\{");
    }
    min = *low;
    max = *high;
    if (max >= 0 && max < min) return bad(fmt::format("repeats {{{},{}}}", min, max));
    if (std::max(min, max) > kMaxRepeat) {
      return bad(fmt::format("repeats more than {} times", kMaxRepeat),
                 ErrorCode::kResourceExhausted);
    }
    return true;
  }

  Result<Expr> atom(int depth) {
    if (next_is('(')) return group(depth);
    if (next_is('[')) return bracket();
    if (next_is('\\')) {
      WEFT_ASSIGN(const CodePoints chars, escape(false));
      return spelled(chars);
    }
    if (next_is('^')) return bad("has a '^' that is not at its beginning", ErrorCode::kUnsupported);
    if (next_is('*') || next_is('+') || next_is('?')) return bad("repeats nothing");
    if (next_is('{')) return bad("has a '{' that begins no bounds; write it as \\{");
    if (take('.')) {
      CodePoints newline;
      newline.add('\n', '\n');
      if (options_.search) newline.add('\r', '\r');
      return spelled(newline.complement());
    }
    const char32_t c = take_utf8(rest_);
    if (c == kBadUtf8) return bad("is not UTF-8");
    CodePoints one;
    one.add(c, c);
    return spelled(one);
  }

  Result<Expr> group(int depth) {
    if (depth >= kMaxNesting) {
      return bad(fmt::format("nests groups more than {} deep", kMaxNesting),
                 ErrorCode::kResourceExhausted);
    }
    take('(');
    if (take('?')) {
      if (next_is('=') || next_is('!') || rest_.starts_with("<=") || rest_.starts_with("<!")) {
        return unsupported("look-around");
      }
      if (take("P<") || take('<')) {
        const std::size_t end = rest_.find('>');
        if (end == std::string_view::npos) return bad("has a group name without its '>'");
        rest_.remove_prefix(end + 1);
      } else if (!take(':')) {
        return bad("uses a flag or a kind of group that is not supported", ErrorCode::kUnsupported);
      }
    }
    WEFT_ASSIGN(Expr inside, alternatives(depth + 1));
    if (!take(')')) return bad("has a '(' without its ')'");
    return inside;
  }

  // After a backslash; in a bracket \b is a backspace.
  Result<CodePoints> escape(bool in_bracket) {
    take('\\');
    if (rest_.empty()) return bad("ends with a backslash");
    const auto one = [](char32_t c) {
      CodePoints out;
      out.add(c, c);
      return out;
    };
    const char kind = rest_.front();
    if (kind >= '1' && kind <= '9') return unsupported("a back reference");
    if (kind == 'b' && in_bracket) {
      rest_.remove_prefix(1);
      return one('\b');
    }
    static constexpr std::string_view kAssertions = "bBGKkAzZ";
    if (kAssertions.find(kind) != std::string_view::npos) {
      return unsupported(fmt::format("\\{}", kind));
    }
    if (kind == 'p' || kind == 'P') {
      return bad("uses a Unicode property, which is not supported", ErrorCode::kUnsupported);
    }
    if (kind == 'x' || kind == 'u' || kind == 'U') return hex_escape();
    if (kind == 'c') return bad("uses \\c, which is not supported", ErrorCode::kUnsupported);
    const char32_t c = take_utf8(rest_);
    switch (c) {
      case kBadUtf8:
        return bad("is not UTF-8");
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return words();
      case 'W':
        return words().complement();
      case 's':
        return spaces();
      case 'S':
        return spaces().complement();
      case 'n':
        return one('\n');
      case 't':
        return one('\t');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'a':
        return one('\a');
      case 'e':
        return one(0x1B);
      case '0':
        return one(0);
      default:
        break;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      return bad(fmt::format("uses \\{}, which means nothing here", static_cast<char>(c)));
    }
    return one(c);
  }

  Result<CodePoints> hex_escape() {
    const char kind = rest_.front();
    rest_.remove_prefix(1);
    const bool braces = take('{');
    const std::size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
    char32_t value = 0;
    std::size_t count = 0;
    while (!rest_.empty() && (braces ? count < 8 : count < digits)) {
      const int digit = hex_digit(rest_.front());
      if (digit < 0) break;
      value = value * 16 + static_cast<char32_t>(digit);
      rest_.remove_prefix(1);
      ++count;
    }
    if (braces ? count == 0 || !take('}') : count != digits) {
      return bad(fmt::format("has a \\{} without its hexadecimal digits", kind));
    }
    if (value > CodePoints::kLast || (value >= 0xD800 && value <= 0xDFFF)) {
      return bad(fmt::format("names U+{:X}, which is no character", static_cast<unsigned>(value)));
    }
    CodePoints out;
    out.add(value, value);
    return out;
  }

  Result<Expr> bracket() {
    take('[');
    const bool negated = take('^');
    CodePoints set;
    bool first = true;
    while (true) {
      if (rest_.empty()) return bad("has a '[' without its ']'");
      if (next_is(']') && !first) break;
      if (next_is(']') && options_.search) break;  // ECMA 262: [] is nothing, [^] anything
      if (rest_.starts_with("[:")) {
        return bad("uses a POSIX class, which is not supported", ErrorCode::kUnsupported);
      }
      first = false;
      WEFT_ASSIGN(const CodePoints low, bracket_item());
      if (!next_is('-') || rest_.starts_with("-]") || rest_.size() < 2) {
        set.add(low);
        continue;
      }
      take('-');
      WEFT_ASSIGN(const CodePoints high, bracket_item());
      const auto single = [](const CodePoints& s) {
        return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].second;
      };
      if (!single(low) || !single(high)) return bad("has a class as an end of a range");
      if (high.ranges()[0].first < low.ranges()[0].first) {
        return bad("has a range whose end is before its beginning");
      }
      set.add(low.ranges()[0].first, high.ranges()[0].first);
    }
    take(']');
    if (negated) set = set.complement();
    if (set.empty()) return bad("has a class without characters: nothing can match it");
    return spelled(set);
  }
  Result<CodePoints> bracket_item() {
    if (next_is('\\')) return escape(true);
    if (rest_.empty()) return bad("has a '[' without its ']'");
    const char32_t c = take_utf8(rest_);
    if (c == kBadUtf8) return bad("is not UTF-8");
    CodePoints out;
    out.add(c, c);
    return out;
  }

  std::string_view whole_, rest_;
  const RegexOptions& options_;
};

}  // namespace

Result<Expr> read_regex(std::string_view pattern, const RegexOptions& options) {
  return Reader(pattern, options).run();
}

}  // namespace weft::serve::constrain
