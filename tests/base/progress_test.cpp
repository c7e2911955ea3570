#include "weft/base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/units.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a Progress wrote to a pipe-like file.
std::string written(const std::function<void(std::FILE*)>& work) {
  std::FILE* file = std::tmpfile();
  work(file);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(Progress, InAPipeLinesArePlain) {
  const std::string text = written([](std::FILE* file) {
    Progress progress("train", 100, "steps",
                      {.out = file, .line_every = std::chrono::milliseconds(0)});
    progress.advance(5);
    progress.note("loss 2.31");
    progress.set(50);
  });
  EXPECT_THAT(text, HasSubstr("train: 5/100 steps (5 %)"));
  EXPECT_THAT(text, HasSubstr("train: 50/100 steps (50 %)"));
  EXPECT_THAT(text, HasSubstr(", loss 2.31\n"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Progress, ShortWorkWritesOneLineAndQuietWorkNone) {
  const std::string text = written([](std::FILE* file) {
    Progress progress("load", 0, "tensors", {.out = file});
    for (int i = 0; i < 1000; ++i) progress.advance();
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, HasSubstr("load: 1000 tensors in "));
  EXPECT_EQ(written([](std::FILE* file) {
              Progress progress("load", 10, "tensors", {.quiet = true, .out = file});
              progress.advance();
              progress.line("a line");
            }),
            "");
}

TEST(Progress, LinesShowRateAndTimeLeft) {
  ProgressView view{.what = "fetch",
                    .unit = "B",
                    .note = "",
                    .done = 50'000'000,
                    .total = 105'000'000,
                    .elapsed_s = 4,
                    .rate = 12.5e6,
                    .finished = false};
  EXPECT_EQ(format_progress(view, 0), "fetch: 50.0 MB/105 MB (47 %), 12.5 MB/s, 4.4 s left");
  EXPECT_EQ(format_progress(view, 80),
            "fetch [#######.........] 50.0 MB/105 MB (47 %), 12.5 MB/s, 4.4 s left");
  EXPECT_EQ(format_progress(view, 40).size(), 39U);
  view.finished = true;
  EXPECT_EQ(format_progress(view, 0), "fetch: 50.0 MB/105 MB in 4.0 s (12.5 MB/s)");
}

TEST(Units, ReadWell) {
  EXPECT_EQ(human_bytes(17), "17 B");
  EXPECT_EQ(human_bytes(1.784e9), "1.78 GB");
  EXPECT_EQ(human_bytes(999'600), "1.00 MB");
  EXPECT_EQ(human_count(134'515'008), "135 M");
  EXPECT_EQ(human_count(12), "12");
  EXPECT_EQ(human_duration(0.0012), "1.20 ms");
  EXPECT_EQ(human_duration(59.96), "1 min 00 s");
  EXPECT_EQ(human_duration(125), "2 min 05 s");
  EXPECT_EQ(human_duration(11220), "3 h 07 min");
}

}  // namespace
}  // namespace weft
