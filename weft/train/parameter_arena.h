// ParameterArena: every trainable number of a model in one run of memory, with its
// gradient and AdamW moments in three more. Matrices that the forward pass stacks (q, k
// and v; gate and up) lie one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/model/config.h"
#include "weft/model/weights.h"
#include "weft/train/adamw.h"

namespace weft::train {

struct ParameterEntry {
  std::string name;  // canonical
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // offset in the arena
  std::int64_t size = 0;
};

// Stacked entries: [begin, begin + rows * columns).
struct ParameterStack {
  std::vector<std::string> names;
  std::int64_t begin = 0, rows = 0, columns = 0;  // columns 1: a vector of `rows`
  bool decay = false;                             // a matrix
};

class ParameterArena {
 public:
  ParameterArena(const model::ModelConfig& config, bool value_head);

  std::int64_t parameters() const;  // without padding
  const std::vector<ParameterEntry>& entries() const { return entries_; }
  const std::vector<ParameterStack>& stacks() const { return stacks_; }
  const ParameterEntry* find(std::string_view name) const;
  // The stack that begins with the entry `name`; null if there is none.
  const ParameterStack* stack(std::string_view first_name) const;
  const std::vector<ParameterRange>& ranges() const { return ranges_; }

  std::span<float> values() { return values_.span(); }
  std::span<float> gradients() { return gradients_.span(); }
  std::span<float> first_moment() { return m_.span(); }
  std::span<float> second_moment() { return v_.span(); }

  // One array under its canonical names.
  std::vector<model::NamedTensor> views(std::span<const float> array,
                                        std::string_view prefix = {}) const;

 private:
  // Zeroed floats on huge pages where the system has them.
  class Floats {
   public:
    explicit Floats(std::int64_t count);
    std::span<float> span() const { return {data_.get(), count_}; }

   private:
    struct Unmap {
      std::size_t bytes;
      void operator()(float* data) const;
    };
    std::size_t count_;
    std::unique_ptr<float, Unmap> data_{nullptr, Unmap{0}};
  };

  void add_stack(std::vector<std::string> names, std::vector<std::int64_t> rows,
                 std::int64_t columns);

  std::vector<ParameterEntry> entries_;
  std::vector<ParameterStack> stacks_;
  std::vector<ParameterRange> ranges_;
  std::int64_t size_ = 0;
  Floats values_{0}, gradients_{0}, m_{0}, v_{0};
};

}  // namespace weft::train
