// Statistics of a request trace: rates, gaps, burstiness, lengths, sessions, failures,
// prefix reuse.
#pragma once

#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/workload/request.h"
#include "weft/workload/stats.h"

namespace weft::workload {

struct SessionStats {
  std::int64_t sessions = 0, requests = 0;
  Summary turns;
  double single_share = 0;  // sessions of one request
  double up_to_four_share = 0;
  Summary gap_s;  // between the turns of one session
};

// With a cache that never evicts: a request reuses the longest prefix of its blocks that
// an earlier request had.
struct PrefixStats {
  std::int64_t blocks = 0, distinct = 0, reused_blocks = 0;
  std::int64_t tokens = 0, reused_tokens = 0;  // a request's last block counts what it holds
};

struct LabelStats {
  std::string label;
  std::int64_t requests = 0, failed = 0;
};

struct RequestInfo {
  std::int64_t requests = 0, failed = 0, empty = 0;  // empty: no tokens in and none out
  double span_s = 0, rate = 0;                       // requests a second over the span
  Summary gaps_s;
  ClockCheck clock;
  std::int64_t distinct_times = 0, long_gaps = 0;  // gaps above 60 s
  double idc_1s = 0, idc_10s = 0, idc_60s = 0;
  double peak_to_mean = 0;                                              // of the counts per minute
  double hourly_autocorrelation_1d = 0, hourly_autocorrelation_7d = 0;  // 0: too short
  Summary input_tokens, output_tokens;
  double length_spearman = 0;
  SessionStats sessions;
  PrefixStats prefix;
  std::vector<LabelStats> labels;
};

RequestInfo describe_requests(const RequestTrace& trace);
Json info_json(const RequestInfo& info);
std::string info_text(const RequestTrace& trace, const RequestInfo& info);

// Arrival times in seconds, and the gaps between them.
std::vector<double> arrival_times_s(const RequestTrace& trace);
std::vector<double> gaps_of(std::span<const double> times_s);

}  // namespace weft::workload
