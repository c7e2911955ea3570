#include "weft/comm/run_environment.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace weft::comm {
namespace {

Result<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return fail(ErrorCode::kNotFound,
                "{} is not set; start the program with `weft run -n N -- ...`", name);
  }
  return std::string(value);
}

Result<std::uint32_t> number(const char* name) {
  WEFT_ASSIGN(const std::string text, variable(name));
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return fail(ErrorCode::kInvalidArgument, "{}=\"{}\" is not a number from 0 on", name, text);
  }
  return value;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> to_variables(const RunEnvironment& run) {
  return {{"WEFT_JOB", run.job},
          {"RANK", std::to_string(run.rank)},
          {"WORLD_SIZE", std::to_string(run.ranks)},
          {"WEFT_RESTART", std::to_string(run.attempt)},
          {"WEFT_RENDEZVOUS", run.rendezvous.string()},
          {"WEFT_TRANSPORT", run.shared_memory ? "shm" : "tcp"},
          {"WEFT_TRACE", run.trace ? "1" : "0"}};
}

Result<RunEnvironment> run_environment() {
  RunEnvironment run;
  WEFT_ASSIGN(run.job, variable("WEFT_JOB"));
  WEFT_ASSIGN(run.rank, number("RANK"));
  WEFT_ASSIGN(run.ranks, number("WORLD_SIZE"));
  WEFT_ASSIGN(run.attempt, number("WEFT_RESTART"));
  WEFT_ASSIGN(run.rendezvous, variable("WEFT_RENDEZVOUS"));
  WEFT_ASSIGN(const std::string transport, variable("WEFT_TRANSPORT"));
  WEFT_ASSIGN(const std::string trace, variable("WEFT_TRACE"));
  if (transport != "shm" && transport != "tcp") {
    return fail(ErrorCode::kInvalidArgument, "WEFT_TRANSPORT=\"{}\": give shm or tcp", transport);
  }
  if (run.rank >= run.ranks) {
    return fail(ErrorCode::kInvalidArgument, "RANK={} is not below WORLD_SIZE={}", run.rank,
                run.ranks);
  }
  run.shared_memory = transport == "shm";
  run.trace = trace == "1";
  return run;
}

}  // namespace weft::comm
