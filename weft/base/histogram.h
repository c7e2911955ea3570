// Histogram: a distribution in buckets of equal relative width, with quantiles
// of a stated error. Two of the same error merge without loss (DDSketch: Masson,
// Rim, Lee, VLDB 2019, section 2).
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

// Takes any finite value; others are counted and otherwise ignored. A value and
// a quantile differ by at most `relative_error` of the true one. Copyable; not
// for concurrent use of one object.
class Histogram {
 public:
  explicit Histogram(double relative_error = 0.01);  // in (0, 0.5)

  void add(double value, std::uint64_t count = 1);
  // Both must have the same relative error.
  void merge(const Histogram& other);

  std::uint64_t count() const { return count_; }
  std::uint64_t ignored() const { return ignored_; }  // NaN and infinities
  double sum() const { return sum_; }
  double mean() const;  // 0 when empty, as the rest
  double min() const { return count_ == 0 ? 0 : min_; }
  double max() const { return count_ == 0 ? 0 : max_; }
  // The value of rank ceil(q * count) (the least for q = 0); q in [0, 1].
  double quantile(double q) const;
  double relative_error() const { return relative_error_; }

 private:
  // Counts of the buckets first, first + 1, ...; bucket i holds the magnitudes
  // in (gamma^(i-1), gamma^i].
  struct Buckets {
    std::int32_t first = 0;
    std::vector<std::uint64_t> counts;
    void add(std::int32_t bucket, std::uint64_t count);
    void merge(const Buckets& other);
  };
  std::int32_t bucket_of(double magnitude) const;
  double middle_of(std::int32_t bucket) const;

  double relative_error_;
  double gamma_;
  double log_gamma_;
  Buckets positive_;
  Buckets negative_;  // by magnitude
  std::uint64_t zeros_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t ignored_ = 0;
  double sum_ = 0;
  double min_ = 0;
  double max_ = 0;
};

}  // namespace weft
