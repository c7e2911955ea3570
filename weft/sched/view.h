// What a queue policy sees and what it answers. The live controller and the simulator
// build the same view and apply the same actions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/decision.h"
#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft::sched {

using JobId = std::uint32_t;

// GPUs of one node that a gang holds.
struct NodeShare {
  std::int32_t node = 0;
  std::int32_t gpus = 0;
  bool operator==(const NodeShare&) const = default;
};

struct JobView {
  JobId id = 0;
  std::int32_t gpus = 0;  // the gang asked for
  double submit_s = 0;
  double attained_gpu_s = 0;   // device time received so far
  double expected_run_s = 0;   // predicted run time in all, on a compact placement
  double remaining_s = 0;      // of it, what is left
  double spread_speed = 1;     // speed on more nodes than needed, against compact
  double waiting_since_s = 0;  // of the last submission or preemption
};

struct RunningView {
  JobId id = 0;
  std::int32_t gpus = 0;
  double start_s = 0;  // of this run
  double expected_end_s = 0;
  std::span<const NodeShare> shares = {};
};

// All spans outlive the call. `queued` is by (submission, id), `running` by id.
struct ClusterView {
  double now_s = 0;
  std::span<const std::int32_t> node_gpus = {};  // size of each node; 0: down
  std::span<const std::int32_t> node_free = {};
  std::span<const JobView> queued = {};
  std::span<const RunningView> running = {};
  std::span<const JobView> running_jobs = {};  // the same jobs as `running`, same order
};

struct Start {
  JobId id = 0;
  std::vector<NodeShare> shares = {};
  bool operator==(const Start&) const = default;
};

// Preemptions happen before starts.
struct SchedActions {
  std::vector<JobId> preempt = {};
  std::vector<Start> start = {};
  double wake_s = 0;  // decide again no later than this; 0: when something changes
  bool operator==(const SchedActions&) const = default;
};

// A pure function of the view: no clock, no state, no random numbers.
class SchedPolicy {
 public:
  virtual ~SchedPolicy() = default;
  virtual std::string_view name() const = 0;
  // Round-based policies decide at multiples of this; 0: at every change.
  virtual double round_s() const { return 0; }
  // `explain`: fill the rejected alternatives and the reason, which costs time.
  virtual Decision<SchedActions> decide(const ClusterView& view, bool explain) const = 0;
};

// "fifo", "backfill", "srtf", "las" (Tiresias), "philly", "strict", "spread"; the error
// lists them.
Result<std::unique_ptr<SchedPolicy>> make_policy(std::string_view name);
std::vector<std::string> policy_names();

// An owned copy of a view, for records: read back, it is equal to the byte.
struct RecordedView {
  ClusterView view = {};
  std::vector<std::int32_t> node_gpus = {}, node_free = {};
  std::vector<JobView> queued = {}, running_jobs = {};
  std::vector<RunningView> running = {};
  std::vector<std::vector<NodeShare>> shares = {};
  RecordedView() = default;
  RecordedView(RecordedView&&) = default;
  RecordedView(const RecordedView&) = delete;
};
Json to_json(const ClusterView& view);
Result<RecordedView> view_from_json(const Json& json);
Json to_json(const Decision<SchedActions>& decision);

}  // namespace weft::sched
