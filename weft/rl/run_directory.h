// The files of one run: docs/formats/rl-run-directory.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "weft/base/id.h"
#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/rl/config.h"
#include "weft/rl/metrics.h"

namespace weft::rl {

// A reply of a greedy evaluation, for people.
struct EvaluatedReply {
  std::string prompt, reply, reference;
  double reward = 0;
  bool exact = false;
};

// Owned by one thread. Lines are written whole and flushed at once.
class RunDirectory {
 public:
  // A new run: refuses a directory that already holds one.
  static Result<RunDirectory> create(const std::filesystem::path& path, const RlConfig& config);
  // Goes on after `step`: lines of later steps are dropped, so that the files end
  // as if the run had never been interrupted.
  static Result<RunDirectory> reopen(const std::filesystem::path& path, std::int64_t step);
  static Result<RlConfig> read_config(const std::filesystem::path& path);

  Status add(const StepMetrics& metrics);
  Status add(const EvaluationMetrics& metrics, const std::vector<EvaluatedReply>& replies);

  RunId id() const { return id_; }  // the same over all resumptions
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path model() const { return path_ / "model"; }
  std::filesystem::path dump(std::int64_t step) const;

 private:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  Status open_logs();

  RunId id_;
  std::filesystem::path path_;
  std::ofstream metrics_, evaluations_;
};

// Lines of a JSON-lines file, as objects; a last line that was cut short is left out.
Result<std::vector<Json>> read_json_lines(const std::filesystem::path& file);

}  // namespace weft::rl
