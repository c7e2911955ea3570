// A peer: another program's engine in a process of its own, driven by lines of
// JSON so that its runs and ours take turns. See bench/peers/line_protocol.py.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "weft/base/deadline.h"
#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft::bench {

// Ends its process when destroyed. Not for concurrent use.
class Peer {
 public:
  // Starts bench/peers/`script` in the peers' Python. kUnavailable, with what to
  // do, where the peers are not installed.
  static Result<Peer> start(const std::string& script, const std::vector<std::string>& arguments);
  Peer(Peer&& other) noexcept;
  Peer& operator=(Peer&& other) noexcept;
  ~Peer();

  const std::string& version() const { return version_; }
  // The reply; an "error" in it, or silence until the deadline, is an error.
  Result<Json> request(const Json& message, Deadline deadline);

 private:
  Peer() = default;
  Result<std::string> read_line(Deadline deadline);

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string name_;
  std::string buffer_;
  std::string version_;
};

// The Python of `make peers`, or kUnavailable.
Result<std::filesystem::path> peer_python();

}  // namespace weft::bench
