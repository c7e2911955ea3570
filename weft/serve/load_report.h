// What a load test found: percentiles with intervals, goodput, failures by label; as
// text, JSON, CSV and one HTML page.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/serve/load.h"
#include "weft/workload/stats.h"

namespace weft::serve {

// What a user is promised; a request without an answer meets none.
struct LoadSlo {
  std::optional<double> ttft_s, tpot_s, itl_s, e2e_s;  // itl: the longest gap of a request
  bool empty() const { return !ttft_s && !tpot_s && !itl_s && !e2e_s; }
  bool met(const LoadRecord& record) const;
};
// "ttft=0.5,tpot=0.05,e2e=10" in seconds; "200ms" is understood.
Result<LoadSlo> parse_slo(std::string_view text);

struct Interval {
  double low = 0, high = 0;
};
// Where the q-quantile of the population lies with 95 % confidence, by order statistics
// (binomial; no assumption about the form). Too few values: the sample's ends.
Interval quantile_interval(std::span<const double> sorted, double q);

struct Measured {
  workload::Summary summary;
  Interval p50, p90, p99;
  Json json() const;
};
Measured measure(std::vector<double> values);

struct StageReport {
  std::string name;
  double begin_s = 0, end_s = 0, asked_rate = 0, achieved_rate = 0;  // requests/s
  int asked_concurrency = 0;
  std::int64_t requests = 0, ok = 0;
  std::map<std::string, std::int64_t> failures;  // by label
  Measured ttft_s, ttft_from_send_s, tpot_s, itl_s, e2e_s, lateness_s;
  double input_rate = 0, output_rate = 0;  // tokens/s of answered requests
  std::int64_t input_tokens = 0, output_tokens = 0, cached_tokens = 0;
  double goodput = 0;     // requests/s that met the SLO
  double attainment = 0;  // share of all requests that did
  double mean_planned_input = 0, mean_input = 0;
  std::int64_t short_outputs = 0;  // answered with fewer tokens than asked
  Json json() const;
};

struct LoadReport {
  std::string target, mode;
  StageReport whole;
  std::vector<StageReport> stages;  // empty for a single stage
  LoadSlo slo;
  double wall_s = 0, words_per_token = 0;
  int peak_concurrency = 0;
  bool saturated = false, stopped = false;
  std::vector<std::string> notes;
  Json json() const;
  std::string text() const;
};

LoadReport report_load(const LoadPlan& plan, const LoadRun& run, const LoadSlo& slo,
                       std::string target);

// Mean and 95 % interval (Student) of each headline figure over repeated runs.
Json repeats_json(const std::vector<LoadReport>& reports);

// One row for each request, in Weft's trace format with further columns, so that
// `weft load --mode replay --trace FILE` repeats the run.
Status write_load_csv(const LoadRun& run, const std::filesystem::path& path);
Status write_load_page(const LoadReport& report, const LoadRun& run,
                       const std::filesystem::path& path);

}  // namespace weft::serve
