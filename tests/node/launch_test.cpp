// The parts of the launcher that are pure: CPU shares, lines, verdicts.
#include "weft/node/launch.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "weft/node/cpu_set.h"
#include "weft/node/line_splitter.h"

namespace weft::node {
namespace {

using Parts = std::vector<std::vector<int>>;

TEST(CpuSet, RanksGetWholeCoresWhileThereAreEnough) {
  // Two cores with two threads each, numbered as Linux does: threads of core 0 are 0 and 2.
  const std::vector<Cpu> cpus = {{0, 0, 0}, {2, 0, 0}, {1, 0, 1}, {3, 0, 1}};
  EXPECT_EQ(split_cpus(cpus, 1), (Parts{{0, 2, 1, 3}}));
  EXPECT_EQ(split_cpus(cpus, 2), (Parts{{0, 2}, {1, 3}}));
  EXPECT_EQ(split_cpus(cpus, 3), (Parts{{0}, {2}, {1}}));
  EXPECT_EQ(split_cpus(cpus, 4), (Parts{{0}, {2}, {1}, {3}}));
}

TEST(CpuSet, MoreRanksThanCpusAreNotPinned) {
  EXPECT_EQ(split_cpus({{0, 0, 0}, {1, 0, 1}}, 3), (Parts{{}, {}, {}}));
}

TEST(CpuSet, ThisProcessHasCpus) {
  const auto cpus = allowed_cpus();
  ASSERT_TRUE(cpus);
  EXPECT_FALSE(cpus->empty());
}

TEST(CpuSet, ListsAreWrittenAsRuns) {
  EXPECT_EQ(format_cpu_list({}), "");
  EXPECT_EQ(format_cpu_list({3, 1, 0, 2, 8, 10, 11}), "0-3,8,10-11");
}

std::vector<std::string> lines_of(const std::vector<std::string>& writes) {
  LineSplitter splitter;
  std::vector<std::string> lines;
  const auto sink = [&](std::string_view line) { lines.emplace_back(line); };
  for (const std::string& write : writes) splitter.add(write, sink);
  splitter.finish(sink);
  return lines;
}

using Lines = std::vector<std::string>;

TEST(LineSplitter, LinesComeWholeHoweverTheyAreWritten) {
  EXPECT_EQ(lines_of({"a\nb", "c\n", "\nd"}), (Lines{"a", "bc", "", "d"}));
  EXPECT_EQ(lines_of({}), Lines{});
}

TEST(LineSplitter, ARewrittenLineShowsItsLastState) {
  EXPECT_EQ(lines_of({"10%\r50%\r100%\n", "dos\r\n"}), (Lines{"100%", "dos"}));
}

TEST(LineSplitter, AnEndlessLineIsBoundedAndLosesNothing) {
  const auto lines = lines_of({std::string(3 * LineSplitter::kLongest, 'x')});
  std::size_t total = 0;
  for (const std::string& line : lines) total += line.size();
  EXPECT_EQ(total, 3 * LineSplitter::kLongest);
}

TEST(LaunchVerdict, CodesAreThoseOfShells) {
  LaunchVerdict verdict;
  EXPECT_EQ(verdict.exit_code(), 0);
  verdict.outcome = LaunchOutcome::kRankFailed;
  verdict.first.code = 7;
  EXPECT_EQ(verdict.exit_code(), 7);
  verdict.first = {.rank = 2, .pid = 11, .code = 0, .signal = SIGKILL, .seconds = 3.2};
  EXPECT_EQ(verdict.exit_code(), 137);
  EXPECT_EQ(verdict.sentence(), "rank 2 (process 11) was killed by signal 9 (Killed) after 3.20 s");
  verdict.outcome = LaunchOutcome::kInterrupted;
  verdict.signal = SIGINT;
  EXPECT_EQ(verdict.exit_code(), 130);
  verdict.outcome = LaunchOutcome::kTimedOut;
  EXPECT_EQ(verdict.exit_code(), 124);
}

}  // namespace
}  // namespace weft::node
