#include "weft/workload/request_reader.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "weft/workload/conversation_source.h"
#include "weft/workload/line_source.h"
#include "weft/workload/request_parser.h"

namespace weft::workload {
namespace {

constexpr std::int64_t kProgressRows = 65'536;

// Names to small numbers, in order of first appearance.
class NameTable {
 public:
  std::int32_t number(std::string_view name, std::vector<std::string>& names) {
    if (last_ >= 0 && names[static_cast<std::size_t>(last_)] == name) return last_;
    const auto [found, fresh] =
        numbers_.try_emplace(std::string(name), static_cast<std::int32_t>(names.size()));
    if (fresh) names.emplace_back(name);
    return last_ = found->second;
  }

 private:
  std::unordered_map<std::string, std::int32_t> numbers_;
  std::int32_t last_ = -1;
};

}  // namespace

struct RequestReader::State {
  State(LineSource source, const TraceFormat& format) : source(std::move(source)), format(format) {}

  LineSource source;
  std::optional<ConversationSource> conversations;  // instead of lines
  const TraceFormat& format;
  RequestReadOptions options;
  std::unique_ptr<RequestParser> parser;
  RequestTrace facts;
  RowTally tally;
  ParsedRequest parsed;
  std::string_view pending;  // the first line, when it is a row
  bool has_pending = false;
  NameTable session_table, label_table;
  std::unordered_map<std::string, std::int32_t> chats;  // Bailian: chat id to session
  std::int64_t last_ns = std::numeric_limits<std::int64_t>::min();

  Result<bool> next_line(std::string_view& line) {
    if (has_pending) {
      has_pending = false;
      line = pending;
      return true;
    }
    if (conversations) return conversations->next(line);
    WEFT_ASSIGN(const bool more, source.next(line));
    if (more && options.progress && source.line_number() % kProgressRows == 0) {
      options.progress(source.bytes_read(), source.file_bytes());
    }
    return more;
  }

  std::int64_t place() const {
    return conversations ? conversations->element() : source.line_number();
  }
  Error at_line(const std::string& what) const {
    return {ErrorCode::kCorrupt,
            fmt::format("{}: {} {}: {}", source.name(), conversations ? "conversation" : "line",
                        place(), what)};
  }

  std::int32_t session_of(const ParsedRequest& row) {
    if (row.chat.empty()) {
      return row.session.empty() ? -1 : session_table.number(row.session, facts.sessions);
    }
    // A turn is of the session of the turn before it; the first turn names the session.
    std::int32_t session = -1;
    if (const auto parent = chats.find(std::string(row.parent_chat)); parent != chats.end()) {
      session = parent->second;
    } else {
      session = session_table.number(row.chat, facts.sessions);
    }
    chats[std::string(row.chat)] = session;
    return session;
  }

  // The row's own problem beyond its cells: order, and the number of its blocks.
  Result<std::string> check(const ParsedRequest& row) const {
    if (!row.blocks.empty() && facts.block_tokens != 0) {
      const std::uint64_t wanted =
          (std::uint64_t{row.input_tokens} + facts.block_tokens - 1) / facts.block_tokens;
      if (row.blocks.size() != wanted) {
        return std::unexpected(at_line(fmt::format(
            "{} block ids for {} input tokens, but blocks of {} tokens need {}; give the block "
            "size of this trace with --block-tokens",
            row.blocks.size(), row.input_tokens, facts.block_tokens, wanted)));
      }
    }
    if (facts.has_times && options.order == TimeOrder::kDrop && row.time_ns < last_ns) {
      return std::string("time goes backwards");
    }
    return std::string();
  }

  Result<bool> next(Request& row) {
    std::string_view line;
    for (;;) {
      WEFT_ASSIGN(const bool more, next_line(line));
      if (!more) {
        finish();
        return false;
      }
      RowProblem problem = parser->parse(line, parsed);
      if (problem.blank) continue;
      if (problem.fatal) return std::unexpected(at_line(problem.reason));
      if (problem.reason.empty()) {
        WEFT_ASSIGN(problem.reason, check(parsed));
      }
      if (!problem.reason.empty()) {
        if (options.strict) return std::unexpected(at_line(problem.reason + " (strict reading)"));
        tally.drop(problem.reason, place());
        continue;
      }
      if (format.name == "azure" || format.name == "tracelab") {
        if (!facts.zero_unix_ns) facts.zero_unix_ns = parsed.time_ns;
        row.time_ns = parsed.time_ns - *facts.zero_unix_ns;
      } else {
        row.time_ns = parsed.time_ns;
      }
      last_ns = parsed.time_ns;
      row.input_tokens = parsed.input_tokens;
      row.output_tokens = parsed.output_tokens;
      row.failed = parsed.failed;
      row.elapsed_s = parsed.elapsed_s;
      row.session = session_of(parsed);
      const std::int32_t label = label_table.number(parsed.label, facts.labels);
      if (label > std::numeric_limits<std::uint16_t>::max()) {
        return std::unexpected(at_line("more than 65,536 different labels; this is no label"));
      }
      row.label = static_cast<std::uint16_t>(label);
      row.block_count = static_cast<std::uint32_t>(parsed.blocks.size());
      tally.keep();
      first_ns = std::min(first_ns, parsed.time_ns);
      return true;
    }
  }

