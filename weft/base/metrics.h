// Metrics: named counters, gauges and histograms, and their exposition for
// Prometheus. Make them once, keep the reference, update it from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Only grows.
class Counter {
 public:
  void add(double amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// Counts of observations at or below each bound.
class BucketMetric {
 public:
  explicit BucketMetric(std::vector<double> bounds);
  void observe(double value);
  std::uint64_t count() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  friend class Metrics;
  std::vector<double> bounds_;  // ascending; +Inf is implied
  std::vector<std::atomic<std::uint64_t>> counts_;
  std::atomic<double> sum_{0};
};

// `count` bounds from `first`, each `factor` times the one before.
std::vector<double> exponential_bounds(double first, double factor, int count);

// A registry. Asking again for a name with equal labels gives the same metric;
// a name keeps the kind and help it was first given (WEFT_CHECK). Thread-safe;
// references live as long as the registry.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  Counter& counter(std::string_view name, std::string_view help, MetricLabels labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, MetricLabels labels = {});
  BucketMetric& histogram(std::string_view name, std::string_view help, std::vector<double> bounds,
                          MetricLabels labels = {});

  // Text exposition format 0.0.4 (text/plain; version=0.0.4), families in the
  // order they were made.
  std::string prometheus() const;

 private:
  struct Family;
  Family& family(std::string_view name, std::string_view help, int kind);
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Family>> families_;
};

}  // namespace weft
