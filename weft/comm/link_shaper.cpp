#include "weft/comm/link_shaper.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "weft/base/rng.h"

namespace weft::comm {
namespace {

// The number at the start of `text` and what follows it.
struct Quantity {
  double number = 0;
  std::string_view unit;
};
Result<Quantity> quantity(std::string_view key, std::string_view text) {
  Quantity q;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), q.number);
  if (error != std::errc() || !std::isfinite(q.number) || q.number < 0) {
    return fail(ErrorCode::kInvalidArgument,
                "link shape: {}: expected a number of 0 or more, got \"{}\"", key, text);
  }
  q.unit = text.substr(static_cast<std::size_t>(end - text.data()));
  return q;
}

Result<double> rate(std::string_view key, std::string_view text) {
  WEFT_ASSIGN(const Quantity q, quantity(key, text));
  if (q.unit.empty()) return q.number;
  if (q.unit == "k") return q.number * 1e3;
  if (q.unit == "M") return q.number * 1e6;
  if (q.unit == "G") return q.number * 1e9;
  return fail(ErrorCode::kInvalidArgument, "link shape: {}: unit \"{}\"; use k, M or G (bit/s)",
              key, q.unit);
}

Result<std::int64_t> duration(std::string_view key, std::string_view text) {
  WEFT_ASSIGN(const Quantity q, quantity(key, text));
  double ns = 0;
  if (q.unit == "ns") {
    ns = q.number;
  } else if (q.unit == "us") {
    ns = q.number * 1e3;
  } else if (q.unit == "ms") {
    ns = q.number * 1e6;
  } else if (q.unit == "s") {
    ns = q.number * 1e9;
  } else {
    return fail(ErrorCode::kInvalidArgument, "link shape: {}: unit \"{}\"; use ns, us, ms or s",
                key, q.unit);
  }
  if (ns > 1e15) {
    return fail(ErrorCode::kOutOfRange, "link shape: {}: {} is over 1,000,000 s", key, text);
  }
  return static_cast<std::int64_t>(ns);
}

Result<double> probability(std::string_view key, std::string_view text) {
  WEFT_ASSIGN(const Quantity q, quantity(key, text));
  if (!q.unit.empty() || q.number > 1) {
    return fail(ErrorCode::kInvalidArgument, "link shape: {}: expected 0 to 1, got \"{}\"", key,
                text);
  }
  return q.number;
}

}  // namespace

bool LinkShape::shapes() const {
  return bits_per_s > 0 || delay_ns > 0 || jitter_ns > 0 || loss > 0 || cut || drop > 0 ||
         duplicate > 0 || reorder > 0;
}

Result<LinkShape> parse_link_shape(std::string_view text) {
  LinkShape shape;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = item.substr(std::min(equals + 1, item.size()));
    if (item == "cut") {
      shape.cut = true;
    } else if (key == "rate") {
      WEFT_ASSIGN(shape.bits_per_s, rate(key, value));
    } else if (key == "delay") {
      WEFT_ASSIGN(shape.delay_ns, duration(key, value));
    } else if (key == "jitter") {
      WEFT_ASSIGN(shape.jitter_ns, duration(key, value));
    } else if (key == "resend") {
      WEFT_ASSIGN(shape.resend_ns, duration(key, value));
    } else if (key == "loss") {
      WEFT_ASSIGN(shape.loss, probability(key, value));
    } else if (key == "drop") {
      WEFT_ASSIGN(shape.drop, probability(key, value));
    } else if (key == "duplicate") {
      WEFT_ASSIGN(shape.duplicate, probability(key, value));
    } else if (key == "reorder") {
      WEFT_ASSIGN(shape.reorder, probability(key, value));
    } else if (key == "seed") {
      WEFT_ASSIGN(const Quantity q, quantity(key, value));
      shape.seed = static_cast<std::uint64_t>(q.number);
    } else {
      return fail(ErrorCode::kInvalidArgument,
                  "link shape: unknown \"{}\"; known: rate, delay, jitter, loss, resend, drop, "
                  "duplicate, reorder, seed, cut",
                  item);
    }
  }
  return shape;
}

void LinkShaper::reshape(LinkShape shape) {
  shape_ = shape;
  messages_ = 0;
  free_at_ns_ = 0;
}

Passage LinkShaper::admit(std::int64_t now_ns, std::int64_t bytes) {
  if (shape_.cut) return {.release_ns = std::numeric_limits<std::int64_t>::max(), .held = true};
  const Rng random(shape_.seed, RngUse::kFault, messages_++);
  // Draws by number, one for each question, so that one setting does not move another's.
  const auto draw = [&](std::uint64_t question) { return random.uniform_double(question); };
  std::int64_t out = now_ns;
  if (shape_.bits_per_s > 0) {
    const double line_ns = static_cast<double>(bytes) * 8e9 / shape_.bits_per_s;
    free_at_ns_ = std::max(now_ns, free_at_ns_) + static_cast<std::int64_t>(line_ns);
    out = free_at_ns_;
  }
  out += shape_.delay_ns;
  out += static_cast<std::int64_t>(static_cast<double>(shape_.jitter_ns) * draw(0));
  for (std::uint64_t again = 0; again < 16 && draw(8 + again) < shape_.loss; ++again) {
    out += shape_.resend_ns << std::min<std::uint64_t>(again, 4);  // back-off
  }
  Passage passage;
  if (draw(2) < shape_.reorder) {
    // Held back without moving `last_out`: the messages after it may pass.
    passage.release_ns =
        std::max(out, last_out_ns_) +
        static_cast<std::int64_t>(static_cast<double>(shape_.reorder_ns) * (0.1 + 0.9 * draw(3)));
  } else {
    last_out_ns_ = std::max(out, last_out_ns_);
    passage.release_ns = last_out_ns_;
  }
  if (draw(4) < shape_.drop) {
    passage.copies = 0;
  } else if (draw(5) < shape_.duplicate) {
    passage.copies = 2;
  }
  return passage;
}

}  // namespace weft::comm
