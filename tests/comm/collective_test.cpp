// What each collective promises, over shared memory and over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "tests/comm/ranks.h"
#include "tests/support/data.h"
#include "weft/base/rng.h"
#include "weft/comm/reduce.h"
#include "weft/comm/trace.h"

namespace weft::comm {
namespace {

const DType kTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI8,
                        DType::kU8,  DType::kI16, DType::kI32,  DType::kI64};

using Bytes = std::vector<std::byte>;

// `count` values of a type, different for each rank; floats between -8 and 8.
Bytes values(DType type, std::uint64_t count, std::uint32_t rank, std::uint64_t seed = 1) {
  const auto element = static_cast<std::size_t>(block_bytes(type));
  Bytes bytes(count * element);
  const Rng random(seed, RngUse::kTest, rank);
  for (std::uint64_t i = 0; i < count; ++i) {
    const float f = random.uniform(i) * 16 - 8;
    std::byte* to = bytes.data() + i * element;
    if (type == DType::kF32) {
      std::memcpy(to, &f, 4);
    } else if (type == DType::kF64) {
      const double d = f * 1.0000001;
      std::memcpy(to, &d, 8);
    } else if (type == DType::kBF16 || type == DType::kF16) {
      const std::uint16_t h = type == DType::kBF16 ? f32_to_bf16(f) : f32_to_f16(f);
      std::memcpy(to, &h, 2);
    } else {
      const std::uint64_t bits = std::uint64_t{random.bits(i)} * 0x9e3779b97f4a7c15ULL;
      std::memcpy(to, &bits, element);
    }
  }
  return bytes;
}

// The canonical tree, written as its definition reads: scalar, recursive.
template <class T, class Op>
T tree(std::span<const T> leaves, std::size_t first, std::size_t size, Op op) {
  if (size == 1) return leaves[first];
  const T left = tree(leaves, first, size / 2, op);
  if (first + size / 2 >= leaves.size()) return left;
  return op(left, tree(leaves, first + size / 2, size / 2, op));
}

template <class T, class Op>
Bytes reference_as(std::span<const Bytes> inputs, Op op) {
  Bytes result(inputs[0].size());
  for (std::size_t i = 0; i < result.size() / sizeof(T); ++i) {
    std::vector<T> leaves(inputs.size());
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      std::memcpy(&leaves[r], inputs[r].data() + i * sizeof(T), sizeof(T));
    }
    const T value = tree<T>(leaves, 0, std::bit_ceil(leaves.size()), op);
    std::memcpy(result.data() + i * sizeof(T), &value, sizeof(T));
  }
  return result;
}

template <class T>
T apply(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
      } else {
        return a + b;
      }
    case ReduceOp::kProduct:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
      } else {
        return a * b;
      }
    case ReduceOp::kMin:
      return b < a ? b : a;
    case ReduceOp::kMax:
      return a < b ? b : a;
  }
  return a;
}

Bytes reference(DType type, ReduceOp op, std::span<const Bytes> inputs) {
  const auto as = [&]<class T>(T) {
    return reference_as<T>(inputs, [&](T a, T b) { return apply<T>(op, a, b); });
  };
  switch (type) {
    case DType::kF32:
      return as(float{});
    case DType::kF64:
      return as(double{});
    case DType::kI8:
      return as(std::int8_t{});
    case DType::kU8:
      return as(std::uint8_t{});
    case DType::kI16:
      return as(std::int16_t{});
    case DType::kI32:
      return as(std::int32_t{});
    case DType::kI64:
      return as(std::int64_t{});
    case DType::kBF16:
      return reference_as<std::uint16_t>(inputs, [&](std::uint16_t a, std::uint16_t b) {
        return f32_to_bf16(apply(op, bf16_to_f32(a), bf16_to_f32(b)));
      });
    default:
      return reference_as<std::uint16_t>(inputs, [&](std::uint16_t a, std::uint16_t b) {
        return f32_to_f16(apply(op, f16_to_f32(a), f16_to_f32(b)));
      });
  }
}

#define EXPECT_OK(expression)                        \
  do {                                               \
    const Status status_ = (expression);             \
    EXPECT_TRUE(status_) << status_.error().message; \
  } while (false)

