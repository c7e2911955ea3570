// Job traces: every published file reads to the counts of its text, and each kind of bad
// row is dropped under its own name and line.
#include "weft/workload/job_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/data.h"

namespace weft::workload {
namespace {

struct Expected {
  const char* path;
  const char* format;
  std::size_t kept;
  std::int64_t dropped;
};
constexpr Expected kFiles[] = {
    {"philly/philly.csv", "philly-csv", 82247, 0},
    {"rubick/workloads/workload-base.csv", "rubick", 406, 0},
    {"rubick/workloads/workload-bp.csv", "rubick", 406, 0},
    {"easyscale/test.csv", "easyscale", 68, 0},
    {"tiresias/60_job.csv", "tiresias", 60, 0},
    {"pollux/workloads/workload-1.csv", "pollux", 160, 0},
    {"gavel/msr/seed=0/0e4a51.trace", "gavel", 1181, 0},
    {"gavel/physical_cluster/small_test.trace", "gavel", 20, 0},
    {"openb/openb_pod_list_default.csv", "openb-pods", 8152, 0},
    {"openb/openb_pod_list_multigpu20.csv", "openb-pods", 8324, 0},
};

class PublishedJobs : public testing::TestWithParam<Expected> {};
TEST_P(PublishedJobs, ReadsWhole) {
  const Expected& expected = GetParam();
  WEFT_NEED_DATA(path, std::string("cluster-traces/") + expected.path);
  const auto loaded = load_jobs(path);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->trace.format, expected.format);
  EXPECT_EQ(loaded->tally.dropped(), expected.dropped) << loaded->tally.text();
  EXPECT_EQ(loaded->trace.jobs.size(), expected.kept);
  for (std::size_t i = 1; i < loaded->trace.jobs.size(); ++i) {
    ASSERT_LE(loaded->trace.jobs[i - 1].submit_s, loaded->trace.jobs[i].submit_s);
  }
}
INSTANTIATE_TEST_SUITE_P(All, PublishedJobs, testing::ValuesIn(kFiles), [](const auto& info) {
  std::string name = info.param.path;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
      '_');
  return name;
});

TEST(Jobs, PhillyHasTheSharesOfTheStudy) {
  WEFT_NEED_DATA(path, "cluster-traces/philly/philly.csv");
  const auto loaded = load_jobs(path);
  ASSERT_TRUE(loaded);
  double gpu_s = 0;
  for (const Job& job : loaded->trace.jobs) gpu_s += job.run_s * job.gpus;
  const JobInfo info = describe_jobs(loaded->trace);
  EXPECT_DOUBLE_EQ(info.gpu_hours, gpu_s / 3600);
  EXPECT_EQ(info.jobs, 82247);
  EXPECT_THAT(loaded->tally.notes(), testing::ElementsAre(testing::HasSubstr("no zone")));
}

class BadRows : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / fmt::format("weft-jobs-{}.csv", ::getpid());
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

// Eleven defects, each at twenty places.
TEST_F(BadRows, EachDefectIsCountedUnderItsNameAndLine) {
  const std::vector<std::pair<std::string, std::string>> defects = {
      {"jX,u,v,one,1,COMPLETED,5,6,7,1,0", "no count in 'gpu_num'"},
      {"jX,u,v,-1,1,COMPLETED,5,6,7,1,0", "no count in 'gpu_num'"},
      {"jX,u,v,1,x,COMPLETED,5,6,7,1,0", "no count in 'cpu_num'"},
      {"jX,u,v,1,1,COMPLETED,soon,6,7,1,0", "no time in 'submit_time'"},
      {"jX,u,v,1,1,COMPLETED,5,late,7,1,0", "no time in 'start_time'"},
      {"jX,u,v,1,1,COMPLETED,5,9,7,1,0", "end before start"},
      {"jX,u,v,1,1,COMPLETED,8,6,7,1,0", "start before submission"},
      {"jX,u,v,1,1,COMPLETED,5,6,7,-1,0", "negative duration in 'duration'"},
      {"jX,u,v,1,1,COMPLETED,5,6,7", "fewer cells than the header"},
      {"jX,u,v,1,1,COMPLETED,5,6,7,1,0,0", "more cells than the header"},
      {"j0,u,v,1,1,COMPLETED,5,6,7,1,0", "a job's name a second time"},
  };
  for (int place = 0; place < 20; ++place) {
    for (const auto& [row, reason] : defects) {
      const int line = 3 + place * 2;
      {
        std::ofstream file(path_);
        file << "job_id,user,vc,gpu_num,cpu_num,state,submit_time,start_time,end_time,duration,"
                "queue\n";
        for (int i = 0; i < 60; ++i) {
          if (i + 2 == line)
            file << row << "\n";
          else
            file << "j" << i << ",u,v,1,1,COMPLETED," << i << "," << i + 1 << "," << i + 5
                 << ",4,1\n";
        }
      }
      const auto loaded = load_jobs(path_);
      ASSERT_TRUE(loaded) << loaded.error().message;
      ASSERT_EQ(loaded->tally.dropped(), 1) << row;
      EXPECT_EQ(loaded->tally.drops()[0].name, reason);
      EXPECT_EQ(loaded->tally.drops()[0].lines[0], line);
      const auto strict = load_jobs(path_, {.strict = true});
      ASSERT_FALSE(strict);
      EXPECT_THAT(strict.error().message, testing::HasSubstr(fmt::format(":{}: {}", line, reason)));
    }
  }
}

}  // namespace
}  // namespace weft::workload
