// `weft bench run collectives`: ours, Open MPI's and Gloo's (torch.distributed) collectives
// in turns, in nccl-tests' terms.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft::bench {

struct CollectiveOptions {
  std::string only;  // cases whose name contains this
  int rounds = 5;    // of ours and each peer, in turns
  bool peers = true;
  std::vector<std::int64_t> ranks = {2, 4};
  std::int64_t min_bytes = 4;
  std::int64_t max_bytes = std::int64_t{64} << 20;
  bool trace = false;  // ours with a record ring
};

// Times are seconds an operation. Bus bandwidth is nccl-tests' (its PERFORMANCE.md):
// what a ring would move over each link, so that all operations can be compared.
struct CollectiveResult {
  std::string name;  // "shm/allreduce/np=2/1MiB"
  std::string op;
  std::int64_t ranks = 0;
  std::int64_t bytes = 0;
  double ours = 0;  // the shortest round
  std::optional<double> open_mpi, gloo;
  std::optional<double> ratio, ratio_low, ratio_high;  // best peer's time / ours; low and
                                                       // high are of single rounds
  double bus_bytes_per_s() const;
};
Json to_json(const CollectiveResult& result);

// Forks the ranks: call it before the process starts threads.
Status run_collectives(const CollectiveOptions& options,
                       const std::function<void(const CollectiveResult&)>& report);

}  // namespace weft::bench
