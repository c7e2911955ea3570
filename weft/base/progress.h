// Progress of long work, on stderr: a bar with rate and time left on a terminal,
// a plain line every few seconds in a pipe, nothing when quiet. Never on stdout.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace weft {

struct ProgressOptions {
  bool quiet = false;
  std::FILE* out = stderr;
  // How often a line appears where `out` is no terminal.
  std::chrono::milliseconds line_every{5000};
};

// One piece of work: made at its start, ends in the destructor. Any thread may
// call; updates are cheap (no output more than ten times a second).
class Progress {
 public:
  // `total` 0: unknown. `unit` names what is counted ("steps"); "B" shows bytes
  // with prefixes.
  Progress(std::string what, std::int64_t total, std::string unit, ProgressOptions options = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t amount = 1);
  void set(std::int64_t done);
  // Shown after the rate, e.g. "loss 2.31".
  void note(std::string text);
  // Writes a whole line above the bar.
  void line(const std::string& text);
  // The last state, once; further calls do nothing.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What is known at one moment, and its line without a line end; `columns` > 0
// draws a bar and keeps within that many columns.
struct ProgressView {
  std::string what;
  std::string unit;
  std::string note;
  std::int64_t done = 0;
  std::int64_t total = 0;
  double elapsed_s = 0;
  double rate = 0;  // units a second of late; 0 unknown
  bool finished = false;
};
std::string format_progress(const ProgressView& view, int columns);

}  // namespace weft
