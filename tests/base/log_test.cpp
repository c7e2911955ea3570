#include "weft/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/json.h"

namespace weft {
namespace {

constexpr std::int64_t kTime = 1'764'542'284'123'456'789;  // 2025-11-30T22:38:04.123Z

TEST(Log, LinesAreTextOrJson) {
  EXPECT_EQ(format_log_line({}, LogLevel::kWarn, "disk \"a\" is full", kTime, 7),
            "2025-11-30T22:38:04.123Z warn  disk \"a\" is full");
  const std::string line = format_log_line({.level = LogLevel::kInfo, .json = true},
                                           LogLevel::kError, "two\nlines \xff", kTime, 7);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Json json = parse_json(line, "line").value();
  EXPECT_EQ(json["level"], "error");
  EXPECT_EQ(json["message"], "two\nlines \xef\xbf\xbd");
  EXPECT_EQ(json["time"], "2025-11-30T22:38:04.123Z");
}

TEST(Log, TheLevelSaysWhatIsWritten) {
  set_log_settings({.level = LogLevel::kWarn});
  ::testing::internal::CaptureStderr();
  log_info("hidden {}", 1);
  log_warn("shown {}", 2);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::EndsWith("warn  shown 2\n"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("hidden")));
  set_log_settings({});
}

TEST(Log, SettingsAreParsed) {
  EXPECT_EQ(parse_log_settings("debug,json").value().level, LogLevel::kDebug);
  EXPECT_TRUE(parse_log_settings("json").value().json);
  EXPECT_THAT(parse_log_settings("loud").error().message, ::testing::HasSubstr("\"loud\""));
}

}  // namespace
}  // namespace weft
