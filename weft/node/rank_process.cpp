#include "weft/node/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace weft::node {
namespace {

[[noreturn]] void become(const RankStart& start, int output, int error, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int input = ::open("/dev/null", O_RDONLY);
  ::dup2(input, 0);
  ::dup2(output, 1);
  ::dup2(error, 2);
  if (input > 2) ::close(input);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGTTOU}) ::signal(signal, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &start.signals, nullptr);
  if (!start.cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : start.cpus) {
      if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
    }
    ::sched_setaffinity(0, sizeof(set), &set);
  }
  for (const auto& [name, value] : start.variables) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : start.command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int code = errno;
  (void)!::write(report, &code, sizeof(code));
  ::_exit(127);
}

}  // namespace

Result<RankProcess> start_process(const RankStart& start) {
  int output[2] = {-1, -1}, error[2] = {-1, -1}, report[2] = {-1, -1};
  pid_t pid = -1;
  if (::pipe2(output, O_CLOEXEC) == 0 && ::pipe2(error, O_CLOEXEC) == 0 &&
      ::pipe2(report, O_CLOEXEC) == 0) {
    pid = ::fork();
  }
  int code = errno;
  if (pid == 0) become(start, output[1], error[1], report[1]);
  if (pid > 0) ::setpgid(pid, pid);  // on both sides, so that it holds from here on
  for (const int fd : {output[1], error[1], report[1]}) {
    if (fd >= 0) ::close(fd);
  }
  // Closed by a successful exec; else it says why there was none.
  const bool failed = pid < 0 || ::read(report[0], &code, sizeof(code)) == sizeof(code);
  if (report[0] >= 0) ::close(report[0]);
  if (!failed) {
    ::fcntl(output[0], F_SETFL, O_NONBLOCK);
    ::fcntl(error[0], F_SETFL, O_NONBLOCK);
    return RankProcess{pid, output[0], error[0]};
  }
  for (const int fd : {output[0], error[0]}) {
    if (fd >= 0) ::close(fd);
  }
  if (pid < 0) {
    return fail(ErrorCode::kResourceExhausted, "cannot start a process: {}", std::strerror(code));
  }
  ::waitpid(pid, nullptr, 0);
  return fail(code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
              "cannot run \"{}\": {}", start.command[0], std::strerror(code));
}

}  // namespace weft::node
