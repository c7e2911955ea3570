// FluidNet: flows share links max-min fairly, as a fluid: the network model of simulations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::sim {

// Flows and the links that each crosses, one after the other in memory.
class FlowSet {
 public:
  // `weight` > 0: a flow of weight 2 gets twice what one of weight 1 gets on a shared link.
  void add(std::span<const std::int32_t> links, double weight = 1.0);
  std::size_t size() const { return weights_.size(); }
  std::span<const std::int32_t> links(std::size_t flow) const {
    return std::span(links_).subspan(first_[flow], first_[flow + 1] - first_[flow]);
  }
  double weight(std::size_t flow) const { return weights_[flow]; }

 private:
  std::vector<std::size_t> first_ = {0};
  std::vector<std::int32_t> links_;
  std::vector<double> weights_;
};

// The rate of each flow: no flow can have more without another one that has no more (by
// weight) having less. capacity[l] >= 0, in the unit of the rates; a flow that crosses no link
// gets infinity. Progressive filling: links are filled in ascending order of their fair
// share (Bertsekas & Gallager, Data Networks, 6.5.2); O((flows' links) log links).
// Equal inputs give equal bits.
std::vector<double> max_min_rates(std::span<const double> capacity, const FlowSet& flows);

}  // namespace weft::sim
