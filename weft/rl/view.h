// What a person sees while a run goes on: a small live panel on a terminal, plain
// lines in a pipe.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "weft/rl/loop.h"

namespace weft::rl {

// Bars of eight heights for the last `width` values, scaled to their range.
std::string sparkline(const std::vector<double>& values, std::size_t width);

// Draws on `out` (stderr). Used by one thread.
class LoopView {
 public:
  LoopView(std::FILE* out, bool quiet);
  ~LoopView();
  LoopView(const LoopView&) = delete;
  LoopView& operator=(const LoopView&) = delete;

  LoopEvents events();  // valid while the view lives

 private:
  void started(const std::string& model, std::int64_t parameters, const RlConfig& config);
  void stepped(const StepMetrics& metrics, const std::vector<Group>& groups);
  void evaluated(const EvaluationMetrics& metrics);
  void message(const std::string& line);
  void draw();
  void erase();
  void print_line(const std::string& line);

  std::FILE* out_;
  bool quiet_, terminal_;
  int drawn_lines_ = 0;
  std::int64_t steps_ = 0, first_step_ = -1;
  std::string header_, sample_;
  std::vector<double> rewards_;
  StepMetrics last_;
  EvaluationMetrics evaluation_;
  bool has_evaluation_ = false;
  std::chrono::steady_clock::time_point begin_, last_output_;
};

}  // namespace weft::rl
