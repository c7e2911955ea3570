// What the trainer promises: right gradients, the sampler's log-probabilities to
// the bit, and bits that depend neither on micro-batches nor on threads.
#include "weft/train/policy_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/train/tiny_models.h"
#include "weft/base/rng.h"
#include "weft/nn/kv_pool.h"

namespace weft::train {
namespace {

std::vector<TrainSequence> random_sequences(const model::ModelConfig& config, std::uint64_t seed,
                                            const std::vector<std::int64_t>& lengths) {
  Rng rng(seed, RngUse::kTest);
  std::vector<TrainSequence> all;
  for (const std::int64_t length : lengths) {
    TrainSequence s;
    for (std::int64_t i = 0; i < length; ++i) {
      s.tokens.push_back(
          static_cast<std::int32_t>(rng.next_below(static_cast<std::uint32_t>(config.vocab_size))));
    }
    s.first_target = length > 3 ? 2 : 1;
    all.push_back(std::move(s));
  }
  return all;
}

// Groups that share their first `shared` tokens.
std::vector<TrainSequence> grouped_sequences(const model::ModelConfig& config,
                                             std::int64_t shared) {
  std::vector<TrainSequence> all = random_sequences(config, 5, {12, 9, 14, 11, 10});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t first = i < 3 ? 0 : 3;
    std::copy_n(all[first].tokens.begin(), shared, all[i].tokens.begin());
    all[i].group = i < 3 ? 7 : 8;
    all[i].shared = shared;
    all[i].first_target = shared + 1;
  }
  return all;
}

std::unique_ptr<PolicyModel> make(const model::ModelConfig& config, ThreadPool& pool,
                                  PolicyOptions options) {
  auto made = PolicyModel::create(config, 3, options, pool);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  auto model = *std::move(made);
  // Larger random values than the usual ones: gradients then stand clear of rounding.
  Rng rng(11, RngUse::kTest);
  model::WeightSet state;
  std::vector<std::vector<float>> storage;
  for (const model::NamedTensor& tensor : model->state(true)) {
    std::vector<float> values(static_cast<std::size_t>(tensor.view.elements()));
    std::memcpy(values.data(), tensor.view.data, values.size() * sizeof(float));
    if (tensor.name.starts_with("master/")) {
      for (float& v : values) v += 0.3F * rng.next_normal();
    }
    storage.push_back(std::move(values));
    state.add({tensor.name,
               {reinterpret_cast<const std::byte*>(storage.back().data()), DType::kF32,
                tensor.view.shape}},
              nullptr);
  }
  EXPECT_TRUE(model->restore(state, 0).has_value());
  return model;
}

PolicyOptions f32(bool value_head = false) {
  PolicyOptions options;
  options.compute = nn::Compute::kF32;
  options.value_head = value_head;
  return options;
}

// A loss with a different weight on every output: sum a_t logp_t + b_t H_t + c_t v_t.
double weight_of(std::int64_t t, int which) {
  return std::sin(1.7 * static_cast<double>(t) + which) + 0.3;
}
LossGradient weighted(const std::vector<TrainSequence>& all) {
  std::vector<std::int64_t> first{0};
  for (const auto& s : all) {
    first.push_back(first.back() + static_cast<std::int64_t>(s.tokens.size()) - s.first_target);
  }
  return [first](const TokenOutputs& out, TokenGradients& g) {
    const std::int64_t base = first[out.first_sequence];
    for (std::size_t t = 0; t < g.logprob.size(); ++t) {
      const std::int64_t at = base + static_cast<std::int64_t>(t);
      g.logprob[t] = static_cast<float>(weight_of(at, 0));
      if (!g.entropy.empty()) g.entropy[t] = static_cast<float>(weight_of(at, 1));
      if (!g.value.empty()) g.value[t] = static_cast<float>(weight_of(at, 2));
    }
  };
}
double weighted_loss(const TokenOutputs& out) {
  double loss = 0.0;
  for (std::size_t t = 0; t < out.logprob.size(); ++t) {
    const auto at = static_cast<std::int64_t>(t);
    loss += weight_of(at, 0) * out.logprob[t];
    if (!out.entropy.empty()) loss += weight_of(at, 1) * out.entropy[t];
    if (!out.value.empty()) loss += weight_of(at, 2) * out.value[t];
  }
  return loss;
}

std::vector<float> flat(const std::vector<model::NamedTensor>& tensors) {
  std::vector<float> all;
  for (const auto& tensor : tensors) {
    const auto* values = reinterpret_cast<const float*>(tensor.view.data);
    all.insert(all.end(), values, values + tensor.view.elements());
  }
  return all;
}

class EveryFamily : public testing::TestWithParam<test::TinyModel> {
 protected:
  ThreadPool pool_{2};
};

TEST_P(EveryFamily, GradientsMatchFiniteDifferences) {
  const auto& config = GetParam().config;
  auto model = make(config, pool_, f32(/*value_head=*/true));
  const auto sequences = random_sequences(config, 1, {9, 4, 7});
  const OutputOptions options{.temperature = 1.3F, .entropy = true, .values = true};
  ASSERT_TRUE(model->accumulate(sequences, options, weighted(sequences)).has_value());
  const auto gradients = model->gradients();

  const auto loss_at = [&](const std::string& name, std::int64_t index, float change) {
    model::WeightSet state;
    std::vector<float> changed;
    for (const auto& tensor : model->state(true)) {
      if (tensor.name != "master/" + name) {
        state.add(tensor, nullptr);
        continue;
      }
      const auto* values = reinterpret_cast<const float*>(tensor.view.data);
      changed.assign(values, values + tensor.view.elements());
      changed[static_cast<std::size_t>(index)] += change;
      state.add(
          {tensor.name,
           {reinterpret_cast<const std::byte*>(changed.data()), DType::kF32, tensor.view.shape}},
          nullptr);
    }
    auto other = *PolicyModel::create(config, 3, f32(true), pool_);
    EXPECT_TRUE(other->restore(state, 0).has_value());
    return weighted_loss(*other->evaluate(sequences, options));
  };
  for (const auto& gradient : gradients) {
    const auto* values = reinterpret_cast<const float*>(gradient.view.data);
    Rng pick(9, RngUse::kTest);
    for (int probe = 0; probe < 3; ++probe) {
      const auto index = static_cast<std::int64_t>(
          pick.next_below(static_cast<std::uint32_t>(gradient.view.elements())));
      const float step = 4e-3F;
      const double slope =
          (loss_at(gradient.name, index, step) - loss_at(gradient.name, index, -step)) /
          (2.0 * step);
      EXPECT_NEAR(values[index], slope, 0.02 + 0.02 * std::abs(slope))
          << gradient.name << "[" << index << "]";
    }
  }
}

TEST_P(EveryFamily, LogProbabilitiesEqualTheSamplersToTheBit) {
  const auto& config = GetParam().config;
  for (const nn::Compute compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    PolicyOptions options = f32();
    options.compute = compute;
    auto model = make(config, pool_, options);
    const auto sequences = random_sequences(config, 2, {41, 3, 33, 64});
    const auto trained = model->evaluate(sequences, {.temperature = 0.7F});
    ASSERT_TRUE(trained.has_value()) << trained.error().message;

    // As the engine decodes: a prompt in one chunk, then one token at a time.
    const auto weights = model->current_weights();
    nn::Transformer transformer(weights, pool_);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const TrainSequence& s = sequences[i];
      nn::KvPool kv(config, 8);
      std::vector<std::int32_t> pages;
      for (int p = 0; p < 4; ++p) pages.push_back(*kv.allocate());
      const std::span<const std::int32_t> table = pages;
      std::vector<float> logits;
      std::vector<nn::TokenRow> rows;
      for (std::int64_t p = 0; p < s.first_target; ++p) {
        rows.push_back({s.tokens[static_cast<std::size_t>(p)], 0, static_cast<std::int32_t>(p),
                        p == s.first_target - 1});
      }
      std::int64_t target = s.first_target;
      for (; target < static_cast<std::int64_t>(s.tokens.size()); ++target) {
        transformer.forward(rows, std::span(&table, 1), kv, logits);
        const float expected = nn::log_prob(logits.data(), config.vocab_size, 0.7F,
                                            s.tokens[static_cast<std::size_t>(target)]);
        const float ours =
            trained
                ->logprob[static_cast<std::size_t>(trained->offsets[i] + target - s.first_target)];
        ASSERT_EQ(ours, expected) << "sequence " << i << " target " << target;
        rows = {{s.tokens[static_cast<std::size_t>(target)], 0, static_cast<std::int32_t>(target),
                 true}};
      }
    }
  }
}

