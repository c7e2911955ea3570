#include "weft/base/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <thread>

namespace weft {
namespace {

struct Sample {
  std::uint64_t number;
  std::uint64_t twice[10];
};
Sample sample(std::uint64_t number) {
  Sample s{number, {}};
  for (auto& t : s.twice) t = 2 * number;
  return s;
}
// True when no word of the record comes from another one.
bool consistent(const RingRecord& record) {
  const auto s = record.as<Sample>();
  bool good = s.number == record.index && record.ns == 7 * s.number && record.kind == 5;
  for (const auto t : s.twice) good = good && t == 2 * s.number;
  return good;
}

class RingTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::filesystem::path path_ = fmt::format("/dev/shm/weft-ring-test-{}", ::getpid());
};

TEST_F(RingTest, ReadsBackWhatWasPutWithItsNames) {
  RingOptions options{
      .writer = "rank 3", .rank = 3, .incarnation = 9, .lanes = 2, .bytes = 1 << 14};
  auto ring = Ring::create(path_, options);
  ASSERT_TRUE(ring) << ring.error().message;
  RingLane* first = *ring->claim_lane("main");
  RingLane* second = *ring->claim_lane("progress");
  EXPECT_EQ(ring->claim_lane("third").error().code, ErrorCode::kResourceExhausted);
  for (std::uint64_t i = 0; i < 10; ++i) first->put(5, 7 * i, sample(i));
  second->put(6, 1, std::uint8_t{42});
  auto reader = RingReader::open(path_);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->writer(), "rank 3");
  EXPECT_EQ(reader->rank(), 3u);
  EXPECT_EQ(reader->incarnation(), 9u);
  EXPECT_EQ(reader->pid(), ::getpid());
  EXPECT_EQ(reader->lanes(), 2u);
  EXPECT_EQ(reader->lane_name(1), "progress");
  const RingRead read = *reader->read(0);
  ASSERT_EQ(read.records.size(), 10u);
  for (const auto& record : read.records) EXPECT_TRUE(consistent(record));
  EXPECT_EQ(read.lost, 0u);
  EXPECT_FALSE(read.torn);
  EXPECT_EQ(reader->read(1)->records[0].as<std::uint8_t>(), 42);
  EXPECT_TRUE(reader->read(0, read.next)->records.empty());
  EXPECT_EQ(reader->read(2).error().code, ErrorCode::kOutOfRange);
}

TEST_F(RingTest, CountsWhatWasOverwritten) {
  auto ring = *Ring::create(path_, {.lanes = 1, .bytes = 8 * 128});
  RingLane* lane = *ring.claim_lane("main");
  const auto reader = *RingReader::open(path_);
  for (std::uint64_t total = 1; total < 40; ++total) {
    lane->put(5, 7 * (total - 1), sample(total - 1));
    const RingRead read = *reader.read(0);
    const std::uint64_t kept = std::min<std::uint64_t>(total, 8);
    ASSERT_EQ(read.records.size(), kept) << total;
    EXPECT_EQ(read.records.front().index, total - kept);
    EXPECT_EQ(read.lost, total - kept);
    EXPECT_EQ(read.next, total);
  }
}

// A reader beside a fast writer: nothing torn, nothing counted twice or forgotten.
TEST_F(RingTest, ReaderBesideAWriterLosesNothingSilently) {
  auto ring = *Ring::create(path_, {.lanes = 1, .bytes = 1 << 13});
  RingLane* lane = *ring.claim_lane("main");
  constexpr std::uint64_t kPuts = 300'000;
  std::thread writer([lane] {
    for (std::uint64_t i = 0; i < kPuts; ++i) {
      lane->put(5, 7 * i, sample(i));
      if (i % 1000 == 0) std::this_thread::yield();
    }
  });
  const auto reader = *RingReader::open(path_);
  std::uint64_t next = 0, got = 0, lost = 0, bad = 0, last = 0;
  while (next < kPuts) {
    const RingRead read = *reader.read(0, next);
    for (const auto& record : read.records) {
      bad += consistent(record) ? 0 : 1;
      bad += got > 0 && record.index <= last ? 1 : 0;
      last = record.index;
      ++got;
    }
    lost += read.lost;
    next = read.next;
    std::this_thread::yield();
  }
  writer.join();
  EXPECT_EQ(bad, 0u);
  EXPECT_EQ(got + lost, kPuts);
  EXPECT_EQ(last, kPuts - 1);
}

