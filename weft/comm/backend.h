// Backend: how the ranks of one epoch of a group run a collective. Two of them: over a
// shared segment and over the transport. Private to the communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/base/deadline.h"
#include "weft/base/result.h"
#include "weft/comm/call.h"
#include "weft/comm/trace.h"

namespace weft::comm {

// One call, with everything a backend needs. Counts and offsets are in elements.
struct Work {
  Call call;
  std::size_t element = 1;  // bytes
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  Combine combine = nullptr;
  // Elements of each rank's part: of the vector for reduce-scatter and gathers; of
  // what goes to and comes from each rank in an all-to-all.
  std::span<const std::uint64_t> counts;
  std::span<const std::uint64_t> receive_counts;
  // Reductions: the logical ranks of this process, [first, first + inputs.size()) of
  // `logical_total`. Otherwise empty, and the rank is the logical rank.
  std::uint32_t logical_first = 0;
  std::uint32_t logical_total = 0;
  std::span<const std::byte* const> inputs;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Blocks until this rank's part is done. On a mismatch of the calls nothing is
  // written to `out` and the group stays usable; any other error ends the epoch.
  virtual Status run(const Work& work, Deadline deadline, Algorithm& used) = 0;
  virtual std::uint64_t operation() const = 0;  // number of the last one
  virtual void abort(const Verdict& verdict) = 0;
};

}  // namespace weft::comm