TEST_P(EveryFamily, MicroBatchesChangeNoBitOfTheGradient) {
  const auto& config = GetParam().config;
  for (const nn::Compute compute : {nn::Compute::kF32, nn::Compute::kBF16}) {
    std::vector<std::vector<float>> results;
    for (const std::int64_t rows : {1, 20, 50, 100000}) {
      PolicyOptions options = f32();
      options.compute = compute;
      options.micro_batch_tokens = rows;
      auto model = make(config, pool_, options);
      auto sequences = random_sequences(config, 4, {40, 3, 17, 1, 64, 2});
      const auto more = grouped_sequences(config, 6);
      sequences.insert(sequences.end(), more.begin(), more.end());
      ASSERT_TRUE(model->accumulate(sequences, {.entropy = true}, weighted(sequences)).has_value());
      results.push_back(flat(model->gradients()));
    }
    for (std::size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]) << i;
  }
}

TEST_P(EveryFamily, SharedPrefixesChangeNoOutputBitAndGiveTheSameGradient) {
  const auto& config = GetParam().config;
  auto shared = make(config, pool_, f32()), plain = make(config, pool_, f32());
  for (const std::int64_t prefix : {1, 6}) {
    const auto sequences = grouped_sequences(config, prefix);
    auto separate = sequences;
    for (auto& s : separate) s.group = -1;
    const OutputOptions options{.entropy = true};
    const auto a = shared->accumulate(sequences, options, weighted(sequences));
    const auto b = plain->accumulate(separate, options, weighted(separate));
    ASSERT_TRUE(a.has_value() && b.has_value());
    EXPECT_EQ(a->logprob, b->logprob);
    EXPECT_EQ(a->entropy, b->entropy);
  }
  const auto x = flat(shared->gradients()), y = flat(plain->gradients());
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(x[i], y[i], 2e-4 + 1e-4 * std::abs(y[i])) << i;
  }
}