// Each of 200 writers is killed at a random moment; every record up to its last
// finished put is there, whole, and at most one more.
TEST_F(RingTest, EveryRecordOfAKilledWriterIsFound) {
  auto* done = static_cast<std::atomic<std::uint64_t>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(done, MAP_FAILED);
  std::mt19937 random(11);
  int complete = 0, wrapped = 0;
  for (int round = 0; round < 200; ++round) {
    done->store(0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto ring = Ring::create(path_, {.lanes = 1, .bytes = 1 << 15});
      if (!ring) ::_exit(1);
      RingLane* lane = *ring->claim_lane("main");
      for (std::uint64_t i = 0;; ++i) {
        lane->put(5, 7 * i, sample(i));
        done->store(i + 1, std::memory_order_release);
      }
    }
    ASSERT_GT(child, 0);
    while (done->load(std::memory_order_acquire) == 0) ::usleep(50);
    ::usleep(random() % 300);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const std::uint64_t last = done->load();
    const auto reader = RingReader::open(path_);
    ASSERT_TRUE(reader) << reader.error().message;
    const RingRead read = *reader->read(0);
    const std::uint64_t slots = reader->slots_per_lane();
    bool good = (read.next == last || read.next == last + 1) && !read.records.empty();
    // A record begun after the last whole one has taken the oldest one's place.
    const std::uint64_t kept = std::min(read.next, slots) - (read.torn && read.next >= slots);
    good = good && read.records.size() == kept && read.records.back().index + 1 == read.next;
    for (const auto& record : read.records) good = good && consistent(record);
    EXPECT_TRUE(good) << "round " << round << ": last put " << last << ", read up to " << read.next
                      << ", " << read.records.size() << " records, torn " << read.torn;
    complete += good ? 1 : 0;
    wrapped += read.next > slots ? 1 : 0;
  }
  EXPECT_EQ(complete, 200);
  EXPECT_GT(wrapped, 0);
  ::munmap(done, 4096);
}

TEST_F(RingTest, DamagedFilesAreRefusedByField) {
  {
    auto ring = *Ring::create(path_, {.writer = "x", .lanes = 2, .bytes = 1 << 13});
  }
  std::ifstream file(path_, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(file)), {});
  const auto open_with = [&](auto change) {
    std::string bytes = good;
    change(bytes);
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    const auto reader = RingReader::open(path_);
    return reader ? std::string("opened") : reader.error().message;
  };
  EXPECT_EQ(open_with([](std::string&) {}), "opened");
  EXPECT_THAT(open_with([](std::string& b) { b[0] = 'X'; }), ::testing::HasSubstr("magic"));
  EXPECT_THAT(open_with([](std::string& b) { b[8] = 9; }), ::testing::HasSubstr("version"));
  EXPECT_THAT(open_with([](std::string& b) { b[12] = 1; }), ::testing::HasSubstr("slot_bytes"));
  EXPECT_THAT(open_with([](std::string& b) { b[16] = 0; }), ::testing::HasSubstr("lanes"));
  EXPECT_THAT(open_with([](std::string& b) { b[31] = 127; }),
              ::testing::HasSubstr("slots_per_lane"));
  EXPECT_THAT(open_with([](std::string& b) { b.resize(b.size() - 1); }),
              ::testing::HasSubstr("truncated"));
  EXPECT_THAT(open_with([](std::string& b) { b.resize(100); }), ::testing::HasSubstr("too few"));
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {  // whatever the header says, reading stays inside the file
    open_with([&](std::string& b) { b[random() % 256] = static_cast<char>(random()); });
    if (const auto reader = RingReader::open(path_)) {
      for (std::uint32_t lane = 0; lane < reader->lanes(); ++lane) (void)reader->read(lane);
    }
  }
  EXPECT_EQ(RingReader::open("/dev/shm/weft-no-such-ring").error().code, ErrorCode::kNotFound);
}

TEST_F(RingTest, BadOptionsAreRefused) {
  EXPECT_EQ(Ring::create(path_, {.lanes = 0}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Ring::create(path_, {.lanes = 4, .bytes = 100}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(ring_path("a/b", 0).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft
