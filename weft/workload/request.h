// RequestTrace: canonical rows of requests to a model server.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft::workload {

inline constexpr std::int64_t kNsPerSecond = 1'000'000'000;

// One request. Plain data; 40 bytes.
struct Request {
  std::int64_t time_ns = 0;  // arrival, from the trace's zero
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::int32_t session = -1;      // index into RequestTrace::sessions; -1: stands alone
  std::uint16_t label = 0;        // index into RequestTrace::labels (model, kind of log)
  bool failed = false;            // the source got no answer
  float elapsed_s = -1;           // to the full answer at the source, never ours; -1 unknown
  std::uint32_t first_block = 0;  // prompt blocks: RequestTrace::block_ids[first_block, + count)
  std::uint32_t block_count = 0;

  double time_s() const { return static_cast<double>(time_ns) / kNsPerSecond; }
};

// A trace in memory, in order of time. Equal block ids mean equal prompt contents up
// to and including that block, in this trace only.
struct RequestTrace {
  std::string name;    // file it came from, or what made it
  std::string format;  // of that file
  std::vector<Request> rows;
  std::vector<std::uint64_t> block_ids;
  std::vector<std::string> labels;           // never empty once a row is there; "" where unlabelled
  std::vector<std::string> sessions;         // names
  std::uint32_t block_tokens = 0;            // tokens of one block; 0: the source has no fixed size
  bool has_times = true;                     // false: lengths only, every time is 0
  std::optional<std::int64_t> zero_unix_ns;  // the date of time 0, where the source has dates
  std::string parameters;                    // hash of what generated it; empty for recorded traces

  std::span<const std::uint64_t> blocks(const Request& row) const {
    return std::span(block_ids).subspan(row.first_block, row.block_count);
  }
  // Between the first and the last arrival.
  double span_s() const {
    return rows.empty()
               ? 0
               : static_cast<double>(rows.back().time_ns - rows.front().time_ns) / kNsPerSecond;
  }
};

}  // namespace weft::workload
