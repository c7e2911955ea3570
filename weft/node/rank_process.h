// One rank as a process: started with its streams, CPUs and environment.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "weft/base/result.h"

namespace weft::node {

struct RankStart {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> variables;  // on top of this process's own
  std::vector<int> cpus;                                       // empty: all
  sigset_t signals;                                            // mask it starts with
};

// Reading ends, not blocking.
struct RankProcess {
  pid_t pid = 0;
  int output = -1;
  int error = -1;
};

// Forks; the child leads a process group of its own, reads /dev/null and dies with the
// calling thread. kNotFound or kInvalidArgument when the program cannot be executed.
Result<RankProcess> start_process(const RankStart& start);

}  // namespace weft::node
