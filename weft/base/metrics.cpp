#include "weft/base/metrics.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "weft/base/result.h"

namespace weft {
namespace {

enum Kind { kCounter, kGauge, kHistogram };
constexpr std::string_view kKindNames[] = {"counter", "gauge", "histogram"};

bool valid_name(std::string_view name, bool label) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  return std::ranges::all_of(name, [label](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (c == ':' && !label);
  });
}

std::string escape(std::string_view text, bool quotes) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\\\";
    } else if (c == '\n') {
      escaped += "\\n";
    } else if (c == '"' && quotes) {
      escaped += "\\\"";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

// {a="x",le="0.5"}, or "" without labels.
std::string label_text(const MetricLabels& labels, std::string_view extra_name = {},
                       std::string_view extra_value = {}) {
  std::string text;
  const auto add = [&](std::string_view name, std::string_view value) {
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, escape(value, true));
  };
  for (const auto& [name, value] : labels) add(name, value);
  if (!extra_name.empty()) add(extra_name, extra_value);
  return text.empty() ? text : "{" + text + "}";
}

}  // namespace

BucketMetric::BucketMetric(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  WEFT_CHECK(std::ranges::is_sorted(bounds_), "bounds must ascend");
}

void BucketMetric::observe(double value) {
  if (std::isnan(value)) return;
  const auto bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::uint64_t BucketMetric::count() const {
  std::uint64_t total = 0;
  for (const auto& count : counts_) total += count.load(std::memory_order_relaxed);
  return total;
}

std::vector<double> exponential_bounds(double first, double factor, int count) {
  std::vector<double> bounds;
  for (int i = 0; i < count; ++i) {
    bounds.push_back(first);
    first *= factor;
  }
  return bounds;
}

struct Metrics::Family {
  struct Child {
    MetricLabels labels;
    std::variant<Counter, Gauge, BucketMetric> metric;
    template <class M, class... Args>
    Child(MetricLabels l, std::in_place_type_t<M> type, Args&&... args)
        : labels(std::move(l)), metric(type, std::forward<Args>(args)...) {}
  };
  std::string name;
  std::string help;
  int kind;
  std::vector<std::unique_ptr<Child>> children;

  template <class M, class... Args>
  M& child(MetricLabels labels, Args&&... args) {
    for (const auto& existing : children) {
      if (existing->labels == labels) return std::get<M>(existing->metric);
    }
    for (const auto& [label, value] : labels) {
      WEFT_CHECK(valid_name(label, true), "the label {} of {}", label, name);
    }
    children.push_back(std::make_unique<Child>(std::move(labels), std::in_place_type<M>,
                                               std::forward<Args>(args)...));
    return std::get<M>(children.back()->metric);
  }
};

Metrics::Metrics() = default;
Metrics::~Metrics() = default;

Metrics::Family& Metrics::family(std::string_view name, std::string_view help, int kind) {
  for (const auto& existing : families_) {
    if (existing->name != name) continue;
    WEFT_CHECK(existing->kind == kind && existing->help == help, "the metric {} is declared twice",
               name);
    return *existing;
  }
  WEFT_CHECK(valid_name(name, false), "the metric name {}", name);
  families_.push_back(
      std::make_unique<Family>(Family{std::string(name), std::string(help), kind, {}}));
  return *families_.back();
}

Counter& Metrics::counter(std::string_view name, std::string_view help, MetricLabels labels) {
  const std::lock_guard lock(mutex_);
  return family(name, help, kCounter).child<Counter>(std::move(labels));
}

Gauge& Metrics::gauge(std::string_view name, std::string_view help, MetricLabels labels) {
  const std::lock_guard lock(mutex_);
  return family(name, help, kGauge).child<Gauge>(std::move(labels));
}

BucketMetric& Metrics::histogram(std::string_view name, std::string_view help,
                                 std::vector<double> bounds, MetricLabels labels) {
  const std::lock_guard lock(mutex_);
  return family(name, help, kHistogram).child<BucketMetric>(std::move(labels), std::move(bounds));
}

std::string Metrics::prometheus() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& family : families_) {
    const std::string& name = family->name;
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escape(family->help, false), name,
                        kKindNames[family->kind]);
    for (const auto& child : family->children) {
      if (const auto* counter = std::get_if<Counter>(&child->metric)) {
        text += fmt::format("{}{} {}\n", name, label_text(child->labels), number(counter->value()));
      } else if (const auto* gauge = std::get_if<Gauge>(&child->metric)) {
        text += fmt::format("{}{} {}\n", name, label_text(child->labels), number(gauge->value()));
      } else {
        const auto& buckets = std::get<BucketMetric>(child->metric);
        std::uint64_t total = 0;
        for (std::size_t i = 0; i < buckets.counts_.size(); ++i) {
          total += buckets.counts_[i].load(std::memory_order_relaxed);
          const bool last = i == buckets.bounds_.size();
          text += fmt::format(
              "{}_bucket{} {}\n", name,
              label_text(child->labels, "le", last ? "+Inf" : number(buckets.bounds_[i])), total);
        }
        text += fmt::format("{}_sum{} {}\n{}_count{} {}\n", name, label_text(child->labels),
                            number(buckets.sum()), name, label_text(child->labels), total);
      }
    }
  }
  return text;
}

}  // namespace weft
