#include "weft/rl/run_directory.h"

#include <unistd.h>

#include <thread>

#include "weft/base/file.h"
#include "weft/nn/isa.h"
#include "weft/state/run_identity.h"

namespace weft::rl {
namespace {

Json machine() {
  Json m = Json::object();
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  m["host"] = std::string(host);
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.starts_with("model name")) {
      m["cpu"] = line.substr(line.find(':') + 2);
      break;
    }
  m["cores"] = std::thread::hardware_concurrency();
  m["isa"] = std::string(nn::to_string(nn::cpu_isa()));
  m["memory_mib"] = sysconf(_SC_PHYS_PAGES) / 1024 * (sysconf(_SC_PAGESIZE) / 1024);
  return m;
}

Status drop_after(const std::filesystem::path& file, std::int64_t step) {
  WEFT_ASSIGN(const std::vector<Json> lines, read_json_lines(file));
  std::string kept;
  for (const Json& line : lines)
    if (line.value("step", std::int64_t{0}) <= step) kept += dump_json(line) + "\n";
  return write_file_atomic(file, kept);
}

}  // namespace

Result<std::vector<Json>> read_json_lines(const std::filesystem::path& file) {
  WEFT_ASSIGN(const std::string text, read_file(file));
  std::vector<Json> lines;
  std::int64_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    ++number;
    WEFT_ASSIGN(Json line, parse_json(std::string_view(text).substr(at, end - at),
                                      fmt::format("{}:{}", file.string(), number)));
    lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

Result<RunDirectory> RunDirectory::create(const std::filesystem::path& path,
                                          const RlConfig& config) {
  std::error_code error;
  if (std::filesystem::exists(path / "config.json", error))
    return fail(ErrorCode::kInvalidArgument,
                "{} already holds a run; go on with it by --resume, or name another by --run",
                path.string());
  std::filesystem::create_directories(path, error);
  if (error) return fail(ErrorCode::kIo, "{}: {}", path.string(), error.message());
  WEFT_TRY(write_file_atomic(path / "config.json", to_json(config).dump(2) + "\n"));
  WEFT_TRY(write_file_atomic(path / "machine.json", machine().dump(2) + "\n"));
  RunDirectory run(path);
  WEFT_TRY(run.open_logs());
  return run;
}

Result<RunDirectory> RunDirectory::reopen(const std::filesystem::path& path, std::int64_t step) {
  RunDirectory run(path);
  for (const char* name : {"metrics.jsonl", "evaluations.jsonl"})
    if (std::filesystem::exists(path / name)) WEFT_TRY(drop_after(path / name, step));
  WEFT_TRY(run.open_logs());
  return run;
}

Result<RlConfig> RunDirectory::read_config(const std::filesystem::path& path) {
  auto text = read_file(path / "config.json");
  if (!text)
    return fail(ErrorCode::kNotFound, "{} holds no run to go on with (no config.json): {}",
                path.string(), text.error().message);
  WEFT_ASSIGN(const Json json, parse_json(*text, (path / "config.json").string()));
  return rl_config_from_json(json);
}

Status RunDirectory::open_logs() {
  WEFT_ASSIGN(id_, state::identify_run(path_));
  metrics_.open(path_ / "metrics.jsonl", std::ios::app);
  evaluations_.open(path_ / "evaluations.jsonl", std::ios::app);
  if (!metrics_ || !evaluations_)
    return fail(ErrorCode::kIo, "{}: cannot write metrics.jsonl or evaluations.jsonl",
                path_.string());
  return {};
}

Status RunDirectory::add(const StepMetrics& metrics) {
  metrics_ << dump_json(to_json(metrics)) << '\n' << std::flush;
  if (!metrics_) return fail(ErrorCode::kIo, "{}/metrics.jsonl: write failed", path_.string());
  return {};
}

Status RunDirectory::add(const EvaluationMetrics& m, const std::vector<EvaluatedReply>& replies) {
  Json line = Json::object();
  line["step"] = m.step;
  line["prompts"] = m.prompts;
  line["exact"] = m.exact;
  line["reward"] = m.reward;
  line["length_mean"] = m.length_mean;
  Json samples = Json::array();
  for (const EvaluatedReply& r : replies) {
    Json s = Json::object();
    s["prompt"] = r.prompt;
    s["reply"] = r.reply;
    s["reference"] = r.reference;
    s["reward"] = r.reward;
    s["exact"] = r.exact;
    samples.push_back(std::move(s));
  }
  line["samples"] = std::move(samples);
  evaluations_ << dump_json(line) << '\n' << std::flush;
  if (!evaluations_)
    return fail(ErrorCode::kIo, "{}/evaluations.jsonl: write failed", path_.string());
  return {};
}

std::filesystem::path RunDirectory::dump(std::int64_t step) const {
  return path_ / "dumps" / fmt::format("step-{:08}.safetensors", step);
}

}  // namespace weft::rl
