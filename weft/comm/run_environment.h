// What `weft run` tells each rank of a job through environment variables, and how a
// program finds it again. docs/commands/run.md lists the variables.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/result.h"

namespace weft::comm {

struct RunEnvironment {
  std::string job;                   // WEFT_JOB: names shared memory
  std::uint32_t rank = 0;            // RANK
  std::uint32_t ranks = 1;           // WORLD_SIZE
  std::uint32_t attempt = 0;         // WEFT_RESTART: 0, then 1 more after each restart
  std::filesystem::path rendezvous;  // WEFT_RENDEZVOUS: a directory, another one each attempt
  bool shared_memory = true;         // WEFT_TRANSPORT: "shm" or "tcp"
  bool trace = false;                // WEFT_TRACE: "1" where ranks are to leave record rings
};

std::vector<std::pair<std::string, std::string>> to_variables(const RunEnvironment& run);

// kNotFound, naming the missing variable, outside of `weft run`; kInvalidArgument for one that
// makes no sense.
Result<RunEnvironment> run_environment();

}  // namespace weft::comm
