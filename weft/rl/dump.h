// Batch dumps: one step of a run, kept so that it can be computed again.
// Format: docs/formats/rl-run-directory.md. A dump is one safetensors file whose
// metadata holds the configuration and whose tensors are the arrays of batch.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/rl/batch.h"

namespace weft::rl {

struct Dump {
  std::int64_t step = 0;
  RlConfig config;            // resolved
  double kl_coefficient = 0;  // the controller's, in this step
  std::string why;            // "requested", or why the step was skipped
  Batch batch;
  std::vector<float> advantage, returns;  // what the step computed
  std::vector<Update> updates;
};

Status write_dump(const std::filesystem::path& path, const Dump& dump);
// kCorrupt names the array that is missing or has the wrong length.
Result<Dump> read_dump(const std::filesystem::path& path);

// Runs advantages and objectives of a dump again and compares with what it holds.
struct Replay {
  std::int64_t values = 0;     // numbers compared
  std::int64_t different = 0;  // of them, with other bits
  double largest_difference = 0;
  std::string first_difference;  // "advantage[3]: 0.5 recorded, 0.25 replayed"
  Signal signal;
  std::vector<LossSums> sums;  // of each update
};
Replay replay(const Dump& dump);

}  // namespace weft::rl
