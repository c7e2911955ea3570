// ServeGen's client models (alibaba/ServeGen): many clients, each with its own rate,
// burstiness and lengths per window, superposed into one trace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/workload/distribution.h"
#include "weft/workload/request.h"
#include "weft/workload/request_model.h"
#include "weft/workload/stats.h"

namespace weft::workload {

// One row of chunk-N-trace.csv: "t,rate,CV,family,p1,p2", no header.
struct ClientWindow {
  double start_s = 0, rate = 0, cv = 0;
  Distribution gaps;  // gamma or weibull; the mean is replaced by 1 / rate
};

// Token counts with their probabilities in one window of chunk-N-dataset.json.
struct ClientLengths {
  double start_s = 0;
  std::vector<double> input, input_weight, output, output_weight;
};

struct Client {
  std::string name;                   // "chunk-3"
  std::vector<ClientWindow> windows;  // with a rate above 0
  std::vector<ClientLengths> lengths;
};

struct ClientPool {
  std::string name;
  double window_s = 0, span_s = 0;
  std::vector<Client> clients;
  std::int64_t windows = 0, idle_windows = 0, gamma_windows = 0, weibull_windows = 0;
  std::int64_t clients_without_lengths = 0;
};

// Reads all chunk-N-trace.csv of a folder, and the data sets beside them. Errors name
// file and line.
Result<ClientPool> load_clients(const std::filesystem::path& folder);

Json clients_json(const ClientPool& pool);
std::string clients_text(const ClientPool& pool);

// The superposition over the pool's span (or options.duration_s of it). A client without
// lengths draws them from those of the others. `rate` scales all clients alike.
Result<RequestTrace> synthesise_clients(const ClientPool& pool, const SynthesisOptions& options);

}  // namespace weft::workload
