#include "weft/workload/job_formats.h"

#include <array>
#include <vector>

#include "weft/workload/trace_format.h"

namespace weft::workload {
namespace {

using enum JobField;

// adaptdl's extract of the Philly log (petuum/adaptdl, branch osdi21-artifact).
constexpr JobColumn kPhillyCsv[] = {
    {kSubmit, "timestamp"}, {kRun, "duration"}, {kGpus, "num_gpus"}, {kVc, "cluster"}};
// S-Lab HeliosData cluster_log.csv.
constexpr JobColumn kHelios[] = {
    {kName, "job_id"},        {kUser, "user"},           {kVc, "vc"},
    {kGpus, "gpu_num"},       {kCpus, "cpu_num", false}, {kState, "state"},
    {kSubmit, "submit_time"}, {kStart, "start_time"},    {kEnd, "end_time"},
    {kRun, "duration"}};
// InternLM/AcmeTrace trace_seren.csv and trace_kalos.csv.
constexpr JobColumn kAcme[] = {{kName, "job_id"},        {kUser, "user"},        {kGpus, "gpu_num"},
                               {kCpus, "cpu_num"},       {kModel, "type"},       {kState, "state"},
                               {kSubmit, "submit_time"}, {kStart, "start_time"}, {kEnd, "end_time"},
                               {kRun, "duration"}};
// alibaba/clusterdata v2023 pods; the generated variants lack the last columns.
constexpr JobColumn kOpenb[] = {{kName, "name"},
                                {kCpuMilli, "cpu_milli"},
                                {kMemoryMib, "memory_mib"},
                                {kGpus, "num_gpu"},
                                {kGpuMilli, "gpu_milli"},
                                {kModel, "gpu_spec", false},
                                {kState, "pod_phase", false},
                                {kSubmit, "creation_time", false},
                                {kStart, "scheduled_time", false},
                                {kEnd, "deletion_time", false}};
// AlibabaPAI/reconfigurable-dl-scheduler workloads.
constexpr JobColumn kRubick[] = {
    {kName, "name"},     {kSubmit, "submission_time"}, {kRun, "duration"}, {kModel, "application"},
    {kGpus, "num_gpus"}, {kCpus, "num_cpus"},          {kSteps, "steps"},  {kGuaranteed, "is_sla"}};
// sUntvoOk/EasyScale_info_for_SC23 workloads/test.csv: work in epochs only.
constexpr JobColumn kEasyScale[] = {{kName, "name"},
                                    {kSubmit, "time"},
                                    {kModel, "application"},
                                    {kGpus, "max_parallelism"},
                                    {kSteps, "epochs"}};
// Pollux and Sia workloads: work by application only.
constexpr JobColumn kPollux[] = {
    {kName, "name"}, {kSubmit, "time"}, {kModel, "application"}, {kGpus, "num_replicas"}};
// SymbioticLab/Tiresias 60_job.csv.
constexpr JobColumn kTiresias[] = {{kName, "job_id"},        {kGpus, "num_gpu"},
                                   {kSubmit, "submit_time"}, {kSteps, "iterations", false},
                                   {kModel, "model_name"},   {kRun, "duration"}};
// alibaba/clusterdata v2026 spot jobs; gpu_request is for one worker.
constexpr JobColumn kSpot[] = {
    {kName, "job_name"},      {kVc, "organization"}, {kModel, "gpu_model"}, {kGpus, "gpu_request"},
    {kSubmit, "submit_time"}, {kRun, "duration"},    {kState, "job_type"}};
constexpr JobColumn kWeftJobs[] = {
    {kName, "job"},     {kSubmit, "submit_s"},  {kRun, "run_s"},          {kGpus, "gpus"},
    {kVc, "vc", false}, {kUser, "user", false}, {kModel, "model", false}, {kState, "end", false}};

constexpr std::array<JobCsvFormat, 10> kCsv = {{
    {"weft-jobs", kWeftJobs},
    {"rubick", kRubick},
    {"tiresias", kTiresias, true},
    {"helios", kHelios},
    {"acme", kAcme},
    {"philly-csv", kPhillyCsv, true},
    {"spot-2026", kSpot},
    {"openb-pods", kOpenb},
    {"easyscale", kEasyScale, true},
    {"pollux", kPollux},
}};

template <std::size_t I>
bool fits(const TraceHead& head) {
  std::vector<std::string_view> names;
  for (const JobColumn& column : kCsv[I].columns) {
    if (column.needed) names.push_back(column.name);
  }
  return has_columns(head, names);
}

std::size_t tabs(const TraceHead& head) {
  std::size_t count = 0;
  if (head.lines.empty()) return 0;
  for (const char c : head.lines.front()) count += c == '\t';
  return count;
}
bool is_gavel(const TraceHead& head) {
  return (tabs(head) == 9 || tabs(head) == 6) && !head.lines.front().starts_with('{');
}
// The rows' keys are on the first line only where the file is one long line; otherwise
// the format must be named.
bool is_philly_json(const TraceHead& head) {
  return head.starts_json_array && head.lines.front().find("\"attempts\"") != std::string::npos;
}

constexpr std::array<TraceFormat, 12> kFormats = {{
    {"weft-jobs", TraceKind::kJob, "Weft's own job rows: job,submit_s,run_s,gpus,...", &fits<0>},
    {"rubick", TraceKind::kJob, "Rubick workloads", &fits<1>},
    {"tiresias", TraceKind::kJob, "Tiresias job tables", &fits<2>},
    {"helios", TraceKind::kJob, "Helios cluster_log.csv", &fits<3>},
    {"acme", TraceKind::kJob, "Acme trace_seren.csv, trace_kalos.csv", &fits<4>},
    {"philly-csv", TraceKind::kJob, "Philly as adaptdl's CSV", &fits<5>},
    {"spot-2026", TraceKind::kJob, "Alibaba v2026 spot jobs", &fits<6>},
    {"openb-pods", TraceKind::kJob, "Alibaba v2023 pods", &fits<7>},
    {"easyscale", TraceKind::kJob, "EasyScale workloads", &fits<8>},
    {"pollux", TraceKind::kJob, "Pollux and Sia workloads", &fits<9>},
    {"gavel", TraceKind::kJob, "Gavel .trace, 7 or 10 fields", &is_gavel},
    {"philly", TraceKind::kJob, "Philly cluster_job_log (JSON)", &is_philly_json},
}};

}  // namespace

std::span<const JobCsvFormat> job_csv_formats() { return kCsv; }
std::span<const TraceFormat> job_formats() { return kFormats; }

}  // namespace weft::workload
