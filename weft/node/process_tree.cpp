#include "weft/node/process_tree.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "weft/base/file.h"

namespace weft::node {

Status become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    return fail(ErrorCode::kUnsupported, "cannot become a subreaper: {}", std::strerror(errno));
  }
  return {};
}

std::vector<pid_t> descendants(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  std::set<pid_t> zombies;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    const auto stat = read_file(entry.path() / "stat", 4096);
    if (!stat) continue;
    // "pid (name) state parent ...": the name may hold anything, brackets too.
    const std::size_t end = stat->rfind(')');
    if (end == std::string::npos || end + 4 >= stat->size()) continue;
    if ((*stat)[end + 2] == 'Z') zombies.insert(pid);
    children.emplace(std::atoi(stat->c_str() + end + 4), pid);
  }
  std::vector<pid_t> found = {root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [from, to] = children.equal_range(found[i]);
    for (auto child = from; child != to; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  std::erase_if(found, [&](pid_t pid) { return zombies.contains(pid); });
  return found;
}

Result<std::size_t> kill_descendants(Deadline deadline) {
  std::set<pid_t> killed;
  for (;;) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::vector<pid_t> left = descendants(::getpid());
    if (left.empty() && ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD) {
      return killed.size();
    }
    for (const pid_t pid : left) {
      if (::kill(pid, SIGKILL) == 0) killed.insert(pid);
    }
    if (deadline.expired()) {
      return fail(ErrorCode::kDeadlineExceeded, "{} processes do not end, the first is {}",
                  left.size(), left.empty() ? 0 : left.front());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Result<int> run_guarded(const std::function<int()>& body) {
  WEFT_TRY(become_subreaper());
  sigset_t signals, old;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, &old);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    const int error = errno;
    ::sigprocmask(SIG_SETMASK, &old, nullptr);
    return fail(ErrorCode::kResourceExhausted, "fork: {}", std::strerror(error));
  }
  if (child == 0) {
    (void)become_subreaper();  // not inherited
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::raise(SIGTERM);  // it died before the line above
    // Its own group, so that a key on the terminal reaches it once: from here.
    ::setpgid(0, 0);
    ::signal(SIGTTOU, SIG_IGN);  // it may write to the terminal all the same
    ::sigprocmask(SIG_SETMASK, &old, nullptr);
    const int code = body();
    std::fflush(nullptr);
    ::_exit(code);
  }
  int status = 0;
  for (;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal != SIGCHLD) {
      ::kill(child, signal);
      continue;
    }
    if (::waitpid(child, &status, WNOHANG) == child) break;
  }
  const auto killed = kill_descendants(Deadline::after(std::chrono::seconds(5)));
  ::sigprocmask(SIG_SETMASK, &old, nullptr);
  if (!killed) return std::unexpected(killed.error());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace weft::node
