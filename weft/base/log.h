// Log lines on stderr, as text or as one JSON object a line.
//
// WEFT_LOG sets the level and the form: WEFT_LOG=debug, WEFT_LOG=json,
// WEFT_LOG=warn,json. Levels: trace debug info warn error off; info by default.
// Any thread may log at any time; a line is written whole.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "weft/base/result.h"

namespace weft {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError, kOff };

struct LogSettings {
  LogLevel level = LogLevel::kInfo;
  bool json = false;
};

// The settings in a value of WEFT_LOG.
Result<LogSettings> parse_log_settings(std::string_view text);
// Replaces the settings that WEFT_LOG gave.
void set_log_settings(LogSettings settings);

bool log_enabled(LogLevel level);
void log_message(LogLevel level, std::string_view message);
// The line as it is written, without the line end; `unix_ns` is the time.
std::string format_log_line(LogSettings settings, LogLevel level, std::string_view message,
                            std::int64_t unix_ns, std::int64_t thread);

template <class... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_message(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kWarn, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace weft
