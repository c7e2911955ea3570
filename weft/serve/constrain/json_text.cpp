#include "weft/serve/constrain/json_text.h"

#include <algorithm>
#include <charconv>

namespace weft::serve::constrain {

namespace {

CodePoints range(char32_t first, char32_t last) {
  CodePoints out;
  out.add(first, last);
  return out;
}
CodePoints hex_digits() {
  CodePoints out = range('0', '9');
  out.add('a', 'f');
  out.add('A', 'F');
  return out;
}
// Characters that a string may hold as they are.
const CodePoints& raw_characters() {
  static const CodePoints kRaw = [] {
    CodePoints special = range(0, 0x1F);
    special.add('"', '"');
    special.add('\\', '\\');
    return special.complement();
  }();
  return kRaw;
}

std::string spelled(char32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  std::string out;
  if (c < 0x20) {
    out = fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  } else {
    append_utf8(c, out);
  }
  return out;
}

}  // namespace

Expr json_space() {
  const Expr indent = repeat(any_of(CodePoints::of(U" \t")), 0, 20);
  return optional_of(choice({text_of(" "), sequence({text_of("\n"), indent})}));
}

Expr spell_json(const CodePoints& chars) {
  std::vector<Expr> each;
  const CodePoints raw = chars.without(raw_characters().complement());
  if (!raw.empty()) each.push_back(any_of(raw));
  const CodePoints special = chars.without(raw_characters());
  for (const auto& [first, last] : special.ranges()) {
    for (char32_t c = first; c <= last; ++c) each.push_back(text_of(spelled(c)));
  }
  return choice(std::move(each));
}

Expr json_plain_character() { return spell_json(CodePoints::all()); }

Expr json_character() {
  const Expr hex = any_of(hex_digits());
  const auto d_then = [&](std::u32string_view second) {
    return sequence({any_of(CodePoints::of(U"dD")), any_of(CodePoints::of(second)), hex, hex});
  };
  CodePoints not_d = hex_digits();
  not_d = not_d.without(CodePoints::of(U"dD"));
  const Expr scalar = choice({sequence({any_of(not_d), hex, hex, hex}), d_then(U"01234567")});
  const Expr pair = sequence({d_then(U"89abAB"), text_of("\\u"), d_then(U"cdefCDEF")});
  return choice(
      {any_of(raw_characters()),
       sequence({text_of("\\"), choice({any_of(CodePoints::of(U"\"\\/bfnrt")),
                                        sequence({text_of("u"), choice({scalar, pair})})})})});
}

std::string json_spelling(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const char32_t c = take_utf8(text);
    if (c > CodePoints::kLast) break;  // JSON was read as UTF-8: does not happen
    out += spelled(c);
  }
  return out;
}

Expr json_string() {
  return sequence({text_of("\""), repeat(json_character(), 0, -1), text_of("\"")});
}

namespace {
Expr digits(std::int64_t min, std::int64_t max) {
  return repeat(any_of(range('0', '9')), min, max);
}
Expr whole(std::int64_t most) {
  return sequence(
      {optional_of(text_of("-")),
       choice({text_of("0"), sequence({any_of(range('1', '9')), digits(0, most - 1)})})});
}
}  // namespace

Expr json_integer() { return whole(18); }

Expr json_number() {
  return sequence(
      {whole(15), optional_of(sequence({text_of("."), digits(1, 15)})),
       optional_of(sequence({any_of(CodePoints::of(U"eE")),
                             optional_of(any_of(CodePoints::of(U"+-"))), digits(1, 2)}))});
}

namespace {

// A bound taken apart: sign, digits before the point without leading zeros ("0" for
// none) and behind it without trailing ones.
struct Decimal {
  bool negative = false, exclusive = false;
  std::string whole, fraction;
};

Result<Decimal> take_apart(const DecimalBound& bound) {
  Decimal out;
  out.exclusive = bound.exclusive;
  std::string_view text = bound.number;
  if (text.starts_with('-')) {
    out.negative = true;
    text.remove_prefix(1);
  }
  int exponent = 0;
  if (const auto e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    text = text.substr(0, e);
  }
  const auto point = std::min(text.find('.'), text.size());
  std::string all(text.substr(0, point));
  auto before = static_cast<std::int64_t>(all.size()) + exponent;
  if (point < text.size()) all += text.substr(point + 1);
  if (before > 300 || before < -300) {
    return fail(ErrorCode::kUnsupported, "the bound {} has more than 300 digits", bound.number);
  }
  if (before < 0) {
    all.insert(0, static_cast<std::size_t>(-before), '0');
    before = 0;
  }
  if (before > static_cast<std::int64_t>(all.size()))
    all.resize(static_cast<std::size_t>(before), '0');
  out.whole = all.substr(0, static_cast<std::size_t>(before));
  out.fraction = all.substr(static_cast<std::size_t>(before));
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
  if (out.whole.empty()) out.whole = "0";
  out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
  if (out.whole == "0" && out.fraction.empty()) out.negative = false;
  return out;
}

// How the digits read so far compare with those of one bound.
struct Comparison {
  std::int16_t whole = 0;     // -1, 0, 1: the first difference of the digits before the point
  std::int16_t fraction = 0;  // the same behind it
  std::int16_t at = 0;        // digits behind the point, up to those of the bound
  auto operator<=>(const Comparison&) const = default;
};

struct NumberState {
  enum Phase : std::int8_t { kStart, kMinus, kZero, kWhole, kPoint, kFraction };
  Phase phase = kStart;
  bool negative = false, nonzero = false;
  std::int16_t count = 0;   // digits before the point
  std::int16_t digits = 0;  // all digits
  Comparison low, high;
  auto operator<=>(const NumberState&) const = default;
};

class Between {
 public:
  Between(std::optional<Decimal> low, std::optional<Decimal> high, bool integers)
      : low_(std::move(low)), high_(std::move(high)), integers_(integers) {
    most_ = integers ? 18 : 15;
    for (const auto* bound : {&low_, &high_}) {
      if (*bound && integers) {
        most_ = std::max(most_, static_cast<std::int16_t>((*bound)->whole.size()));
      }
    }
  }

  bool step(NumberState s, std::uint8_t byte, NumberState& next) const {
    next = s;
    const char c = static_cast<char>(byte);
    if (c == '-') {
      next.phase = NumberState::kMinus;
      next.negative = true;
      return s.phase == NumberState::kStart;
    }
    if (c == '.') {
      next.phase = NumberState::kPoint;
      return !integers_ && (s.phase == NumberState::kZero || s.phase == NumberState::kWhole);
    }
    if (c < '0' || c > '9' || s.digits >= most_) return false;
    const bool behind = s.phase == NumberState::kPoint || s.phase == NumberState::kFraction;
    if (s.phase == NumberState::kZero) return false;  // no leading zeros
    if (low_) compare(*low_, c, behind, s.count, next.low);
    if (high_) compare(*high_, c, behind, s.count, next.high);
    ++next.digits;
    next.nonzero = s.nonzero || c != '0';
    if (behind) {
      next.phase = NumberState::kFraction;
      return true;
    }
    ++next.count;
    next.phase = s.count == 0 && c == '0' ? NumberState::kZero : NumberState::kWhole;
    return true;
  }

  bool final(const NumberState& s) const {
    if (s.phase != NumberState::kZero && s.phase != NumberState::kWhole &&
        s.phase != NumberState::kFraction) {
      return false;
    }
    if (s.negative && !s.nonzero) return false;
    if (low_) {
      const int order = compared(*low_, s.low, s);
      if (order < 0 || (order == 0 && low_->exclusive)) return false;
    }
    if (high_) {
      const int order = compared(*high_, s.high, s);
      if (order > 0 || (order == 0 && high_->exclusive)) return false;
    }
    return true;
  }

 private:
  static void compare(const Decimal& bound, char c, bool behind, std::int16_t count,
                      Comparison& state) {
    if (!behind) {
      const auto at = static_cast<std::size_t>(count);
      if (state.whole != 0 || at >= bound.whole.size()) return;
      state.whole = static_cast<std::int16_t>(c < bound.whole[at]   ? -1
                                              : c > bound.whole[at] ? 1
                                                                    : 0);
      return;
    }
    if (state.fraction != 0) return;
    const auto at = static_cast<std::size_t>(state.at);
    const char other = at < bound.fraction.size() ? bound.fraction[at] : '0';
    if (at < bound.fraction.size()) ++state.at;
    state.fraction = static_cast<std::int16_t>(c < other ? -1 : c > other ? 1 : 0);
  }
  // -1, 0 or 1: the number against the bound, with signs.
  static int compared(const Decimal& bound, const Comparison& state, const NumberState& s) {
    if (s.negative != bound.negative) return s.negative ? -1 : 1;
    int size = 0;
    const auto length = static_cast<std::int16_t>(bound.whole.size());
    if (s.count != length) {
      size = s.count < length ? -1 : 1;
    } else if (state.whole != 0) {
      size = state.whole;
    } else if (state.fraction != 0) {
      size = state.fraction;
    } else if (static_cast<std::size_t>(state.at) < bound.fraction.size()) {
      size = -1;  // what is left of the bound has a digit that is not 0
    }
    return s.negative ? -size : size;
  }

  std::optional<Decimal> low_, high_;
  bool integers_;
  std::int16_t most_ = 0;
};

}  // namespace

Result<Automaton> numbers_between(const std::optional<DecimalBound>& low,
                                  const std::optional<DecimalBound>& high, bool integers) {
  std::optional<Decimal> from, to;
  if (low) {
    WEFT_ASSIGN(from, take_apart(*low));
  }
  if (high) {
    WEFT_ASSIGN(to, take_apart(*high));
  }
  const Between between(from, to, integers);
  return explore<NumberState>(
      {},
      [&](const NumberState& s, std::uint8_t byte, NumberState& next) {
        return between.step(s, byte, next);
      },
      [&](const NumberState& s) { return between.final(s); });
}

Automaton multiples_of(std::int64_t divisor) {
  // -2 start, -3 after the sign, else the remainder of the digits so far.
  return explore<std::int64_t>(
      -2,
      [&](const std::int64_t& s, std::uint8_t byte, std::int64_t& next) {
        if (byte == '-') {
          next = -3;
          return s == -2;
        }
        if (byte < '0' || byte > '9') return false;
        next = ((s < 0 ? 0 : s) * 10 + (byte - '0')) % divisor;
        return true;
      },
      [](const std::int64_t& s) { return s == 0; });
}

std::optional<std::string_view> format_pattern(std::string_view format) {
#define WEFT_DATE                                                                        \
  "[12][0-9]{3}-((01|03|05|07|08|10|12)-(0[1-9]|[12][0-9]|3[01])|(04|06|09|11)-(0[1-9]|" \
  "[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define WEFT_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
  if (format == "date") return WEFT_DATE;
  if (format == "time") return WEFT_TIME;
  if (format == "date-time") return WEFT_DATE "T" WEFT_TIME;
  if (format == "uuid") return "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
  if (format == "ipv4") {
    return "((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|"
           "[1-9]?[0-9])";
  }
  if (format == "email")
    return "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+){0,4}@[A-Za-z0-9]+(\\.[A-Za-z0-9]+){1,4}";
#undef WEFT_DATE
#undef WEFT_TIME
  return std::nullopt;
}

}  // namespace weft::serve::constrain