TEST_P(EveryFamily, LibraryOperatorsAgreeWithOurKernels) {
  const auto& config = GetParam().config;
  PolicyOptions library = f32(/*value_head=*/true);
  library.library_operators = true;
  auto ours = make(config, pool_, f32(/*value_head=*/true)), theirs = make(config, pool_, library);
  auto sequences = random_sequences(config, 4, {40, 3, 17});
  const auto more = grouped_sequences(config, 6);
  sequences.insert(sequences.end(), more.begin(), more.end());
  const OutputOptions options{.temperature = 1.3F, .entropy = true, .values = true};
  const auto near = [](const std::vector<float>& x, const std::vector<float>& y, double bound) {
    ASSERT_EQ(x.size(), y.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(x[i], y[i], bound * (1.0 + std::abs(y[i]))) << i;
  };
  for (int step = 0; step < 3; ++step) {  // parameters reach the library's copy after each step
    const auto a = ours->accumulate(sequences, options, weighted(sequences));
    const auto b = theirs->accumulate(sequences, options, weighted(sequences));
    ASSERT_TRUE(a && b) << (b ? "" : b.error().message);
    near(a->logprob, b->logprob, 1e-3);
    near(a->entropy, b->entropy, 1e-3);
    near(a->value, b->value, 1e-3);
    near(flat(ours->gradients()), flat(theirs->gradients()), 5e-3);
    // Equal parameters for the next round, whatever AdamW makes of rounding.
    EXPECT_FALSE(ours->step(1e-3, 1.0).skipped);
    EXPECT_FALSE(theirs->step(1e-3, 1.0).skipped);
    model::WeightSet state;
    for (const auto& tensor : ours->state(true)) state.add(tensor, nullptr);
    ASSERT_TRUE(theirs->restore(state, step + 1));
  }
  EXPECT_NE(theirs->evaluate(sequences, options)->logprob, std::vector<float>());
}

TEST_P(EveryFamily, ThreadsChangeNoBit) {
  const auto& config = GetParam().config;
  ThreadPool one(1), three(3);
  std::vector<std::vector<float>> results;
  for (ThreadPool* pool : {&one, &three}) {
    auto model = make(config, *pool, f32());
    const auto sequences = random_sequences(config, 4, {40, 3, 17});
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(model->accumulate(sequences, {}, weighted(sequences)).has_value());
      EXPECT_FALSE(model->step(1e-3, 1.0).skipped);
    }
    results.push_back(flat(model->state(true)));
  }
  EXPECT_EQ(results[0], results[1]);
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::ValuesIn(test::tiny_models()),
                         [](const auto& info) { return info.param.name; });

