#include "weft/comm/group_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/comm/ranks.h"

namespace weft::comm {
namespace {

// Runs `body` for each member, as threads, with a table over either path.
void on_members(Path path, std::uint32_t count,
                const std::function<void(MemberId, GroupTable&, Transport*)>& body) {
  MemoryRendezvous rendezvous;
  const std::string job = fresh_job();
  std::vector<std::unique_ptr<Transport>> transports(count);
  std::vector<std::unique_ptr<GroupTable>> tables(count);
  std::vector<std::thread> threads;
  for (MemberId m = 0; m < count; ++m) {
    threads.emplace_back([&, m] {
      CommunicatorOptions options;
      options.job = job;
      options.shared_memory = path == Path::kShared;
      if (path == Path::kNetwork) {
        TransportOptions settings;
        settings.self = m;
        settings.transports = "tcp";
        transports[m] = *Transport::create(settings);
        options.transport = transports[m].get();
      }
      tables[m] = std::make_unique<GroupTable>(m, rendezvous, options);
      body(m, *tables[m], transports[m].get());
    });
  }
  for (auto& thread : threads) thread.join();
  tables.clear();
}

std::int32_t sum_of_members(Communicator& c, MemberId self) {
  std::int32_t value = static_cast<std::int32_t>(self);
  const Status status = c.all_reduce(&value, &value, 1, DType::kI32, ReduceOp::kSum, soon());
  EXPECT_TRUE(status) << status.error().message;
  return value;
}

class GroupTableTest : public ::testing::TestWithParam<Path> {};
INSTANTIATE_TEST_SUITE_P(Paths, GroupTableTest, ::testing::Values(Path::kShared, Path::kNetwork),
                         [](const auto& info) {
                           return info.param == Path::kShared ? "shared" : "network";
                         });

TEST_P(GroupTableTest, AnEditReplacesMembersAndReusesEndpoints) {
  const std::vector<MemberId> before{0, 1, 2, 3}, after{0, 1, 4, 3};
  on_members(GetParam(), 5, [&](MemberId self, GroupTable& table, Transport* transport) {
    if (self != 4) {
      auto group = table.create(9, before, soon());
      ASSERT_TRUE(group) << group.error().message;
      EXPECT_EQ(sum_of_members(**group, self), 6);
    }
    if (self == 2) return;
    const std::uint64_t opened = transport != nullptr ? transport->counters().endpoints_opened : 0;
    const auto prepared = table.prepare(9, 1, after);
    ASSERT_TRUE(prepared) << prepared.error().message;
    auto group = table.commit(*prepared, soon());
    ASSERT_TRUE(group) << group.error().message;
    EXPECT_EQ((*group)->view().epoch, 2u);
    EXPECT_EQ(sum_of_members(**group, self), 8);
    if (transport != nullptr && self != 4) {
      EXPECT_EQ(transport->counters().endpoints_opened - opened, 1u);
    }
    EXPECT_EQ(table.view().at(9).members, after);
    EXPECT_EQ(table.prepare(9, 1, before).error().code, ErrorCode::kUnavailable);
  });
}

TEST_P(GroupTableTest, SplitsKeepTheOrderAndWorkAtTheSameTime) {
  const std::vector<MemberId> all{0, 1, 2, 3, 4};
  on_members(GetParam(), 5, [&](MemberId self, GroupTable& table, Transport*) {
    auto whole = table.create(10, all, soon());
    ASSERT_TRUE(whole) << whole.error().message;
    auto half = table.split(10, self % 2, soon());
    ASSERT_TRUE(half) << half.error().message;
    EXPECT_EQ(sum_of_members(**half, self), self % 2 == 0 ? 6 : 4);
    EXPECT_EQ(sum_of_members(**whole, self), 10);
    EXPECT_EQ((*half)->rank(), self / 2);
  });
}

TEST(GroupTable, ProposalsThatDifferOrMakeNoSenseAreRefused) {
  MemoryRendezvous rendezvous;
  GroupTable a(0, rendezvous, {}), b(1, rendezvous, {});
  const std::vector<MemberId> one{0, 1}, other{1, 0}, twice{0, 0};
  EXPECT_TRUE(a.prepare(5, 0, one));
  const auto refused = b.prepare(5, 0, other);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("\"0 1\", not \"1 0\""));
  EXPECT_EQ(a.prepare(6, 0, twice).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(a.prepare(6, 0, {}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(a.find(5).error().code, ErrorCode::kNotFound);
}

TEST(GroupTable, ACommitThatFailsLeavesTheOldEpochWorking) {
  const std::vector<MemberId> before{0, 1}, after{0, 1, 2};  // 2 never comes
  on_members(Path::kShared, 2, [&](MemberId self, GroupTable& table, Transport*) {
    Communicator* const old = *table.create(11, before, soon());
    const auto prepared = table.prepare(11, 1, after);
    ASSERT_TRUE(prepared);
    const auto failed = table.commit(*prepared, Deadline::after(std::chrono::milliseconds(100)));
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed.error().message, ::testing::HasSubstr("rank 2"));
    EXPECT_EQ(sum_of_members(*old, self), 1);
  });
}

}  // namespace
}  // namespace weft::comm