  // Milliseconds read as seconds, or the reverse, show in the mean rate.
  void finish() {
    tally.finish();
    if (!facts.has_times || tally.kept() < 100) return;
    const double span = static_cast<double>(last_ns - first_ns) / kNsPerSecond;
    const double rate = span > 0 ? static_cast<double>(tally.kept()) / span : 0;
    if (rate > 20'000) {
      tally.note(
          fmt::format("{:.3g} requests a second: are the times in another unit (seconds "
                      "written where milliseconds are read)?",
                      rate));
    } else if (rate > 0 && rate < 2e-4) {
      tally.note(
          fmt::format("one request every {:.0f} s: are the times in another unit "
                      "(milliseconds written where seconds are read)?",
                      1 / rate));
    }
  }
  std::int64_t first_ns = std::numeric_limits<std::int64_t>::max();
};

RequestReader::RequestReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
RequestReader::RequestReader(RequestReader&&) noexcept = default;
RequestReader& RequestReader::operator=(RequestReader&&) noexcept = default;
RequestReader::~RequestReader() = default;

Result<RequestReader> RequestReader::open(const std::filesystem::path& path,
                                          RequestReadOptions options) {
  WEFT_ASSIGN(const TraceFormat* format, detect_trace_format(path, options.format));
  if (format->kind != TraceKind::kRequest) {
    return fail(ErrorCode::kInvalidArgument, "{} is a trace of jobs ({}), not of requests",
                path.string(), format->name);
  }
  if (format->name == "servegen") {
    return fail(
        ErrorCode::kInvalidArgument,
        "{} holds models of clients, not requests: draw requests from them with `weft trace "
        "gen --clients {} -o FILE`",
        path.string(), path.string());
  }
  WEFT_ASSIGN(LineSource source, LineSource::open(path));
  auto state = std::make_unique<State>(std::move(source), *format);
  state->options = std::move(options);
  if (state->options.order == TimeOrder::kAuto) {
    // RAGPulse is two halves, the later one first; TraceLab holds session after session.
    const bool runs = format->name == "ragpulse" || format->name == "tracelab";
    state->options.order = runs ? TimeOrder::kSort : TimeOrder::kDrop;
  }
  state->parser = make_csv_parser(format->name, path.string());
  if (!state->parser) {
    state->parser = make_jsonl_parser(format->name, path.string(), state->options);
  }
  WEFT_CHECK(state->parser != nullptr, "no parser for {}", format->name);
  state->facts.name = path.string();
  state->facts.format = format->name;
  if (format->name == "sharegpt") {
    WEFT_ASSIGN(state->conversations, ConversationSource::open(path, state->options.count_tokens));
    WEFT_TRY(state->parser->begin("", state->facts, state->tally));
    return RequestReader(std::move(state));
  }
  WEFT_ASSIGN(const bool more, state->source.next(state->pending));
  if (more) {
    WEFT_ASSIGN(const bool header,
                state->parser->begin(state->pending, state->facts, state->tally));
    state->has_pending = !header;
  }
  return RequestReader(std::move(state));
}

Result<bool> RequestReader::next(Request& row, std::span<const std::uint64_t>& blocks) {
  WEFT_ASSIGN(const bool more, state_->next(row));
  blocks = state_->parsed.blocks;
  return more;
}

const RowTally& RequestReader::tally() const { return state_->tally; }
const RequestTrace& RequestReader::facts() const { return state_->facts; }

Result<LoadedRequests> load_requests(const std::filesystem::path& path,
                                     RequestReadOptions options) {
  const bool strict = options.strict;
  WEFT_ASSIGN(RequestReader reader, RequestReader::open(path, std::move(options)));
  const bool sort = reader.state_->options.order == TimeOrder::kSort;
  LoadedRequests loaded;
  std::vector<Request> rows;
  std::vector<std::uint64_t> ids;
  Request row;
  std::span<const std::uint64_t> blocks;
  std::int64_t latest = std::numeric_limits<std::int64_t>::min();
  bool sorted = true;
  for (;;) {
    WEFT_ASSIGN(const bool more, reader.next(row, blocks));
    if (!more) break;
    if (ids.size() + blocks.size() > std::numeric_limits<std::uint32_t>::max()) {
      return fail(ErrorCode::kResourceExhausted,
                  "{}: more than 2^32 prompt blocks; slice the trace", path.string());
    }
    row.first_block = static_cast<std::uint32_t>(ids.size());
    ids.insert(ids.end(), blocks.begin(), blocks.end());
    if (sort && row.time_ns < latest) {
      const std::int64_t line = reader.state_->source.line_number();
      if (strict) {
        return fail(ErrorCode::kCorrupt, "{}: line {}: time goes backwards (strict reading)",
                    path.string(), line);
      }
      reader.state_->tally.repair("time went backwards; sorted", line);
      sorted = false;
    }
    latest = std::max(latest, row.time_ns);
    rows.push_back(row);
  }
  loaded.trace = reader.facts();
  loaded.trace.rows = std::move(rows);
  loaded.trace.block_ids = std::move(ids);
  if (!sorted) {
    std::ranges::stable_sort(loaded.trace.rows, {}, &Request::time_ns);
    // A date before the first row's date: zero moves to the earliest.
    if (loaded.trace.zero_unix_ns && loaded.trace.rows.front().time_ns < 0) {
      const std::int64_t shift = loaded.trace.rows.front().time_ns;
      for (Request& each : loaded.trace.rows) each.time_ns -= shift;
      *loaded.trace.zero_unix_ns += shift;
    }
  }
  loaded.tally = reader.tally();
  return loaded;
}

}  // namespace weft::workload
