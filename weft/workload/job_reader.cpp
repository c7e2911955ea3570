#include "weft/workload/job_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "weft/base/file.h"
#include "weft/base/units.h"
#include "weft/workload/field_text.h"
#include "weft/workload/job_formats.h"
#include "weft/workload/line_source.h"

namespace weft::workload {
namespace {

constexpr double kLongest = 1e10;  // seconds; three centuries

// A string table: index of each text, "" at 0.
class Table {
 public:
  explicit Table(std::vector<std::string>& texts) : texts_(texts) { index_[""] = 0; }
  std::uint32_t of(std::string_view text) {
    const auto found = index_.find(std::string(text));
    if (found != index_.end()) return found->second;
    const auto id = static_cast<std::uint32_t>(texts_.size());
    texts_.emplace_back(text);
    index_.emplace(text, id);
    return id;
  }

 private:
  std::vector<std::string>& texts_;
  std::unordered_map<std::string, std::uint32_t> index_;
};

JobEnd end_of(std::string_view state) {
  struct Name {
    std::string_view text;
    JobEnd end;
  };
  constexpr std::array<Name, 15> kNames = {{{"COMPLETED", JobEnd::kPassed},
                                            {"Pass", JobEnd::kPassed},
                                            {"Succeeded", JobEnd::kPassed},
                                            {"passed", JobEnd::kPassed},
                                            {"CANCELLED", JobEnd::kKilled},
                                            {"Killed", JobEnd::kKilled},
                                            {"killed", JobEnd::kKilled},
                                            {"FAILED", JobEnd::kFailed},
                                            {"Failed", JobEnd::kFailed},
                                            {"failed", JobEnd::kFailed},
                                            {"TIMEOUT", JobEnd::kFailed},
                                            {"NODE_FAIL", JobEnd::kFailed},
                                            {"RUNNING", JobEnd::kRunning},
                                            {"Running", JobEnd::kRunning},
                                            {"running", JobEnd::kRunning}}};
  for (const Name& name : kNames) {
    if (name.text == state) return name.end;
  }
  return JobEnd::kUnknown;
}

struct Loader {
  const JobReadOptions& options;
  std::string file;
  LoadedJobs loaded = {};
  Table vcs{loaded.trace.vcs}, users{loaded.trace.users}, models{loaded.trace.models},
      names{loaded.trace.names};
  std::unordered_set<std::uint32_t> seen = {};
  double first_time = 0;
  bool dated = false, unzoned = false;

  Status drop(const std::string& reason, std::int64_t line) {
    if (options.strict) {
      return fail(ErrorCode::kInvalidArgument, "{}:{}: {}; without --strict the row is dropped",
                  file, line, reason);
    }
    loaded.tally.drop(reason, line);
    return {};
  }

  // Seconds, or a date: then seconds since 1970, and the trace is dated.
  bool time_of(std::string_view cell, double& seconds) {
    if (parse_double(cell, seconds)) return std::abs(seconds) < kLongest;
    std::int64_t ns = 0;
    if (!parse_date_time(cell, ns)) return false;
    if (cell.size() <= 19) unzoned = true;
    dated = true;
    seconds = static_cast<double>(ns) * 1e-9;
    return true;
  }

  // Fills one field; the reason when the cell is bad.
  std::string set(Job& job, const JobColumn& column, std::string_view cell) {
    const auto bad = [&](std::string_view what) {
      return fmt::format("{} in '{}'", what, column.name);
    };
    double value = 0;
    const auto count = [&](double most) {
      return parse_double(cell, value) && value >= 0 && value <= most;
    };
    const bool none = cell.empty() || cell == "None" || cell == "NA" || cell == "nan";
    switch (column.field) {
      case JobField::kName:
        job.name = names.of(cell);
        return "";
      case JobField::kVc:
        job.vc = vcs.of(cell);
        return "";
      case JobField::kUser:
        job.user = users.of(cell);
        return "";
      case JobField::kModel:
        job.model = models.of(cell);
        return "";
      case JobField::kState:
        job.end = end_of(cell);
        return "";
      case JobField::kGuaranteed:
        job.guaranteed = cell == "1" || cell == "True";
        return "";
      case JobField::kSubmit:
        return time_of(cell, job.submit_s) ? "" : bad("no time");
      case JobField::kStart:
      case JobField::kEnd: {
        double& target = column.field == JobField::kStart ? job.start_s : job.end_s;
        if (none) return "";
        return time_of(cell, target) ? "" : bad("no time");
      }
      case JobField::kRun:
        if (none) return "";
        if (!parse_double(cell, job.run_s)) return bad("no number");
        if (job.run_s < 0) return bad("negative duration");
        return job.run_s < kLongest ? "" : bad("absurd duration");
      case JobField::kSteps:
        if (!count(1e15)) return bad("no count");
        job.steps = value;
        return "";
      case JobField::kGpus:
        if (!count(1 << 20)) return bad("no count");
        job.gpus = static_cast<std::int32_t>(std::ceil(value));
        return "";
      case JobField::kGpuMilli:
        if (!count(1000)) return bad("no share");
        job.gpu_milli = value < 1000 ? static_cast<std::int32_t>(value) : 0;
        return "";
      case JobField::kCpus:
        if (!count(1e5)) return bad("no count");
        job.cpu_milli = static_cast<std::int32_t>(value * 1000);
        return "";
      case JobField::kCpuMilli:
        if (!count(1e8)) return bad("no count");
        job.cpu_milli = static_cast<std::int32_t>(value);
        return "";
      case JobField::kMemoryMib:
        if (!count(1e9)) return bad("no count");
        job.memory_mib = static_cast<std::int64_t>(value);
        return "";
    }
    return "";
  }

