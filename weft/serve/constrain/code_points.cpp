#include "weft/serve/constrain/code_points.h"

#include <algorithm>

namespace weft::serve::constrain {

namespace {

using Range = std::pair<char32_t, char32_t>;

constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

int encode(char32_t c, std::array<std::uint8_t, 4>& out) {
  const auto tail = [&](int shift) {
    return static_cast<std::uint8_t>(0x80U | ((c >> shift) & 0x3FU));
  };
  if (c < 0x80) {
    out[0] = static_cast<std::uint8_t>(c);
    return 1;
  }
  if (c < 0x800) {
    out = {static_cast<std::uint8_t>(0xC0U | (c >> 6U)), tail(0)};
    return 2;
  }
  if (c < 0x10000) {
    out = {static_cast<std::uint8_t>(0xE0U | (c >> 12U)), tail(6), tail(0)};
    return 3;
  }
  out = {static_cast<std::uint8_t>(0xF0U | (c >> 18U)), tail(12), tail(6), tail(0)};
  return 4;
}

// Cuts [first, last], all of one encoded length, where a byte behind the first that
// differs does not run over its whole range (as Ken Thompson's utf8 ranges in RE2).
void split(char32_t first, char32_t last, int length, std::vector<ByteRun>& out) {
  for (int i = 1; i < length; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      split(first, first | mask, length, out);
      split((first | mask) + 1, last, length, out);
      return;
    }
    if ((last & mask) != mask) {
      split(first, (last & ~mask) - 1, length, out);
      split(last & ~mask, last, length, out);
      return;
    }
  }
  std::array<std::uint8_t, 4> low{}, high{};
  ByteRun run;
  run.length = encode(first, low);
  encode(last, high);
  for (std::size_t i = 0; i < static_cast<std::size_t>(run.length); ++i) {
    run.bytes[i] = {low[i], high[i]};
  }
  out.push_back(run);
}

}  // namespace

CodePoints CodePoints::all() { return CodePoints().complement(); }

CodePoints CodePoints::of(std::u32string_view each) {
  CodePoints out;
  for (const char32_t c : each) out.add(c, c);
  return out;
}

void CodePoints::add(char32_t first, char32_t last) {
  last = std::min(last, kLast);
  if (first > last) return;
  if (first <= kLastSurrogate && last >= kFirstSurrogate) {
    if (first < kFirstSurrogate) add(first, kFirstSurrogate - 1);
    if (last > kLastSurrogate) add(kLastSurrogate + 1, last);
    return;
  }
  auto from =
      std::ranges::lower_bound(ranges_, first, {}, [](const Range& r) { return r.second + 1; });
  auto to = from;
  while (to != ranges_.end() && to->first <= last + 1) {
    first = std::min(first, to->first);
    last = std::max(last, to->second);
    ++to;
  }
  from = ranges_.erase(from, to);
  ranges_.insert(from, {first, last});
}

void CodePoints::add(const CodePoints& other) {
  for (const auto& [first, last] : other.ranges_) add(first, last);
}

CodePoints CodePoints::complement() const {
  CodePoints out;
  char32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) out.add(next, first - 1);
    next = last + 1;
  }
  if (next <= kLast) out.add(next, kLast);
  return out;
}

CodePoints CodePoints::without(const CodePoints& other) const {
  CodePoints kept = complement();
  kept.add(other);
  return kept.complement();
}

bool CodePoints::contains(char32_t c) const {
  const auto at = std::ranges::lower_bound(ranges_, c, {}, &Range::second);
  return at != ranges_.end() && at->first <= c;
}

std::vector<ByteRun> utf8_runs(const CodePoints& set) {
  static constexpr std::array<char32_t, 4> kLastOfLength = {0x7F, 0x7FF, 0xFFFF, CodePoints::kLast};
  std::vector<ByteRun> out;
  for (auto [first, last] : set.ranges()) {
    for (int length = 1; length <= 4 && first <= last; ++length) {
      const char32_t end = kLastOfLength[static_cast<std::size_t>(length - 1)];
      if (first > end) continue;
      split(first, std::min(last, end), length, out);
      first = end + 1;
    }
  }
  return out;
}

void append_utf8(char32_t c, std::string& out) {
  std::array<std::uint8_t, 4> bytes{};
  const int length = encode(c, bytes);
  for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i) {
    out += static_cast<char>(bytes[i]);
  }
}

char32_t take_utf8(std::string_view& text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  std::size_t length = 0;
  char32_t c = 0;
  if (lead < 0x80) {
    length = 1;
    c = lead;
  } else if (lead >= 0xC2 && lead < 0xE0) {
    length = 2;
    c = lead & 0x1FU;
  } else if (lead >= 0xE0 && lead < 0xF0) {
    length = 3;
    c = lead & 0x0FU;
  } else if (lead >= 0xF0 && lead < 0xF5) {
    length = 4;
    c = lead & 0x07U;
  }
  if (length == 0 || text.size() < length) return 0xFFFFFFFF;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0xFFFFFFFF;
    c = (c << 6U) | (byte(i) & 0x3FU);
  }
  static constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (c < kLeast[length] || c > CodePoints::kLast ||
      (c >= kFirstSurrogate && c <= kLastSurrogate)) {
    return 0xFFFFFFFF;
  }
  text.remove_prefix(length);
  return c;
}

}  // namespace weft::serve::constrain
