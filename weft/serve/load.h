// LoadTester: sends a planned stream of requests to an OpenAI-compatible server and
// measures what its users would have seen.
//
// Open loop: every request has an intended time, and its latencies count from there, not
// from when the client got round to sending it. A server that stalls cannot slow the
// clock down, so the requests it kept waiting show in the percentiles (the "coordinated
// omission" of clients that wait for an answer before they send the next request).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/workload/request.h"

namespace weft::serve {

struct LoadTarget {
  std::string host, port = "80", prefix;  // http://host:port/prefix, without "/v1"
  std::string model, api_key;
  bool chat = false;            // /v1/chat/completions instead of /v1/completions
  bool ignore_eos = true;       // ask for exactly the planned number of tokens
  Json extra = Json::object();  // merged into every request body
};
// http://HOST[:PORT][/PREFIX]; a trailing /v1 is taken off.
Result<LoadTarget> parse_target(std::string_view url);

// One request to send. Prompts are made from `content`: equal leading contents give equal
// leading text.
struct PlannedRequest {
  std::int64_t at_ns = 0;  // from the start of the run; closed loop: ignored
  std::uint32_t input_tokens = 1, output_tokens = 1;
  std::int32_t session = -1;
  std::uint32_t stage = 0;
  std::vector<std::uint64_t> blocks;  // prompt blocks of LoadPlan::block_tokens
};

struct LoadStage {
  std::string name;
  double begin_s = 0, end_s = 0;
  double rate = 0;      // open loop: requests a second asked for
  int concurrency = 0;  // closed loop
};

struct LoadPlan {
  std::string mode;
  std::vector<PlannedRequest> requests;  // open loop: by time
  std::vector<LoadStage> stages;         // at least one
  bool closed = false;                   // each stage keeps its concurrency of requests in flight
  bool session_closed = false;           // a later turn waits for the one before, then for its gap
  std::uint32_t block_tokens = 0;
  std::uint64_t seed = 0;  // of the prompts
};

enum class LoadOutcome : std::uint8_t {
  kOk,
  kRefused,      // no connection
  kTimeout,      // nothing for --timeout
  kReset,        // the connection ended before an answer began
  kTruncated,    // the stream ended before its end mark
  kMalformed,    // not what the API promises
  kTooMany,      // 429
  kUnavailable,  // 503
  kClientError,  // other 4xx
  kServerError,  // other 5xx
  kStopped,      // the run ended first
};
std::string_view to_string(LoadOutcome outcome);

// What happened to one request; times in ns from the start of the run.
struct LoadRecord {
  std::int64_t intended_ns = 0, sent_ns = -1, first_ns = -1, end_ns = -1;
  std::uint32_t input_tokens = 0, output_tokens = 0;       // planned
  std::uint32_t prompt_tokens = 0, completion_tokens = 0;  // as the server (or the stream) says
  std::uint32_t cached_tokens = 0;
  std::int32_t session = -1;
  std::uint32_t stage = 0;
  LoadOutcome outcome = LoadOutcome::kStopped;
  int status = 0;             // HTTP; 0: none came
  std::vector<float> gaps_s;  // between tokens
  bool warm = true;           // false: inside the warm-up, not reported

  double ttft_s() const { return static_cast<double>(first_ns - intended_ns) / 1e9; }
  double ttft_from_send_s() const { return static_cast<double>(first_ns - sent_ns) / 1e9; }
  double e2e_s() const { return static_cast<double>(end_ns - intended_ns) / 1e9; }
  double lateness_s() const { return static_cast<double>(sent_ns - intended_ns) / 1e9; }
  // (end-to-end - TTFT) / (tokens - 1); 0 for a single token.
  double tpot_s() const;
};

struct LoadProgress {
  double elapsed_s = 0;
  std::int64_t done = 0, failed = 0, in_flight = 0, total = 0;
  double ttft_p50_s = 0, output_rate = 0;  // of the last seconds; tokens/s
};

struct LoadOptions {
  double timeout_s = 120;      // for the whole of a request, from its sending
  double warmup_s = 0;         // requests intended before are not reported
  int max_connections = 4096;  // further requests wait, and are late
  bool stop_on_saturation = false;
  bool calibrate = true;  // learn words per token from two short requests first
  std::function<void(const LoadProgress&)> progress;  // twice a second
  const std::atomic<bool>* stop = nullptr;            // ends the run early
};

struct LoadRun {
  std::vector<LoadRecord> records;  // in the plan's order; closed loop: as started
  double wall_s = 0;
  int peak_concurrency = 0;
  bool saturated = false, stopped = false;
  double words_per_token = 1;                       // of the prompts
  std::vector<std::pair<double, int>> concurrency;  // (s, in flight), once a second
};

// Runs the plan on the calling thread: one event loop, no thread per request. Never fails
// for what the server does; kUnavailable when no connection can be made at first.
Result<LoadRun> run_load(const LoadTarget& target, const LoadPlan& plan,
                         const LoadOptions& options);

}  // namespace weft::serve