class CollectiveTest : public ::testing::TestWithParam<Path> {};
INSTANTIATE_TEST_SUITE_P(Paths, CollectiveTest, ::testing::Values(Path::kShared, Path::kNetwork),
                         [](const auto& info) {
                           return info.param == Path::kShared ? "shared" : "network";
                         });

// 0, inside a cache line, one-shot, one block, many blocks; not divisible by anything.
const std::uint64_t kCounts[] = {0, 1, 7, 24, 25, 1000, 8191, 40'001, 150'007};

TEST_P(CollectiveTest, AllReduceOfEveryTypeAndOperationHasTheBitsOfTheTree) {
  for (const std::uint32_t n : {1U, 2U, 3U, 4U, 5U}) {
    on_ranks(GetParam(), n, [&](Communicator& c) {
      std::uint64_t seed = 0;
      for (const DType type : kTypes) {
        for (const ReduceOp op :
             {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
          ++seed;
          // Each count with some type and operation, all types and operations with some.
          const std::uint64_t count = kCounts[(seed + n) % std::size(kCounts)];
          std::vector<Bytes> inputs;
          for (std::uint32_t r = 0; r < n; ++r) inputs.push_back(values(type, count, r, seed));
          Bytes out(inputs[0].size());
          EXPECT_OK(c.all_reduce(inputs[c.rank()].data(), out.data(), count, type, op, soon()));
          const Bytes expected = reference(type, op, inputs);
          EXPECT_TRUE(out == expected) << to_string(type) << " " << to_string(op) << " " << count;
          Bytes in_place = inputs[c.rank()];
          EXPECT_OK(c.all_reduce(in_place.data(), in_place.data(), count, type, op, soon()));
          EXPECT_TRUE(in_place == expected) << "in place " << to_string(type) << " " << count;
        }
      }
    });
  }
}

TEST_P(CollectiveTest, TheOthersMoveWhatTheySay) {
  for (const std::uint32_t n : {1U, 2U, 3U, 4U}) {
    on_ranks(GetParam(), n, [&](Communicator& c) {
      const std::uint32_t me = c.rank();
      for (const std::uint64_t count : kCounts) {
        std::vector<Bytes> whole;
        for (std::uint32_t r = 0; r < n; ++r) whole.push_back(values(DType::kF32, count, r, count));
        const Bytes sum = reference(DType::kF32, ReduceOp::kSum, whole);
        for (std::uint32_t root = 0; root < n; ++root) {
          Bytes data = whole[me];
          EXPECT_OK(c.broadcast(data.data(), count, DType::kF32, root, soon()));
          EXPECT_TRUE(data == whole[root]) << "broadcast " << count;
          Bytes out = whole[me];
          EXPECT_OK(c.reduce(whole[me].data(), out.data(), count, DType::kF32, ReduceOp::kSum, root,
                             soon()));
          EXPECT_TRUE(out == (me == root ? sum : whole[me])) << "reduce " << count;
        }
        // Unequal parts, one of them empty where there are enough.
        std::vector<std::uint64_t> counts(n);
        for (std::uint32_t r = 0; r < n; ++r) counts[r] = r == 1 && n > 2 ? 0 : count / (r + 1);
        std::vector<std::uint64_t> offsets(n + 1, 0);
        for (std::uint32_t r = 0; r < n; ++r) offsets[r + 1] = offsets[r] + counts[r];
        std::vector<Bytes> long_ones, parts;
        for (std::uint32_t r = 0; r < n; ++r) {
          long_ones.push_back(values(DType::kF32, offsets[n], r, count + 1));
          parts.push_back(values(DType::kF32, counts[r], r, count + 2));
        }
        const Bytes total = reference(DType::kF32, ReduceOp::kSum, long_ones);
        Bytes mine(counts[me] * 4);
        EXPECT_OK(c.reduce_scatter(long_ones[me].data(), mine.data(), counts, DType::kF32,
                                   ReduceOp::kSum, soon()));
        EXPECT_TRUE(std::equal(mine.begin(), mine.end(), total.begin() + offsets[me] * 4))
            << "reduce-scatter " << count;
        Bytes gathered(offsets[n] * 4), expected;
        for (const Bytes& part : parts) expected.insert(expected.end(), part.begin(), part.end());
        EXPECT_OK(c.all_gather(parts[me].data(), gathered.data(), counts, DType::kF32, soon()));
        EXPECT_TRUE(gathered == expected) << "all-gather " << count;
        Bytes in_place(offsets[n] * 4);
        std::byte* own = in_place.data() + offsets[me] * 4;
        if (!parts[me].empty()) std::memcpy(own, parts[me].data(), parts[me].size());
        EXPECT_OK(c.all_gather(own, in_place.data(), counts, DType::kF32, soon()));
        EXPECT_TRUE(in_place == expected) << "all-gather in place " << count;
        // Rank r sends r + j parts of count / 4 elements to j.
        std::vector<std::uint64_t> sends(n), receives(n);
        const auto amount = [&](std::uint32_t r, std::uint32_t j) { return (r + j) * (count / 4); };
        Bytes in, want;
        for (std::uint32_t j = 0; j < n; ++j) {
          sends[j] = amount(me, j);
          receives[j] = amount(j, me);
          const Bytes to = values(DType::kF32, sends[j], me * 10 + j, 5);
          const Bytes from = values(DType::kF32, receives[j], j * 10 + me, 5);
          in.insert(in.end(), to.begin(), to.end());
          want.insert(want.end(), from.begin(), from.end());
        }
        Bytes got(want.size());
        EXPECT_OK(c.all_to_all(in.data(), got.data(), sends, receives, DType::kF32, soon()));
        EXPECT_TRUE(got == want) << "all-to-all " << count;
        EXPECT_OK(c.barrier(soon()));
      }
    });
  }
}

// Eight logical ranks on 1, 2, 3, 4, 5 and 8 ranks: the same bits, of random sizes and types.
TEST_P(CollectiveTest, CanonicalSumsHaveTheSameBitsForEveryGrouping) {
  const int cases = test::slow_tests() ? 1000 : 60;
  std::mt19937 random(17);
  struct Case {
    DType type;
    ReduceOp op;
    std::uint64_t count;
    Bytes expected;
  };
  std::vector<Case> all;
  for (int i = 0; i < cases; ++i) {
    Case c{kTypes[random() % std::size(kTypes)],
           static_cast<ReduceOp>(random() % 2),
           i % 10 == 0 ? random() % 60'000 : random() % 3000,
           {}};
    std::vector<Bytes> inputs;
    for (std::uint32_t k = 0; k < 8; ++k) {
      inputs.push_back(values(c.type, c.count, k, static_cast<std::uint64_t>(i)));
    }
    c.expected = reference(c.type, c.op, inputs);
    all.push_back(std::move(c));
  }
  for (const std::vector<std::uint32_t>& split : {std::vector<std::uint32_t>{8},
                                                  {4, 4},
                                                  {3, 5},
                                                  {3, 3, 2},
                                                  {1, 6, 1},
                                                  {2, 2, 2, 2},
                                                  {1, 2, 3, 1, 1},
                                                  {1, 1, 1, 1, 1, 1, 1, 1}}) {
    on_ranks(GetParam(), static_cast<std::uint32_t>(split.size()), [&](Communicator& c) {
      const std::uint32_t first = std::accumulate(split.begin(), split.begin() + c.rank(), 0U);
      for (std::size_t i = 0; i < all.size(); ++i) {
        std::vector<Bytes> inputs;
        std::vector<const void*> pointers;
        for (std::uint32_t k = 0; k < split[c.rank()]; ++k) {
          inputs.push_back(values(all[i].type, all[i].count, first + k, i));
        }
        for (const Bytes& input : inputs) pointers.push_back(input.data());
        Bytes out(all[i].expected.size());
        EXPECT_OK(c.all_reduce_logical(pointers, first, 8, out.data(), all[i].count, all[i].type,
                                       all[i].op, soon()));
        EXPECT_TRUE(out == all[i].expected)
            << to_string(all[i].type) << " " << all[i].count << " on " << split.size();
      }
    });
  }
}

TEST_P(CollectiveTest, DifferingCallsGiveTheSameErrorEverywhereAndHarmNothing) {
  constexpr std::uint32_t kRanks = 3;
  struct Odd {
    const char* what;
    std::function<Status(Communicator&, float* in, float* out, bool odd)> call;
  };
  const std::vector<std::uint64_t> even(kRanks, 100), uneven{50, 100, 150};
  const Odd cases[] = {
      {"101 F32",
       [](Communicator& c, float* in, float* out, bool odd) {
         return c.all_reduce(in, out, odd ? 101 : 100, DType::kF32, ReduceOp::kSum, soon());
       }},
      {"of 100 I32",
       [](Communicator& c, float* in, float* out, bool odd) {
         return c.all_reduce(in, out, 100, odd ? DType::kI32 : DType::kF32, ReduceOp::kSum, soon());
       }},
      {"max",
       [](Communicator& c, float* in, float* out, bool odd) {
         return c.all_reduce(in, out, 20'000, DType::kF32, odd ? ReduceOp::kMax : ReduceOp::kSum,
                             soon());
       }},
      {"root 2", [](Communicator& c, float*, float* out,
                    bool odd) { return c.broadcast(out, 10, DType::kF32, odd ? 2 : 0, soon()); }},
      {"barrier",
       [](Communicator& c, float* in, float* out, bool odd) {
         return odd ? c.barrier(soon())
                    : c.all_reduce(in, out, 10, DType::kF32, ReduceOp::kSum, soon());
       }},
      {"in parts",
       [&](Communicator& c, float* in, float* out, bool odd) {
         return c.reduce_scatter(in, out, odd ? uneven : even, DType::kF32, ReduceOp::kSum, soon());
       }},
      {"sends 2 elements",
       [&](Communicator& c, float* in, float* out, bool odd) {
         const std::vector<std::uint64_t> one(kRanks, 1), two(kRanks, 2);
         return c.all_to_all(in, out, odd ? two : one, one, DType::kF32, soon());
       }},
  };
  for (std::uint32_t odd = 0; odd < kRanks; ++odd) {
    std::vector<std::vector<std::string>> messages(std::size(cases),
                                                   std::vector<std::string>(kRanks));
    on_ranks(GetParam(), kRanks, [&](Communicator& c) {
      for (std::size_t i = 0; i < std::size(cases); ++i) {
        std::vector<float> in(30'000, 1), out(30'000, -1);
        const Status status = cases[i].call(c, in.data(), out.data(), c.rank() == odd);
        ASSERT_FALSE(status) << cases[i].what;
        EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
        messages[i][c.rank()] = status.error().message;
        EXPECT_THAT(out, ::testing::Each(-1.0F)) << cases[i].what;
        // The group goes on.
        float one = 1;
        EXPECT_OK(c.all_reduce(&one, &one, 1, DType::kF32, ReduceOp::kSum, soon()));
        EXPECT_EQ(one, kRanks);
      }
    });
    for (std::size_t i = 0; i < std::size(cases); ++i) {
      EXPECT_EQ(messages[i][0], messages[i][1]);
      EXPECT_EQ(messages[i][0], messages[i][2]);
      EXPECT_THAT(messages[i][0], ::testing::HasSubstr(fmt::format("rank {} ", odd)));
      EXPECT_THAT(messages[i][0], ::testing::HasSubstr(cases[i].what));
    }
  }
}

TEST_P(CollectiveTest, AMissingRankIsNamedAtTheDeadlineAndEndsTheEpochForAll) {
  std::vector<std::string> messages(3);
  on_ranks(GetParam(), 3, [&](Communicator& c) {
    float value = 1;
    if (c.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(900));
    }
    const Deadline deadline =
        c.rank() == 2 ? soon() : Deadline::after(std::chrono::milliseconds(200));
    const auto start = Deadline::Clock::now();
    Status status = c.all_reduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, deadline);
    // Over the network the late rank finds all it needs; the verdict names this
    // operation, so it knows that others may lack it.
    if (status && c.rank() == 2) status = c.barrier(soon());
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kDeadlineExceeded);
    EXPECT_LT(Deadline::Clock::now() - start, std::chrono::milliseconds(800));
    messages[c.rank()] = status.error().message;
    EXPECT_FALSE(c.barrier(soon()));
  });
  EXPECT_THAT(messages[0], ::testing::HasSubstr("rank 2 did not come"));
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_EQ(messages[0], messages[2]);
}

