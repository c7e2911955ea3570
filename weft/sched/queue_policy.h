// Queue policies without preemption: first come first served, EASY backfill (Lifka 1995),
// and locality with bounded patience after the guidelines of the Philly study (Jeon et al.,
// USENIX ATC 2019, section 5).
#pragma once

#include "weft/sched/view.h"

namespace weft::sched {

enum class LocalityRule : std::uint8_t {
  kAny,      // start wherever it fits
  kStrict,   // only on the fewest nodes
  kPatient,  // the fewest nodes while that is expected to pay, and no longer than patience
};

struct QueueSettings {
  std::string name = "backfill";
  bool backfill = true;  // false: nobody overtakes the first waiting job
  LocalityRule locality = LocalityRule::kAny;
  double patience_share = 0.5;    // of the predicted run time
  double patience_least_s = 60;   // both bounds from the study's recommendation to keep
  double patience_most_s = 1800;  // waits within minutes
  std::size_t depth = 500;        // jobs looked at in one decision, as Slurm's bf_max_job_test
};

class QueuePolicy final : public SchedPolicy {
 public:
  explicit QueuePolicy(QueueSettings settings) : settings_(std::move(settings)) {}
  std::string_view name() const override { return settings_.name; }
  Decision<SchedActions> decide(const ClusterView& view, bool explain) const override;

 private:
  QueueSettings settings_;
};

}  // namespace weft::sched
