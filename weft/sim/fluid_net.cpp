#include "weft/sim/fluid_net.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "weft/base/result.h"

namespace weft::sim {

void FlowSet::add(std::span<const std::int32_t> links, double weight) {
  WEFT_CHECK(weight > 0, "weight {}", weight);
  links_.insert(links_.end(), links.begin(), links.end());
  first_.push_back(links_.size());
  weights_.push_back(weight);
}

std::vector<double> max_min_rates(std::span<const double> capacity, const FlowSet& flows) {
  struct Link {
    double left, weight = 0;
    std::uint32_t version = 0;
    std::size_t first = 0, count = 0;  // its flows, in `crossing`
  };
  std::vector<Link> links;
  for (const double c : capacity) links.push_back({.left = c});
  for (std::size_t f = 0; f < flows.size(); ++f) {
    for (const std::int32_t l : flows.links(f)) {
      Link& link = links.at(static_cast<std::size_t>(l));
      ++link.count;
      link.weight += flows.weight(f);
    }
  }
  std::size_t total = 0;
  for (Link& link : links) {
    link.first = total;
    total += link.count;
    link.count = 0;
  }
  std::vector<std::uint32_t> crossing(total);
  for (std::size_t f = 0; f < flows.size(); ++f) {
    for (const std::int32_t l : flows.links(f)) {
      Link& link = links[static_cast<std::size_t>(l)];
      crossing[link.first + link.count++] = static_cast<std::uint32_t>(f);
    }
  }
  struct Entry {
    double share;
    std::uint32_t link, version;
    bool operator>(const Entry& other) const {
      return share != other.share ? share > other.share : link > other.link;
    }
  };
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> order;
  const auto push = [&](std::uint32_t l) {
    order.push({std::max(links[l].left, 0.0) / links[l].weight, l, links[l].version});
  };
  for (std::uint32_t l = 0; l < links.size(); ++l) {
    if (links[l].count > 0) push(l);
  }
  std::vector<double> rates(flows.size(), -1.0);
  // Sums of weights lose bits: a link is done when its flows are, not when its weight is 0.
  std::vector<std::size_t> waiting;
  for (const Link& link : links) waiting.push_back(link.count);
  std::vector<std::uint32_t> touched;
  while (!order.empty()) {
    const Entry entry = order.top();
    order.pop();
    const Link& link = links[entry.link];
    if (entry.version != link.version || waiting[entry.link] == 0) continue;
    touched.clear();
    for (std::size_t i = 0; i < link.count; ++i) {
      const std::uint32_t f = crossing[link.first + i];
      if (rates[f] >= 0) continue;
      rates[f] = entry.share * flows.weight(f);
      for (const std::int32_t l : flows.links(f)) {
        const auto other = static_cast<std::uint32_t>(l);
        links[other].left -= rates[f];
        links[other].weight -= flows.weight(f);
        --waiting[other];
        touched.push_back(other);
      }
    }
    std::ranges::sort(touched);
    touched.erase(std::ranges::unique(touched).begin(), touched.end());
    for (const std::uint32_t l : touched) {
      ++links[l].version;
      if (waiting[l] > 0) push(l);
    }
  }
  for (double& rate : rates) {
    if (rate < 0) rate = std::numeric_limits<double>::infinity();
  }
  return rates;
}

}  // namespace weft::sim