TEST_P(CollectiveTest, StartedWorkRunsInOrderBesideTheCaller) {
  on_ranks(GetParam(), 2, [&](Communicator& c) {
    std::vector<float> a(50'000, 1), b(50'000, 2);
    std::vector<std::future<Status>> started;
    for (int i = 0; i < 4; ++i) {
      for (auto* v : {&a, &b}) {
        started.push_back(c.start([v](Communicator& own) {
          return own.all_reduce(v->data(), v->data(), v->size(), DType::kF32, ReduceOp::kSum,
                                soon());
        }));
      }
    }
    EXPECT_OK(c.barrier(soon()));  // after what was started
    for (auto& future : started) EXPECT_OK(future.get());
    EXPECT_THAT(a, ::testing::Each(16.0F));
    EXPECT_THAT(b, ::testing::Each(32.0F));
  });
}

TEST(Collective, BadArgumentsAreRefusedByName) {
  on_ranks(Path::kShared, 1, [&](Communicator& c) {
    float value = 1;
    const std::vector<std::uint64_t> two(2, 1), huge(1, std::uint64_t{1} << 60);
    EXPECT_EQ(c.all_gather(&value, &value, two, DType::kF32, soon()).error().code,
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(c.all_gather(&value, &value, huge, DType::kF32, soon()).error().code,
              ErrorCode::kOutOfRange);
    EXPECT_EQ(c.broadcast(&value, 1, DType::kF32, 1, soon()).error().code, ErrorCode::kOutOfRange);
    EXPECT_EQ(c.broadcast(&value, 1, DType::kQ8_0, 0, soon()).error().code,
              ErrorCode::kUnsupported);
    EXPECT_EQ(c.all_reduce(&value, &value, 1, DType::kBool, ReduceOp::kSum, soon()).error().code,
              ErrorCode::kUnsupported);
    EXPECT_EQ(
        c.all_reduce_logical({}, 0, 1, &value, 1, DType::kF32, ReduceOp::kSum, soon()).error().code,
        ErrorCode::kInvalidArgument);
  });
}

TEST(Collective, EveryOperationLeavesRecords) {
  const std::filesystem::path path = fmt::format("/dev/shm/weft-trace-test-{}", ::getpid());
  auto ring = *Ring::create(path, {.writer = "test", .lanes = 2, .bytes = 1 << 16});
  on_ranks(Path::kShared, 2,
           [&](Communicator& c) {
             float v[100] = {};
             EXPECT_OK(c.all_reduce(v, v, 100, DType::kF32, ReduceOp::kSum, soon()));
             EXPECT_OK(c.barrier(soon()));
           },
           {*ring.claim_lane("rank 0"), *ring.claim_lane("rank 1")});
  const auto reader = *RingReader::open(path);
  const auto records = reader.read(1)->records;
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].kind, static_cast<std::uint32_t>(RecordKind::kOpBegin));
  const auto done = records[1].as<OpRecord>();
  EXPECT_EQ(done.kind, CallKind::kAllReduce);
  EXPECT_EQ(done.bytes, 400u);
  EXPECT_EQ(done.rank, 1u);
  EXPECT_EQ(done.algorithm, Algorithm::kOneShot);
  EXPECT_EQ(done.ok, 1u);
  EXPECT_THAT(describe(records[1]), ::testing::HasSubstr("all-reduce sum of 100 F32"));
  std::filesystem::remove(path);
}

TEST(Tree, CoversRangesWithAlignedNodes) {
  using ::testing::ElementsAre;
  EXPECT_THAT(tree_cover(0, 8, 8), ElementsAre(TreeNode{0, 8}));
  EXPECT_THAT(tree_cover(3, 5, 8), ElementsAre(TreeNode{3, 1}, TreeNode{4, 4}));
  EXPECT_THAT(tree_cover(1, 6, 8),
              ElementsAre(TreeNode{1, 1}, TreeNode{2, 2}, TreeNode{4, 2}, TreeNode{6, 1}));
  EXPECT_THAT(tree_cover(4, 3, 7), ElementsAre(TreeNode{4, 3}));
  EXPECT_THAT(tree_cover(0, 7, 7), ElementsAre(TreeNode{0, 7}));
}

}  // namespace
}  // namespace weft::comm
