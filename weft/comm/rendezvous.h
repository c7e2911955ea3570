// Rendezvous: a small table of keys that the members of a job share: addresses,
// agreed verdicts, epochs. A key is written once; who comes second gets what the
// first one wrote, which is how members agree.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/deadline.h"
#include "weft/base/result.h"

namespace weft::comm {

// From any thread. Keys hold letters, digits and "-_./", no "..".
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Writes the value if the key has none; gives the value that the key has now.
  virtual Result<std::string> put_if_absent(std::string_view key, std::string_view value) = 0;
  // The value, or kNotFound.
  virtual Result<std::string> get(std::string_view key) = 0;
  // Waits for the key; kDeadlineExceeded names it.
  Result<std::string> wait(std::string_view key, Deadline deadline);
};

// Files in a directory (of shared memory, on one machine): any number of processes.
class FileRendezvous : public Rendezvous {
 public:
  static Result<FileRendezvous> create(const std::filesystem::path& directory);
  Result<std::string> put_if_absent(std::string_view key, std::string_view value) override;
  Result<std::string> get(std::string_view key) override;

 private:
  explicit FileRendezvous(std::filesystem::path directory) : directory_(std::move(directory)) {}
  Result<std::filesystem::path> path_of(std::string_view key) const;
  std::filesystem::path directory_;
};

// For members that are threads of one process.
class MemoryRendezvous : public Rendezvous {
 public:
  Result<std::string> put_if_absent(std::string_view key, std::string_view value) override;
  Result<std::string> get(std::string_view key) override;

 private:
  std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace weft::comm
