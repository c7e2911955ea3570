#include "weft/workload/servegen.h"

#include <algorithm>
#include <cmath>

#include "weft/base/file.h"
#include "weft/base/hash.h"
#include "weft/workload/field_text.h"
#include "weft/workload/line_source.h"

namespace weft::workload {
namespace {

namespace fs = std::filesystem;

Status read_windows(const fs::path& path, ClientPool& pool, Client& client) {
  WEFT_ASSIGN(LineSource source, LineSource::open(path));
  std::string_view line;
  std::vector<std::string_view> cells;
  std::string scratch;
  double last = -1;
  for (;;) {
    WEFT_ASSIGN(const bool more, source.next(line));
    if (!more) break;
    if (trimmed(line).empty()) continue;
    const auto bad = [&](std::string_view what) {
      return fail(ErrorCode::kCorrupt, "{}: line {}: {}; a row is t,rate,CV,family,p1,p2",
                  path.string(), source.line_number(), what);
    };
    if (!split_csv(line, cells, scratch) || cells.size() != 6) return bad("not six cells");
    ClientWindow window;
    double p1 = 0, p2 = 0;
    if (!parse_double(cells[0], window.start_s) || !parse_double(cells[1], window.rate) ||
        !parse_double(cells[2], window.cv) || !parse_double(cells[4], p1) ||
        !parse_double(cells[5], p2)) {
      return bad("not a number");
    }
    if (window.start_s <= last) return bad("windows must ascend");
    if (window.rate < 0) return bad("a negative rate");
    if (pool.window_s == 0 && last >= 0) pool.window_s = window.start_s - last;
    last = window.start_s;
    ++pool.windows;
    if (window.rate == 0) {
      ++pool.idle_windows;
      continue;
    }
    const std::string_view family = trimmed(cells[3]);
    if (family != "Gamma" && family != "Weibull") return bad("the family is not Gamma or Weibull");
    if (!(p1 > 0) || !(p2 > 0)) return bad("shape and scale must be above 0");
    ++(family == "Gamma" ? pool.gamma_windows : pool.weibull_windows);
    window.gaps = {.family = family == "Gamma" ? Family::kGamma : Family::kWeibull,
                   .a = p1,
                   .b = p2,
                   .table = {}};
    const double mean = window.gaps.mean();
    if (!(mean > 0) || !std::isfinite(mean)) return bad("a gap distribution without a mean");
    window.gaps = window.gaps.scaled(1 / (window.rate * mean));
    client.windows.push_back(window);
  }
  pool.span_s = std::max(pool.span_s, last + pool.window_s);
  return {};
}

// "{60: 0.21, 61: 0.08}", a Python dictionary inside a JSON string.
Status read_histogram(const Json& window, const char* key, std::vector<double>& values,
                      std::vector<double>& weights) {
  WEFT_ASSIGN(std::string text, json_field_or<std::string>(window, key, "{}"));
  std::string_view rest = trimmed(text);
  if (!rest.starts_with('{') || !rest.ends_with('}')) {
    return fail(ErrorCode::kCorrupt, "\"{}\" is no dictionary", key);
  }
  rest = rest.substr(1, rest.size() - 2);
  double total = 0;
  while (!trimmed(rest).empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    const auto colon = item.find(':');
    double value = 0, weight = 0;
    if (colon == std::string_view::npos || !parse_double(item.substr(0, colon), value) ||
        !parse_double(item.substr(colon + 1), weight) || value < 0 || weight < 0) {
      return fail(ErrorCode::kCorrupt, "\"{}\" holds \"{}\", which is no count and share", key,
                  item.substr(0, 40));
    }
    values.push_back(value);
    weights.push_back(total += weight);  // cumulative
  }
  return {};
}

Status read_lengths(const fs::path& path, Client& client) {
  WEFT_ASSIGN(const std::string text, read_file(path));
  WEFT_ASSIGN(const Json json, parse_json(text, path.string()));
  if (!json.is_object()) return fail(ErrorCode::kCorrupt, "{}: no object", path.string());
  for (const auto& [key, window] : json.items()) {
    ClientLengths lengths;
    if (!parse_double(key, lengths.start_s)) {
      return fail(ErrorCode::kCorrupt, "{}: the key \"{}\" is no second", path.string(), key);
    }
    auto status = read_histogram(window, "input_tokens", lengths.input, lengths.input_weight);
    if (status) {
      status = read_histogram(window, "output_tokens", lengths.output, lengths.output_weight);
    }
    if (!status)
      return std::unexpected(status.error().in(fmt::format("{}: window {}", path.string(), key)));
    if (lengths.input.empty() || lengths.output.empty()) continue;
    client.lengths.push_back(std::move(lengths));
  }
  std::ranges::sort(client.lengths, {}, &ClientLengths::start_s);
  return {};
}

std::uint32_t draw_length(const std::vector<double>& values, const std::vector<double>& cumulative,
                          Rng& rng) {
  const double u = static_cast<double>(rng.next_uniform()) * cumulative.back();
  const auto at = std::ranges::upper_bound(cumulative, u) - cumulative.begin();
  const auto i = std::min(static_cast<std::size_t>(at), values.size() - 1);
  return static_cast<std::uint32_t>(std::clamp(values[i], 1.0, 16'777'216.0));
}

// The data set of the window that a time falls into: the last that began before it.
const ClientLengths& lengths_at(const Client& client, double time) {
  const ClientLengths* best = &client.lengths.front();
  for (const ClientLengths& each : client.lengths) {
    if (each.start_s <= time) best = &each;
  }
  return *best;
}

}  // namespace

Result<ClientPool> load_clients(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("chunk-") && name.ends_with("-trace.csv")) files.push_back(it->path());
  }
  if (error) return fail(ErrorCode::kIo, "cannot list {}: {}", folder.string(), error.message());
  if (files.empty()) {
    return fail(ErrorCode::kNotFound, "{} holds no chunk-N-trace.csv, ServeGen's clients",
                folder.string());
  }
  const auto number = [](const fs::path& path) {
    return std::atoi(path.filename().string().c_str() + 6);
  };
  std::ranges::sort(files, {}, number);
  ClientPool pool;
  pool.name = folder.string();
  for (const fs::path& file : files) {
    Client client;
    const std::string name = file.filename().string();
    client.name = name.substr(0, name.size() - std::string_view("-trace.csv").size());
    WEFT_TRY(read_windows(file, pool, client));
    const fs::path lengths = folder / (client.name + "-dataset.json");
    if (fs::exists(lengths, error)) WEFT_TRY(read_lengths(lengths, client));
    pool.clients_without_lengths += client.lengths.empty();
    pool.clients.push_back(std::move(client));
  }
  return pool;
}

