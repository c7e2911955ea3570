#include "weft/base/histogram.h"

#include <algorithm>
#include <cmath>

#include "weft/base/result.h"

namespace weft {

void Histogram::Buckets::add(std::int32_t bucket, std::uint64_t count) {
  if (counts.empty()) first = bucket;
  if (bucket < first) {
    counts.insert(counts.begin(), static_cast<std::size_t>(first - bucket), 0);
    first = bucket;
  }
  const auto index = static_cast<std::size_t>(bucket - first);
  if (index >= counts.size()) counts.resize(index + 1);
  counts[index] += count;
}

void Histogram::Buckets::merge(const Buckets& other) {
  for (std::size_t i = 0; i < other.counts.size(); ++i) {
    if (other.counts[i] != 0) add(other.first + static_cast<std::int32_t>(i), other.counts[i]);
  }
}

Histogram::Histogram(double relative_error)
    : relative_error_(relative_error),
      gamma_((1 + relative_error) / (1 - relative_error)),
      log_gamma_(std::log(gamma_)) {
  WEFT_CHECK(relative_error > 0 && relative_error < 0.5, "relative error {}", relative_error);
}

// With errors of 1e-3 and more, doubles of all magnitudes take under 720,000
// buckets: the index fits and the array's size is bounded.
std::int32_t Histogram::bucket_of(double magnitude) const {
  return static_cast<std::int32_t>(std::ceil(std::log(magnitude) / log_gamma_));
}

// The value whose relative distance to both ends of the bucket is equal.
double Histogram::middle_of(std::int32_t bucket) const {
  return 2 * std::exp(bucket * log_gamma_) / (gamma_ + 1);
}

void Histogram::add(double value, std::uint64_t count) {
  if (count == 0) return;
  if (!std::isfinite(value)) {
    ignored_ += count;
    return;
  }
  if (value == 0) {
    zeros_ += count;
  } else {
    (value > 0 ? positive_ : negative_).add(bucket_of(std::abs(value)), count);
  }
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = count_ == 0 ? value : std::max(max_, value);
  sum_ += value * static_cast<double>(count);
  count_ += count;
}

void Histogram::merge(const Histogram& other) {
  WEFT_CHECK(relative_error_ == other.relative_error_, "errors {} and {}", relative_error_,
             other.relative_error_);
  ignored_ += other.ignored_;
  if (other.count_ == 0) return;
  positive_.merge(other.positive_);
  negative_.merge(other.negative_);
  zeros_ += other.zeros_;
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = count_ == 0 ? other.max_ : std::max(max_, other.max_);
  sum_ += other.sum_;
  count_ += other.count_;
}

double Histogram::mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

double Histogram::quantile(double q) const {
  WEFT_CHECK(q >= 0 && q <= 1, "quantile {}", q);
  if (count_ == 0) return 0;
  const auto wanted = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_)));
  const std::uint64_t rank = std::clamp<std::uint64_t>(wanted, 1, count_);
  if (rank == 1) return min_;
  if (rank == count_) return max_;
  // Ascending: negatives from the largest magnitude, zeros, positives.
  std::uint64_t seen = 0;
  const auto within = [&](double value) { return std::clamp(value, min_, max_); };
  for (std::size_t i = negative_.counts.size(); i-- > 0;) {
    seen += negative_.counts[i];
    if (seen >= rank) return within(-middle_of(negative_.first + static_cast<std::int32_t>(i)));
  }
  seen += zeros_;
  if (seen >= rank) return 0;
  for (std::size_t i = 0; i < positive_.counts.size(); ++i) {
    seen += positive_.counts[i];
    if (seen >= rank) return within(middle_of(positive_.first + static_cast<std::int32_t>(i)));
  }
  return max_;
}

}  // namespace weft
