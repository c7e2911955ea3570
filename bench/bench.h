// The frame of `weft bench`: cases that measure ours and the peer's in turns, in
// one command, and say how far ours is from a limit of the machine.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/machine/limits.h"
#include "bench/peer.h"
#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/base/thread_pool.h"

namespace weft::bench {

struct BenchOptions {
  std::string model = "smollm2-135m-instruct";  // as `weft generate` takes it
  std::string compute = "auto";                 // of decode and prefill: auto, f32, bf16, int8
  std::string only;                             // cases whose name contains this
  std::string text;    // of tokenize and kl; empty: WikiText-2 in WEFT_DATA
  int rounds = 5;      // pairs of runs for each case
  bool peers = true;   // false: ours alone
  bool quiet = false;  // no progress
};

// One line of output. Figures are medians over the rounds; `ratio` is the median
// of ours / peer's within a round, `ratio_low` and `ratio_high` the least and the
// greatest of these.
struct CaseResult {
  std::string name;  // from the outside in: "Q4_1/seqs=1"
  std::string unit;  // "tokens/s", "steps/s", "MB/s", "events/s": more is better; "nats": less is
  double ours = 0;
  std::optional<double> peer;
  std::string peer_version;
  std::optional<double> ratio, ratio_low, ratio_high;
  double limit = 0;  // 0: none is near
  double of_limit = 0;
  std::string isa;
};
Json to_json(const CaseResult& result);

// One case: how to run ours once and what to ask of the peer, both in units a
// second; `limit` is what the machine allows.
struct Case {
  std::string name;
  std::string unit = "tokens/s";
  double limit = 0;
  std::function<Result<double>()> ours;
  std::function<Result<double>()> peer;  // empty: no peer
  std::string peer_version;
};

// Runs one discarded and `rounds` counted pairs, ours and the peer's in turns and
// each first every other time.
Result<CaseResult> run_case(const Case& bench_case, int rounds);

using Report = std::function<void(const CaseResult&)>;

// The benchmarks; each reports its cases as they end. kNotFound when the model
// has not been fetched, kUnavailable when a text is needed and none was named.
Status run_decode(const BenchOptions& options, ThreadPool& pool, const Report& report);
Status run_prefill(const BenchOptions& options, ThreadPool& pool, const Report& report);
Status run_train_step(const BenchOptions& options, ThreadPool& pool, const Report& report);
Status run_generate_batch(const BenchOptions& options, ThreadPool& pool, const Report& report);
Status run_rl_step(const BenchOptions& options, ThreadPool& pool, const Report& report);
// One thread; both sides must give equal ids.
Status run_tokenize(const BenchOptions& options, ThreadPool& pool, const Report& report);
// Mean divergence of quantised files from their F32 original, which each side computes
// for itself: the same every time, so one round.
Status run_kl(const BenchOptions& options, ThreadPool& pool, const Report& report);
Status run_codecs(const BenchOptions& options, ThreadPool& pool, const Report& report);
Status run_traffic_plan(const BenchOptions& options, ThreadPool& pool, const Report& report);
// The limit of these cases is what a token may cost (50 us), not one of the machine.
Status run_constrain(const BenchOptions& options, ThreadPool& pool, const Report& report);
// One thread; events of the simulator a second, against the 10^6 aimed at. kUnavailable
// without the Philly trace in WEFT_DATA.
Status run_job_sim(const BenchOptions& options, ThreadPool& pool, const Report& report);

struct Benchmark {
  std::string name;
  std::string what;
  Status (*run)(const BenchOptions&, ThreadPool&, const Report&);
};
const std::vector<Benchmark>& benchmarks();

}  // namespace weft::bench