namespace {

Summary client_cvs(const ClientPool& pool) {
  std::vector<double> cvs;
  for (const Client& client : pool.clients)
    for (const ClientWindow& window : client.windows) cvs.push_back(window.cv);
  return summarise(std::move(cvs));
}

double client_rate(const ClientPool& pool) {
  double sum = 0;
  for (const Client& client : pool.clients)
    for (const ClientWindow& window : client.windows) sum += window.rate * pool.window_s;
  return pool.span_s > 0 ? sum / pool.span_s : 0;
}

}  // namespace

Json clients_json(const ClientPool& pool) {
  return {{"folder", pool.name},
          {"format", "servegen"},
          {"clients", pool.clients.size()},
          {"clients_without_lengths", pool.clients_without_lengths},
          {"window_s", pool.window_s},
          {"span_s", pool.span_s},
          {"windows", pool.windows},
          {"idle_windows", pool.idle_windows},
          {"gamma_windows", pool.gamma_windows},
          {"weibull_windows", pool.weibull_windows},
          {"rate", client_rate(pool)},
          {"cv", client_cvs(pool).json()}};
}

std::string clients_text(const ClientPool& pool) {
  const Summary cv = client_cvs(pool);
  const std::int64_t busy = pool.gamma_windows + pool.weibull_windows;
  return fmt::format(
      "{} (servegen): {} clients, {:.1f} h in windows of {:g} s, {:.3f} requests/s\n"
      "  windows         {} busy ({:.1f} % gamma), {} idle\n"
      "  gap CV          p50 {:.2f}  p90 {:.2f}  max {:.2f}\n"
      "  lengths         {} clients have them\n",
      pool.name, pool.clients.size(), pool.span_s / 3600, pool.window_s, client_rate(pool), busy,
      busy > 0 ? 100.0 * static_cast<double>(pool.gamma_windows) / static_cast<double>(busy) : 0.0,
      pool.idle_windows, cv.p50, cv.p90, cv.max,
      static_cast<std::int64_t>(pool.clients.size()) - pool.clients_without_lengths);
}

Result<RequestTrace> synthesise_clients(const ClientPool& pool, const SynthesisOptions& options) {
  std::vector<const Client*> with_lengths;
  for (const Client& client : pool.clients)
    if (!client.lengths.empty()) with_lengths.push_back(&client);
  if (with_lengths.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{}: no client has a data set of lengths", pool.name);
  }
  const double mean_rate = client_rate(pool);
  if (!(mean_rate > 0))
    return fail(ErrorCode::kInvalidArgument, "{}: no client ever sends", pool.name);
  const double scale = options.rate > 0 ? options.rate / mean_rate : 1;
  const double end =
      options.duration_s > 0 ? std::min(options.duration_s, pool.span_s) : pool.span_s;
  RequestTrace trace;
  trace.name = pool.name;
  trace.format = "generated";
  const Json identity = {{"clients", clients_json(pool)},
                         {"count", options.count},
                         {"duration_s", end},
                         {"rate", options.rate},
                         {"seed", options.seed}};
  trace.parameters = to_hex(sha256(bytes_of(dump_json(identity))));
  for (std::size_t c = 0; c < pool.clients.size(); ++c) {
    const Client& client = pool.clients[c];
    const Client& source = client.lengths.empty() ? *with_lengths[c % with_lengths.size()] : client;
    trace.labels.push_back(client.name);
    for (std::size_t w = 0; w < client.windows.size(); ++w) {
      const ClientWindow& window = client.windows[w];
      // A stream for each client and window: one more client leaves the others' draws.
      Rng rng(options.seed, RngUse::kData, (std::uint64_t{c} << 32) + w, 20);
      double time = window.start_s;
      const double stop = std::min(window.start_s + pool.window_s, end);
      // Stationary start: without it each window would begin right after an arrival.
      time += window.gaps.draw(rng) / scale * static_cast<double>(rng.next_uniform());
      while (time < stop) {
        const ClientLengths& lengths = lengths_at(source, time);
        Request row;
        row.time_ns = std::llround(time * 1e9);
        row.input_tokens = draw_length(lengths.input, lengths.input_weight, rng);
        row.output_tokens = draw_length(lengths.output, lengths.output_weight, rng);
        row.label = static_cast<std::uint16_t>(c);
        trace.rows.push_back(row);
        time += window.gaps.draw(rng) / scale;
      }
    }
  }
  std::ranges::stable_sort(trace.rows, {}, &Request::time_ns);
  if (options.count > 0 && static_cast<std::int64_t>(trace.rows.size()) > options.count) {
    trace.rows.resize(static_cast<std::size_t>(options.count));
  }
  return trace;
}

}  // namespace weft::workload