class PolicyModelTest : public testing::Test {
 protected:
  ThreadPool pool_{2};
  model::ModelConfig config_ = test::tiny_models()[1].config;
};

TEST_F(PolicyModelTest, ADeviceThatIsNotThereIsAnErrorThatSaysWhatIsMissing) {
  PolicyOptions options = f32();
  for (const char* name : {"tpu", "cuda:", "cuda:x", "cuda:-1", "CPU", ""}) {
    options.device = name;
    const auto made = PolicyModel::create(config_, 1, options, pool_);
    ASSERT_FALSE(made) << name;
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(made.error().message.find("cpu, cuda"), std::string::npos) << made.error().message;
  }
  options.device = "cuda:97";
  const auto made = PolicyModel::create(config_, 1, options, pool_);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(made.error().message.find("CUDA"), std::string::npos) << made.error().message;
  options.device = "auto";
  EXPECT_TRUE(PolicyModel::create(config_, 1, options, pool_));
}

TEST_F(PolicyModelTest, TheFirstCudaDeviceTrainsAsTheCpuDoes) {
  PolicyOptions cuda = f32();
  cuda.device = "cuda";
  if (const auto probe = PolicyModel::create(config_, 1, cuda, pool_); !probe) {
    GTEST_SKIP() << probe.error().message;
  }
  auto ours = make(config_, pool_, f32()), theirs = make(config_, pool_, cuda);
  const auto sequences = random_sequences(config_, 4, {40, 3, 17});
  const auto a = ours->accumulate(sequences, {}, weighted(sequences));
  const auto b = theirs->accumulate(sequences, {}, weighted(sequences));
  ASSERT_TRUE(a && b);
  for (std::size_t i = 0; i < a->logprob.size(); ++i)
    ASSERT_NEAR(a->logprob[i], b->logprob[i], 1e-2) << i;
}

TEST_F(PolicyModelTest, Bf16GradientsAreCloseToF32) {
  PolicyOptions bf16;
  auto exact = make(config_, pool_, f32()), rounded = make(config_, pool_, bf16);
  const auto sequences = random_sequences(config_, 4, {40, 30, 17});
  ASSERT_TRUE(exact->accumulate(sequences, {}, weighted(sequences)).has_value());
  ASSERT_TRUE(rounded->accumulate(sequences, {}, weighted(sequences)).has_value());
  const auto x = flat(exact->gradients()), y = flat(rounded->gradients());
  double dot = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    dot += double{x[i]} * y[i];
    xx += double{x[i]} * x[i];
    yy += double{y[i]} * y[i];
  }
  EXPECT_GT(dot / std::sqrt(xx * yy), 0.998);
  EXPECT_NEAR(std::sqrt(yy / xx), 1.0, 0.01);
}

TEST_F(PolicyModelTest, LearnsToRepeatASequence) {
  auto model = *PolicyModel::create(config_, 1, f32(), pool_);
  const auto sequences = random_sequences(config_, 8, {20, 20});
  const LossGradient likelihood = [](const TokenOutputs&, TokenGradients& g) {
    for (float& x : g.logprob) x = -1.0F / 36.0F;
  };
  double first = 0, last = 0;
  for (int step = 0; step < 150; ++step) {
    const auto out = model->accumulate(sequences, {}, likelihood);
    ASSERT_TRUE(out.has_value());
    double mean = 0;
    for (const float x : out->logprob) mean -= x / 36.0;
    (step == 0 ? first : last) = mean;
    EXPECT_FALSE(model->step(1e-2, 1.0).skipped);
  }
  EXPECT_GT(first, 2.5);
  EXPECT_LT(last, 0.1);
  EXPECT_EQ(model->step_count(), 150);
}

