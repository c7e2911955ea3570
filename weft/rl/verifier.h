// A user's own verifier: a command that lives as long as the run, reads one JSON
// object a line {"prompt", "completion", "reference"} and answers each with one
// line: a number, or {"reward": number, "exact": bool}, or {"error": "..."}.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/rl/task.h"

namespace weft::rl {

struct VerifierOptions {
  std::string command = {};        // run by /bin/sh -c, in its own process group
  double reply_seconds = 10.0;     // for one line; then it is killed and restarted
  std::int64_t memory_mib = 2048;  // RLIMIT_AS of each of its processes; 0 = no limit
  std::int64_t cpu_seconds = 0;    // RLIMIT_CPU; 0 = no limit
  int attempts = 3;                // for one sample, before its reward is an error
};

// Used by one thread. The process starts with the first sample and is killed,
// with its group, when the object goes.
class Verifier {
 public:
  explicit Verifier(VerifierOptions options);
  ~Verifier();
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  // One score a reply, in order. A reply whose line cannot be had after
  // `attempts` gets an error; the others are not touched by it.
  std::vector<Score> score(std::span<const Reply> replies);

  std::int64_t restarts() const;  // after a death or a timeout
  std::int64_t errors() const;    // samples without a reward

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One answer line of a verifier.
Score parse_verifier_line(std::string_view line);

}  // namespace weft::rl