  Status take(Job job, std::int64_t line, bool names_repeat) {
    if (job.start_s >= 0 && job.end_s >= 0) {
      if (job.end_s < job.start_s) return drop("end before start", line);
      if (job.run_s < 0) job.run_s = job.end_s - job.start_s;
    }
    if (job.start_s >= 0 && job.start_s < job.submit_s)
      return drop("start before submission", line);
    if (job.name != 0 && !names_repeat && !seen.insert(job.name).second) {
      return drop("a job's name a second time", line);
    }
    loaded.tally.keep();
    loaded.trace.jobs.push_back(job);
    return {};
  }

  Status read_csv(const JobCsvFormat& format) {
    WEFT_ASSIGN(LineSource source, LineSource::open(file));
    std::string_view line;
    WEFT_ASSIGN(bool more, source.next(line));
    const CsvHeader header(more ? line : "");
    struct Place {
      const JobColumn* column;
      std::size_t at;
    };
    std::vector<Place> places;
    for (const JobColumn& column : format.columns) {
      if (const auto at = header.find(column.name)) {
        places.push_back({&column, *at});
      } else if (column.needed) {
        const std::array<std::string_view, 1> wanted = {column.name};
        return std::unexpected(header.need(wanted, file).error());
      }
    }
    std::vector<std::string_view> cells;
    std::string scratch;
    for (;;) {
      WEFT_ASSIGN(more, source.next(line));
      if (!more) break;
      if (trimmed(line).empty()) continue;
      if (!split_csv(line, cells, scratch)) {
        WEFT_TRY(drop("a quote that does not close", source.line_number()));
        continue;
      }
      // EasyScale's file has a column without a name, so more cells may follow.
      if (cells.size() < header.names().size() - (format.name == "easyscale" ? 1 : 0)) {
        WEFT_TRY(drop("fewer cells than the header", source.line_number()));
        continue;
      }
      if (cells.size() > header.names().size()) {
        WEFT_TRY(drop("more cells than the header", source.line_number()));
        continue;
      }
      Job job;
      std::string problem;
      for (const Place& place : places) {
        problem = set(job, *place.column, trimmed(cells[place.at]));
        if (!problem.empty()) break;
      }
      WEFT_TRY(problem.empty() ? take(job, source.line_number(), format.named_twice)
                               : drop(problem, source.line_number()));
    }
    return {};
  }

  // Ten fields (job type, command, directory, steps argument, needs data, steps, scale,
  // weight, SLO, arrival) or the older seven, whose last two are arrival and scale.
  Status read_gavel() {
    WEFT_ASSIGN(LineSource source, LineSource::open(file));
    static constexpr JobColumn kType{JobField::kModel, "job_type"},
        kSteps{JobField::kSteps, "total_steps"}, kScale{JobField::kGpus, "scale_factor"},
        kArrival{JobField::kSubmit, "arrival_time"};
    std::string_view line;
    std::vector<std::string_view> fields;
    for (;;) {
      WEFT_ASSIGN(const bool more, source.next(line));
      if (!more) break;
      if (trimmed(line).empty()) continue;
      fields.clear();
      for (std::string_view rest = line;;) {
        const auto tab = rest.find('\t');
        fields.push_back(trimmed(rest.substr(0, tab)));
        if (tab == std::string_view::npos) break;
        rest.remove_prefix(tab + 1);
      }
      if (fields.size() != 10 && fields.size() != 7) {
        WEFT_TRY(drop("neither 7 nor 10 fields", source.line_number()));
        continue;
      }
      const bool old = fields.size() == 7;
      Job job;
      std::string problem = set(job, kType, fields[0]);
      if (problem.empty()) problem = set(job, kSteps, fields[old ? 4 : 5]);
      if (problem.empty()) problem = set(job, kArrival, fields[old ? 5 : 9]);
      if (problem.empty()) problem = set(job, kScale, fields[6]);
      if (problem.empty() && job.gpus == 0) problem = "no device in 'scale_factor'";
      WEFT_TRY(problem.empty() ? take(job, source.line_number(), true)
                               : drop(problem, source.line_number()));
    }
    return {};
  }

