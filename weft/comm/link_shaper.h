// LinkShaper: what a link does to the messages sent over it: rate, delay, jitter,
// loss, cut, and for tests of protocols duplicates, drops and reordering.
//
// It only decides; the transport holds the messages back. One shaper serves one
// direction of one link. All randomness comes from the seed and the number of the
// message, so a run can be repeated.
#pragma once

#include <cstdint>
#include <string_view>

#include "weft/base/result.h"

namespace weft::comm {

// Zeros mean: nothing of the kind. Times are in nanoseconds.
struct LinkShape {
  double bits_per_s = 0;       // serialisation rate of payload and headers
  std::int64_t delay_ns = 0;   // from the end of serialisation to arrival
  std::int64_t jitter_ns = 0;  // uniform in [0, jitter] on top of the delay; order is kept
  double loss = 0;             // probability that a message has to be sent again ...
  std::int64_t resend_ns = 200'000'000;  // ... after this long, as TCP's least timeout
  bool cut = false;                      // nothing passes; messages wait for the link to come back
  double drop = 0;                       // probability that a message vanishes
  double duplicate = 0;                  // probability that a message arrives twice
  double reorder = 0;                    // probability that a message is held back by ...
  std::int64_t reorder_ns = 2'000'000;   // ... up to this long, letting others pass
  std::uint64_t seed = 0;

  bool shapes() const;  // false when every message would pass untouched
};

// Reads "rate=100M,delay=5ms,jitter=1ms,loss=0.01,drop=0.1,duplicate=0.1,reorder=0.1,
// seed=3" or "cut"; rates take k, M, G (bit/s), times ns, us, ms, s.
Result<LinkShape> parse_link_shape(std::string_view text);

// When a message may leave and how many times.
struct Passage {
  std::int64_t release_ns = 0;
  int copies = 1;     // 0: it never arrives
  bool held = false;  // the link is cut: ask again when the shape changes
};

class LinkShaper {
 public:
  explicit LinkShaper(LinkShape shape = {}) : shape_(shape) {}
  const LinkShape& shape() const { return shape_; }
  // Also restarts the count of messages, so that a seed gives the same run again.
  void reshape(LinkShape shape);
  Passage admit(std::int64_t now_ns, std::int64_t bytes);

 private:
  LinkShape shape_;
  std::uint64_t messages_ = 0;
  std::int64_t free_at_ns_ = 0;   // when the line has sent what it was given
  std::int64_t last_out_ns_ = 0;  // keeps jitter from reordering
};

}  // namespace weft::comm