TEST_F(PolicyModelTest, AStepWithGradientsThatAreNotFiniteIsSkipped) {
  auto model = make(config_, pool_, f32());
  const auto before = flat(model->state(true));
  const auto sequences = random_sequences(config_, 8, {20});
  const auto poison = [](const TokenOutputs&, TokenGradients& g) { g.logprob[3] = NAN; };
  ASSERT_TRUE(model->accumulate(sequences, {}, poison).has_value());
  EXPECT_TRUE(model->step(1e-3, 1.0).skipped);
  EXPECT_EQ(flat(model->state(true)), before);
  EXPECT_EQ(model->step_count(), 0);
  // Nothing of it is left in the next step.
  ASSERT_TRUE(model->accumulate(sequences, {}, weighted(sequences)).has_value());
  EXPECT_FALSE(model->step(1e-3, 1.0).skipped);
}

TEST_F(PolicyModelTest, WeightsHandedOutDoNotChange) {
  auto model = make(config_, pool_, f32());
  const auto sequences = random_sequences(config_, 8, {20});
  const auto held = model->current_weights();
  const auto before = score(held, sequences, {}, 1000, pool_);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(model->accumulate(sequences, {}, weighted(sequences)).has_value());
    model->step(1e-2, 1.0);
  }
  EXPECT_NE(model->current_weights(), held);
  EXPECT_EQ(score(held, sequences, {}, 1000, pool_)->logprob, before->logprob);
  const auto now = model->evaluate(sequences, {});
  EXPECT_EQ(score(model->current_weights(), sequences, {}, 1000, pool_)->logprob, now->logprob);
  EXPECT_NE(now->logprob, before->logprob);
}

TEST_F(PolicyModelTest, RefusesBadSequencesByName) {
  auto model = make(config_, pool_, f32());
  const auto message = [&](TrainSequence bad) {
    const auto good = random_sequences(config_, 8, {5});
    const std::vector<TrainSequence> all{good[0], std::move(bad)};
    const auto result = model->evaluate(all, {});
    return result ? std::string("accepted") : result.error().message;
  };
  EXPECT_THAT(message({}), testing::HasSubstr("sequence 1 is empty"));
  EXPECT_THAT(message({.tokens = {1, 99}}), testing::HasSubstr("token id 99"));
  EXPECT_THAT(message({.tokens = {1, 2}, .first_target = 3}), testing::HasSubstr("first_target"));
  EXPECT_THAT(message({.tokens = std::vector<std::int32_t>(98, 1)}),
              testing::HasSubstr("98 tokens"));
  EXPECT_THAT(message({.tokens = {1, 2, 3}, .first_target = 2, .group = 1, .shared = 2}),
              testing::HasSubstr("shared"));
  const auto values = model->evaluate(random_sequences(config_, 8, {5}), {.values = true});
  EXPECT_THAT(values.error().message, testing::HasSubstr("value head"));
}

TEST_F(PolicyModelTest, StateRestoresToTheBit) {
  auto a = make(config_, pool_, f32()), b = *PolicyModel::create(config_, 77, f32(), pool_);
  const auto sequences = random_sequences(config_, 8, {20, 11});
  const auto train = [&](PolicyModel& model) {
    ASSERT_TRUE(model.accumulate(sequences, {}, weighted(sequences)).has_value());
    model.step(1e-2, 1.0);
  };
  train(*a);
  model::WeightSet state;
  for (const auto& tensor : a->state(true)) state.add(tensor, nullptr);
  ASSERT_TRUE(b->restore(state, a->step_count()).has_value());
  train(*a);
  train(*b);
  EXPECT_EQ(flat(a->state(true)), flat(b->state(true)));
  EXPECT_EQ(a->evaluate(sequences, {})->logprob, b->evaluate(sequences, {})->logprob);
  EXPECT_THAT(b->restore({}, 0).error().message, testing::HasSubstr("no tensor master/"));
}

}  // namespace
}  // namespace weft::train
