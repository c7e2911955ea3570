// The processes below this one, and their end.
//
// Linux gives an orphan to its nearest ancestor that is a subreaper. A process that became
// one finds all it started below itself, grandchildren that left their process group or
// session too, and can end them all. (A cgroup would do the same, but needs rights.)
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "weft/base/deadline.h"
#include "weft/base/result.h"

namespace weft::node {

Status become_subreaper();

// All living processes below `root` (zombies not), from /proc.
std::vector<pid_t> descendants(pid_t root);

// Kills everything below this process and reaps it, until nothing is left; new ones that are
// forked meanwhile too. Gives how many were killed; kDeadlineExceeded when some do not go.
Result<std::size_t> kill_descendants(Deadline deadline);

// Runs `body` in a child that is a subreaper and waits for it, passing SIGINT, SIGTERM and
// SIGHUP on. When this process is killed, the child gets SIGTERM; when the child is killed,
// what it left is killed here. So nothing stays behind after the death of either. Gives the
// child's exit code (128 + signal when it was killed). Call it before starting threads.
Result<int> run_guarded(const std::function<int()>& body);

}  // namespace weft::node
