#include "weft/sched/view.h"

namespace weft::sched {
namespace {

Json job_json(const JobView& job) {
  return Json::array({job.id, job.gpus, job.submit_s, job.attained_gpu_s, job.expected_run_s,
                      job.remaining_s, job.spread_speed, job.waiting_since_s});
}

Json shares_json(std::span<const NodeShare> shares) {
  Json list = Json::array();
  for (const NodeShare& share : shares) list.push_back(Json::array({share.node, share.gpus}));
  return list;
}

Result<JobView> job_of(const Json& row) {
  if (!row.is_array() || row.size() != 8) {
    return fail(ErrorCode::kCorrupt, "a recorded job has {} fields where 8 are written",
                row.size());
  }
  for (const Json& cell : row) {
    if (!cell.is_number())
      return fail(ErrorCode::kCorrupt, "a recorded job has a field that is no number");
  }
  return JobView{.id = row[0].get<JobId>(),
                 .gpus = row[1].get<std::int32_t>(),
                 .submit_s = row[2].get<double>(),
                 .attained_gpu_s = row[3].get<double>(),
                 .expected_run_s = row[4].get<double>(),
                 .remaining_s = row[5].get<double>(),
                 .spread_speed = row[6].get<double>(),
                 .waiting_since_s = row[7].get<double>()};
}

}  // namespace

Json to_json(const ClusterView& view) {
  Json queued = Json::array(), running = Json::array();
  for (const JobView& job : view.queued) queued.push_back(job_json(job));
  for (std::size_t i = 0; i < view.running.size(); ++i) {
    const RunningView& run = view.running[i];
    running.push_back(Json::array({run.start_s, run.expected_end_s, shares_json(run.shares),
                                   job_json(view.running_jobs[i])}));
  }
  return {{"now_s", view.now_s},
          {"node_gpus", std::vector<std::int32_t>(view.node_gpus.begin(), view.node_gpus.end())},
          {"node_free", std::vector<std::int32_t>(view.node_free.begin(), view.node_free.end())},
          {"queued", std::move(queued)},
          {"running", std::move(running)}};
}

Result<RecordedView> view_from_json(const Json& json) {
  RecordedView record;
  WEFT_ASSIGN(record.view.now_s, json_field<double>(json, "now_s"));
  for (const auto& [key, into] :
       {std::pair{"node_gpus", &record.node_gpus}, std::pair{"node_free", &record.node_free}}) {
    WEFT_ASSIGN(const Json* list, json_field<const Json*>(json, key));
    if (!list->is_array()) return fail(ErrorCode::kCorrupt, "\"{}\" is no list", key);
    for (const Json& value : *list) {
      if (!value.is_number_integer())
        return fail(ErrorCode::kCorrupt, "\"{}\" holds no whole number", key);
      into->push_back(value.get<std::int32_t>());
    }
  }
  WEFT_ASSIGN(const Json* queued, json_field<const Json*>(json, "queued"));
  for (const Json& row : *queued) {
    WEFT_ASSIGN(const JobView job, job_of(row));
    record.queued.push_back(job);
  }
  WEFT_ASSIGN(const Json* running, json_field<const Json*>(json, "running"));
  record.shares.reserve(running->size());
  for (const Json& row : *running) {
    if (!row.is_array() || row.size() != 4 || !row[2].is_array()) {
      return fail(ErrorCode::kCorrupt, "a recorded run is not [start, end, shares, job]");
    }
    WEFT_ASSIGN(const JobView job, job_of(row[3]));
    auto& shares = record.shares.emplace_back();
    for (const Json& share : row[2]) {
      if (!share.is_array() || share.size() != 2)
        return fail(ErrorCode::kCorrupt, "a share is not [node, gpus]");
      shares.push_back({share[0].get<std::int32_t>(), share[1].get<std::int32_t>()});
    }
    record.running_jobs.push_back(job);
    record.running.push_back({.id = job.id,
                              .gpus = job.gpus,
                              .start_s = row[0].get<double>(),
                              .expected_end_s = row[1].get<double>(),
                              .shares = shares});
  }
  record.view.node_gpus = record.node_gpus;
  record.view.node_free = record.node_free;
  record.view.queued = record.queued;
  record.view.running = record.running;
  record.view.running_jobs = record.running_jobs;
  return record;
}

Json to_json(const Decision<SchedActions>& decision) {
  Json start = Json::array(), rejected = Json::array();
  for (const Start& one : decision.chosen.start) {
    start.push_back(Json::array({one.id, shares_json(one.shares)}));
  }
  for (const Rejected& one : decision.rejected) {
    rejected.push_back({{"what", one.what}, {"why", one.why}, {"cost", one.cost}});
  }
  return {{"preempt", decision.chosen.preempt},
          {"start", std::move(start)},
          {"wake_s", decision.chosen.wake_s},
          {"rejected", std::move(rejected)},
          {"reason", decision.reason}};
}

}  // namespace weft::sched
