#include "weft/base/log.h"

#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "weft/base/json.h"

namespace weft {
namespace {

constexpr std::pair<LogLevel, std::string_view> kLevels[] = {
    {LogLevel::kTrace, "trace"}, {LogLevel::kDebug, "debug"}, {LogLevel::kInfo, "info"},
    {LogLevel::kWarn, "warn"},   {LogLevel::kError, "error"}, {LogLevel::kOff, "off"}};

std::string_view name_of(LogLevel level) { return kLevels[static_cast<int>(level)].second; }

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

LogLevel from_spdlog(spdlog::level::level_enum level) {
  for (const auto& [ours, name] : kLevels) {
    if (to_spdlog(ours) == level) return ours;
  }
  return LogLevel::kError;
}

class LineFormatter final : public spdlog::formatter {
 public:
  explicit LineFormatter(LogSettings settings) : settings_(settings) {}
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    using std::chrono::duration_cast;
    const auto ns =
        duration_cast<std::chrono::nanoseconds>(message.time.time_since_epoch()).count();
    const std::string line = format_log_line(settings_, from_spdlog(message.level),
                                             {message.payload.data(), message.payload.size()}, ns,
                                             static_cast<std::int64_t>(message.thread_id));
    out.append(line.data(), line.data() + line.size());
    out.push_back('\n');
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(settings_);
  }

 private:
  LogSettings settings_;
};

// The one process-wide object of this room: a line may come from any depth, and
// where it goes is the operator's choice, not the caller's.
spdlog::logger& logger() {
  static spdlog::logger& instance = []() -> spdlog::logger& {
    // Never destroyed: threads may log while the process ends.
    auto* made = new spdlog::logger("weft", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    LogSettings settings;
    std::string complaint;
    if (const char* text = std::getenv("WEFT_LOG")) {
      if (auto parsed = parse_log_settings(text)) {
        settings = *parsed;
      } else {
        complaint = parsed.error().message;
      }
    }
    made->set_level(to_spdlog(settings.level));
    made->set_formatter(std::make_unique<LineFormatter>(settings));
    made->flush_on(spdlog::level::trace);
    if (!complaint.empty()) made->warn("WEFT_LOG: {}", complaint);
    return *made;
  }();
  return instance;
}

}  // namespace

Result<LogSettings> parse_log_settings(std::string_view text) {
  LogSettings settings;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(comma == text.npos ? text.size() : comma + 1);
    bool known = word == "text" || word == "json";
    if (known) settings.json = word == "json";
    for (const auto& [level, name] : kLevels) {
      if (word != name) continue;
      settings.level = level;
      known = true;
    }
    if (!known) {
      return fail(ErrorCode::kInvalidArgument,
                  "\"{}\" is no log setting; use trace, debug, info, warn, error or off, and text "
                  "or json, with commas between",
                  word);
    }
  }
  return settings;
}

void set_log_settings(LogSettings settings) {
  logger().set_level(to_spdlog(settings.level));
  logger().set_formatter(std::make_unique<LineFormatter>(settings));
}

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

void log_message(LogLevel level, std::string_view message) {
  logger().log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

std::string format_log_line(LogSettings settings, LogLevel level, std::string_view message,
                            std::int64_t unix_ns, std::int64_t thread) {
  const std::time_t seconds = unix_ns / 1'000'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  const std::string time =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                  utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, unix_ns / 1'000'000 % 1000);
  if (!settings.json) return fmt::format("{} {:<5} {}", time, name_of(level), message);
  return dump_json(
      Json{{"time", time}, {"level", name_of(level)}, {"thread", thread}, {"message", message}});
}

}  // namespace weft
