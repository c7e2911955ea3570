#include "weft/serve/constrain/gbnf.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "weft/base/hex.h"

namespace weft::serve::constrain {

namespace {

constexpr char32_t kBadUtf8 = 0xFFFFFFFF;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class Reader {
 public:
  explicit Reader(std::string_view text) : whole_(text), rest_(text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') line_ends_.push_back(i);
    }
  }

  Result<Grammar> run() {
    if (whole_.size() > kMaxSourceBytes) {
      return fail(ErrorCode::kInvalidArgument, "the grammar has more than {} bytes",
                  kMaxSourceBytes);
    }
    space(true);
    while (!rest_.empty()) {
      WEFT_TRY(read_rule());
      space(true);
    }
    for (std::size_t r = 0; r < rules_.size(); ++r) {
      if (rules_[r].defined_line == 0) {
        return fail(ErrorCode::kInvalidArgument,
                    "line {}: rule '{}' is used but not defined; add \"{} ::= ...\"",
                    rules_[r].used_line, short_name(grammar_.rules[r].name),
                    short_name(grammar_.rules[r].name));
      }
    }
    const auto root = known_.find("root");
    if (root == known_.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  "the grammar has no rule 'root'; name the rule of the whole reply so");
    }
    grammar_.root = root->second;
    for (auto& rule : grammar_.rules) rule.name = fmt::format("rule '{}'", short_name(rule.name));
    return std::move(grammar_);
  }

 private:
  struct Place {
    std::int64_t used_line = 0, defined_line = 0;
  };