  // The archive's JSON is 60 MB: read as one document. The row number stands for the line.
  Status read_philly_json() {
    WEFT_ASSIGN(const std::string text, read_file(file, std::size_t{2} << 30));
    WEFT_ASSIGN(const Json rows, parse_json(text, file));
    if (!rows.is_array()) return fail(ErrorCode::kInvalidArgument, "{}:1: no list of jobs", file);
    static constexpr JobColumn kSubmit{JobField::kSubmit, "submitted_time"};
    std::int64_t row = 0;
    for (const Json& one : rows) {
      ++row;
      Job job;
      const auto word = [&](const char* key) {
        const Json* value = json_find(one, key);
        return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
      };
      const std::string id = word("jobid");
      if (id.empty()) {
        WEFT_TRY(drop("no 'jobid'", row));
        continue;
      }
      job.name = names.of(id);
      job.vc = vcs.of(word("vc"));
      job.user = users.of(word("user"));
      job.end = end_of(word("status"));
      std::string problem = set(job, kSubmit, word("submitted_time"));
      const Json* attempts = json_find(one, "attempts");
      if (problem.empty() && (attempts == nullptr || !attempts->is_array())) {
        problem = "no list in 'attempts'";
      }
      double run = 0;
      bool open_end = false;
      for (const Json& attempt : problem.empty() ? *attempts : Json::array()) {
        double start = 0, end = 0;
        const Json* begin_text = json_find(attempt, "start_time");
        const Json* end_text = json_find(attempt, "end_time");
        if (begin_text == nullptr || !begin_text->is_string() ||
            !time_of(begin_text->get<std::string>(), start)) {
          continue;  // "None": the attempt never started
        }
        if (job.start_s < 0) job.start_s = start;
        std::int32_t gpus = 0;
        if (const Json* detail = json_find(attempt, "detail");
            detail != nullptr && detail->is_array()) {
          for (const Json& machine : *detail) {
            const Json* list = json_find(machine, "gpus");
            if (list != nullptr && list->is_array())
              gpus += static_cast<std::int32_t>(list->size());
          }
        }
        job.gpus = std::max(job.gpus, gpus);
        if (end_text == nullptr || !end_text->is_string() ||
            !time_of(end_text->get<std::string>(), end)) {
          open_end = true;
          continue;
        }
        if (end < start) problem = "end before start in 'attempts'";
        run += end - start;
        job.end_s = end;
      }
      if (open_end) job.end = JobEnd::kRunning;
      job.run_s = run;
      WEFT_TRY(problem.empty() ? take(job, row, false) : drop(problem, row));
    }
    return {};
  }

  void finish() {
    auto& jobs = loaded.trace.jobs;
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const Job& a, const Job& b) { return a.submit_s < b.submit_s; });
    if (dated && !jobs.empty()) {
      const double zero = jobs.front().submit_s;
      loaded.trace.zero_unix_ns = static_cast<std::int64_t>(zero) * 1'000'000'000;
      for (Job& job : jobs) {
        job.submit_s -= zero;
        if (job.start_s >= 0) job.start_s -= zero;
        if (job.end_s >= 0) job.end_s -= zero;
      }
    }
    if (unzoned)
      loaded.tally.note("times carry no zone: read as UTC, so hours of the day are not local");
    loaded.tally.finish();
  }
};

}  // namespace

std::string_view to_string(JobEnd end) {
  constexpr std::array<std::string_view, 5> kNames = {"unknown", "passed", "killed", "failed",
                                                      "running"};
  return kNames[static_cast<std::size_t>(end)];
}

Result<LoadedJobs> load_jobs(const std::filesystem::path& path, JobReadOptions options) {
  WEFT_ASSIGN(const TraceFormat* format, detect_trace_format(path, options.format));
  if (format->kind != TraceKind::kJob) {
    return fail(ErrorCode::kInvalidArgument, "{} is a trace of requests ({}), not of jobs",
                path.string(), format->name);
  }
  // Made in place: its tables refer to its own trace.
  const std::unique_ptr<Loader> loader(new Loader{.options = options, .file = path.string()});
  loader->loaded.trace.source = path.string();
  loader->loaded.trace.format = format->name;
  if (format->name == "gavel") {
    WEFT_TRY(loader->read_gavel());
  } else if (format->name == "philly") {
    WEFT_TRY(loader->read_philly_json());
  } else {
    for (const JobCsvFormat& csv : job_csv_formats()) {
      if (csv.name == format->name) WEFT_TRY(loader->read_csv(csv));
    }
  }
  loader->finish();
  return std::move(loader->loaded);
}

}  // namespace weft::workload
