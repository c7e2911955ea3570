// Policies that rank all jobs and preempt: shortest remaining time first, and attained
// service as in Tiresias (Gu et al., NSDI 2019: discretised two-dimensional LAS).
#pragma once

#include "weft/sched/view.h"

namespace weft::sched {

enum class Ranking : std::uint8_t {
  kRemaining,  // least remaining time first
  kAttained,   // queue by attained GPU seconds, then by submission
};

struct PreemptiveSettings {
  std::string name = "srtf";
  Ranking ranking = Ranking::kRemaining;
  double round_s = 0;
  // GPU seconds at which a job falls to the next queue (the paper's two queues of its
  // testbed, one GPU hour; section 5.1).
  std::vector<double> thresholds = {3600};
};

class PreemptivePolicy final : public SchedPolicy {
 public:
  explicit PreemptivePolicy(PreemptiveSettings settings) : settings_(std::move(settings)) {}
  std::string_view name() const override { return settings_.name; }
  double round_s() const override { return settings_.round_s; }
  Decision<SchedActions> decide(const ClusterView& view, bool explain) const override;

 private:
  PreemptiveSettings settings_;
};

}  // namespace weft::sched