  static std::string short_name(const std::string& name) { return name.substr(0, 80); }
  std::int64_t line() const {
    const std::size_t at = whole_.size() - rest_.size();
    return 1 + (std::ranges::lower_bound(line_ends_, at) - line_ends_.begin());
  }
  std::unexpected<Error> bad(std::string_view what,
                             ErrorCode code = ErrorCode::kInvalidArgument) const {
    if (rule_ < 0) return fail(code, "line {}: {}", line(), what);
    return fail(code, "line {}: rule '{}': {}", line(),
                short_name(grammar_.rules[static_cast<std::size_t>(rule_)].name), what);
  }
  bool next_is(char c) const { return !rest_.empty() && rest_.front() == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void space(bool lines) {
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '#') {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        rest_.remove_prefix(1);
      } else {
        return;
      }
    }
  }
  std::string take_name() {
    const auto end = std::ranges::find_if_not(rest_, is_name);
    std::string out(rest_.begin(), end);
    rest_.remove_prefix(out.size());
    return out;
  }
  Result<int> rule_of(const std::string& name) {
    const auto [at, added] = known_.try_emplace(name, static_cast<int>(rules_.size()));
    if (added) {
      if (rules_.size() >= kMaxRules) {
        return bad(fmt::format("the grammar has more than {} rules", kMaxRules),
                   ErrorCode::kResourceExhausted);
      }
      rules_.emplace_back();
      grammar_.rules.push_back({name, {}, false});
    }
    return at->second;
  }

  Status read_rule() {
    rule_ = -1;
    const std::string name = take_name();
    if (name.empty()) {
      return bad(
          fmt::format("expected the name of a rule, found '{}'", std::string(rest_.substr(0, 20))));
    }
    space(false);
    if (!rest_.starts_with("::=")) {
      return bad(fmt::format("expected '::=' after '{}'", short_name(name)));
    }
    const std::int64_t here = line();
    rest_.remove_prefix(3);
    WEFT_ASSIGN(const int id, rule_of(name));
    rule_ = id;
    Place& place = rules_[static_cast<std::size_t>(id)];
    if (place.defined_line != 0) {
      return bad(fmt::format("is defined twice, in line {} too", place.defined_line));
    }
    place.defined_line = here;
    space(true);
    WEFT_ASSIGN(Expr body, alternatives(0));
    grammar_.rules[static_cast<std::size_t>(id)].body = std::move(body);
    if (!rest_.empty() && !next_is('\n') && !next_is('\r')) {
      return bad(fmt::format("did not expect '{}'", std::string(rest_.substr(0, 1))));
    }
    return {};
  }

  Result<Expr> alternatives(int depth) {
    std::vector<Expr> each;
    while (true) {
      WEFT_ASSIGN(Expr one, items(depth));
      each.push_back(std::move(one));
      if (!take('|')) break;
      space(true);
    }
    return choice(std::move(each));
  }

  Result<Expr> items(int depth) {
    std::vector<Expr> parts;
    while (!rest_.empty()) {
      std::optional<Expr> item;
      if (next_is('"')) {
        WEFT_ASSIGN(item, text());
      } else if (next_is('[')) {
        WEFT_ASSIGN(item, bracket());
      } else if (next_is('.')) {
        take('.');
        item = any_of(CodePoints::all());
      } else if (next_is('(')) {
        if (depth >= kMaxNesting) {
          return bad(fmt::format("nests groups more than {} deep", kMaxNesting),
                     ErrorCode::kResourceExhausted);
        }
        take('(');
        space(true);
        WEFT_ASSIGN(item, alternatives(depth + 1));
        if (!take(')')) return bad("a '(' has no ')'");
      } else if (is_name(rest_.front())) {
        const std::int64_t here = line();
        WEFT_ASSIGN(const int id, rule_of(take_name()));
        auto& used = rules_[static_cast<std::size_t>(id)].used_line;
        if (used == 0) used = here;
        item = call(id);
      } else if (next_is('<') || next_is('!')) {
        return bad("tokens in a grammar (<...>) are not supported", ErrorCode::kUnsupported);
      } else {
        break;
      }
      space(depth > 0);
      WEFT_TRY(repetition(*item, depth));
      parts.push_back(std::move(*item));
    }
    return sequence(std::move(parts));
  }

  Status repetition(Expr& item, int depth) {
    for (bool repeated = false;; repeated = true) {
      std::int64_t min = 0, max = -1;
      if (take('*')) {
      } else if (take('+')) {
        min = 1;
      } else if (take('?')) {
        max = 1;
      } else if (take('{')) {
        WEFT_TRY(bounds(min, max));
      } else {
        return {};
      }
      if (repeated) return bad("repeats a repetition; put the inner one into parentheses");
      item = repeat(std::move(item), min, max);
      space(depth > 0);
    }
  }
  Status bounds(std::int64_t& min, std::int64_t& max) {
    space(false);
    WEFT_ASSIGN(min, number());
    space(false);
    max = min;
    if (take(',')) {
      space(false);
      max = -1;
      if (!next_is('}')) {
        WEFT_ASSIGN(max, number());
      }
      space(false);
    }
    if (!take('}')) return bad("expected '}' after the bounds of a repetition");
    if (max >= 0 && max < min) return bad(fmt::format("repeats {{{},{}}} times", min, max));
    return {};
  }
  Result<std::int64_t> number() {
    std::int64_t value = 0;
    std::size_t count = 0;
    for (; !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9'; ++count) {
      value = std::min(value * 10 + (rest_.front() - '0'), kMaxRepeat + 1);
      rest_.remove_prefix(1);
    }
    if (count == 0) return bad("expected a number in the bounds of a repetition");
    if (value > kMaxRepeat) {
      return bad(fmt::format("repeats more than {} times", kMaxRepeat),
                 ErrorCode::kResourceExhausted);
    }
    return value;
  }

  Result<char32_t> character() {
    if (take('\\')) {
      if (rest_.empty()) return bad("ends with a backslash");
      const char kind = rest_.front();
      rest_.remove_prefix(1);
      switch (kind) {
        case 'n':
          return U'\n';
        case 'r':
          return U'\r';
        case 't':
          return U'\t';
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-':
        case '^':
          return static_cast<char32_t>(kind);
        case 'x':
          return hex(2);
        case 'u':
          return hex(4);
        case 'U':
          return hex(8);
        default:
          return bad(fmt::format("the escape \\{} is not known", kind));
      }
    }
    const char32_t c = take_utf8(rest_);
    if (c == kBadUtf8) return bad("is not UTF-8");
    return c;
  }
  Result<char32_t> hex(std::size_t digits) {
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const int digit = rest_.empty() ? -1 : hex_digit(rest_.front());
      if (digit < 0) return bad(fmt::format("an escape needs {} hexadecimal digits", digits));
      value = value * 16 + static_cast<char32_t>(digit);
      rest_.remove_prefix(1);
    }
    if (value > CodePoints::kLast || (value >= 0xD800 && value <= 0xDFFF)) {
      return bad(fmt::format("U+{:X} is no character", static_cast<unsigned>(value)));
    }
    return value;
  }

  Result<Expr> text() {
    take('"');
    std::string out;
    while (!next_is('"')) {
      if (rest_.empty() || next_is('\n')) return bad("a text has no closing '\"'");
      WEFT_ASSIGN(const char32_t c, character());
      append_utf8(c, out);
    }
    take('"');
    return text_of(std::move(out));
  }

  Result<Expr> bracket() {
    take('[');
    const bool negated = take('^');
    CodePoints set;
    while (!next_is(']')) {
      if (rest_.empty() || next_is('\n')) return bad("a '[' has no ']'");
      WEFT_ASSIGN(const char32_t first, character());
      char32_t last = first;
      if (next_is('-') && !rest_.starts_with("-]")) {
        take('-');
        if (rest_.empty()) return bad("a '[' has no ']'");
        WEFT_ASSIGN(last, character());
      }
      if (last < first) return bad("a range ends before it begins");
      set.add(first, last);
    }
    take(']');
    if (negated) set = set.complement();
    if (set.empty()) return bad("a class has no characters: nothing can match it");
    return any_of(std::move(set));
  }

  std::string_view whole_, rest_;
  std::vector<std::size_t> line_ends_;
  Grammar grammar_;
  std::vector<Place> rules_;
  std::unordered_map<std::string, int> known_;
  int rule_ = -1;
};

}  // namespace

Result<Grammar> read_gbnf(std::string_view text) { return Reader(text).run(); }

}  // namespace weft::serve::constrain
