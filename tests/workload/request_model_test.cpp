// Fitting and drawing traces: determinism, targets, and the published figures of the
// public traces.
#include "weft/workload/request_model.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/support/data.h"
#include "weft/workload/request_compare.h"
#include "weft/workload/request_info.h"
#include "weft/workload/request_reader.h"
#include "weft/workload/servegen.h"

namespace weft::workload {
namespace {

using ::testing::HasSubstr;

const Distribution kOne{.family = Family::kConstant, .a = 1, .table = {}};

RequestModel renewal(Distribution gaps, double rate, double duration) {
  RequestModel model;
  model.window_s = duration;
  model.rates = {rate};
  model.gaps = gaps.scaled(1 / gaps.mean());
  model.input = model.output = kOne;
  return model;
}

RequestTrace load(const std::filesystem::path& file) {
  auto loaded = load_requests(file);
  EXPECT_TRUE(loaded.has_value()) << loaded.error().message;
  return loaded ? std::move(loaded->trace) : RequestTrace{};
}

// Of a renewal process the index of dispersion tends to CV^2 of its gaps (Cox 1962).
TEST(Synthesis, RenewalTracesHitRateAndDispersion) {
  for (const double shape : {0.25, 0.5, 1.0, 2.0}) {
    for (const Family family : {Family::kGamma, Family::kWeibull}) {
      const Distribution gaps{.family = family, .a = shape, .b = 1, .table = {}};
      const double cv2 = gaps.variance() / (gaps.mean() * gaps.mean());
      if (cv2 > 6) continue;  // the limit is then too far off for a test
      // Enough requests for a mean within 1 % at 3 deviations, and 1,000 windows of many gaps.
      const double duration = std::max(1'000.0, 1'000 * cv2);
      const auto trace = synthesise(renewal(gaps, 100, duration), {.seed = 5});
      ASSERT_TRUE(trace.has_value());
      const auto times = arrival_times_s(*trace);
      EXPECT_NEAR(static_cast<double>(times.size()) / duration, 100, 1) << shape;
      EXPECT_NEAR(dispersion_index(times, duration / 1'000) / cv2, 1, 0.1)
          << to_string(family) << " " << shape;
    }
  }
}

TEST(Synthesis, NegativeBinomialCountsHitTheirDispersion) {
  RequestModel model = renewal({.family = Family::kExponential, .a = 1, .table = {}}, 1, 40'000);
  model.gap_form = GapForm::kBatches;
  model.step_s = 1;
  const double idc = 20, mean = 10;
  model.batch = {.family = Family::kNegativeBinomial,
                 .a = mean / idc / (1 - 1 / idc),
                 .b = 1 / idc,
                 .table = {}};
  const auto trace = synthesise(model, {.seed = 2});
  ASSERT_TRUE(trace.has_value());
  const auto times = arrival_times_s(*trace);
  EXPECT_NEAR(static_cast<double>(times.size()) / 40'000, 10, 0.3);
  // In windows of many steps, so that those cut at both ends do not matter.
  EXPECT_NEAR(dispersion_index(times, 20) / idc, 1, 0.1);
}

TEST(Synthesis, EqualInputsGiveEqualTracesWithTheSameName) {
  const auto model = renewal({.family = Family::kGamma, .a = 0.5, .b = 1, .table = {}}, 5, 100);
  const auto a = synthesise(model, {.seed = 1}), b = synthesise(model, {.seed = 1}),
             c = synthesise(model, {.seed = 2});
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(a->parameters, b->parameters);
  EXPECT_NE(a->parameters, c->parameters);
  ASSERT_EQ(a->rows.size(), b->rows.size());
  for (std::size_t i = 0; i < a->rows.size(); ++i)
    EXPECT_EQ(a->rows[i].time_ns, b->rows[i].time_ns);
  EXPECT_NE(a->rows.front().time_ns, c->rows.front().time_ns);
}

TEST(Synthesis, TurnsOfASessionShareTheirBlocks) {
  RequestModel model = renewal({.family = Family::kExponential, .a = 1, .table = {}}, 1, 300);
  model.session_share = 1;
  model.turns = {.family = Family::kConstant, .a = 3, .table = {}};
  model.think_s = {.family = Family::kConstant, .a = 5, .table = {}};
  model.input = {.family = Family::kConstant, .a = 100, .table = {}};
  model.output = {.family = Family::kConstant, .a = 28, .table = {}};
  const auto trace = synthesise(model, {.seed = 3, .block_tokens = 16, .shared_prefix_tokens = 64});
  ASSERT_TRUE(trace.has_value());
  const RequestInfo info = describe_requests(*trace);
  EXPECT_DOUBLE_EQ(info.sessions.turns.mean, 3);
  EXPECT_NEAR(info.sessions.gap_s.mean, 5, 1e-6);
  std::vector<std::vector<std::uint64_t>> seen(trace->sessions.size());
  std::uint64_t first_block = trace->block_ids.front();
  for (const Request& row : trace->rows) {
    const auto blocks = trace->blocks(row);
    ASSERT_EQ(blocks.size(), (row.input_tokens + 15) / 16);
    EXPECT_EQ(blocks.front(), first_block);  // the shared prefix
    auto& before = seen[static_cast<std::size_t>(row.session)];
    // All whole blocks of the turn before are the first of this one.
    for (std::size_t i = 0; i + 1 < before.size(); ++i) EXPECT_EQ(blocks[i], before[i]);
    before.assign(blocks.begin(), blocks.end());
  }
  EXPECT_GT(info.prefix.reused_blocks, info.prefix.blocks / 2);
}

TEST(Fit, ModelsSurviveTheirFileAndDamageIsNamed) {
  const auto source = synthesise(
      renewal({.family = Family::kGamma, .a = 0.5, .b = 1, .table = {}}, 10, 300), {.seed = 1});
  ASSERT_TRUE(source.has_value());
  for (const char* gaps : {"auto", "gamma", "hyperexponential"}) {
    const auto report = fit_requests(*source, {.gaps = gaps});
    ASSERT_TRUE(report.has_value()) << report.error().message;
    const Json json = report->model.json();
    const auto again = RequestModel::from_json(json);
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(dump_json(again->json()), dump_json(json));
    const auto a = synthesise(report->model, {.seed = 9}), b = synthesise(*again, {.seed = 9});
    EXPECT_EQ(a->rows.size(), b->rows.size());
    EXPECT_EQ(a->rows.back().time_ns, b->rows.back().time_ns);
  }
  const auto report = fit_requests(*source, {});
  Json damaged = report->model.json();
  damaged["arrivals"]["rates"] = Json::array({-1});
  EXPECT_THAT(RequestModel::from_json(damaged).error().message, HasSubstr("rates"));
  EXPECT_FALSE(RequestModel::from_json(Json::object()).has_value());
  EXPECT_THAT(fit_requests(*source, {.gaps = "cauchy"}).error().message, HasSubstr("cauchy"));
  EXPECT_FALSE(fit_requests(RequestTrace{}, {}).has_value());
}

TEST(Fit, MooncakeIsSeenAsQuantisedAndGetsNoGamma) {
  WEFT_NEED_DATA(file, "serving-traces/mooncake/conversation_trace.jsonl");
  const auto trace = load(file);
  const auto report = fit_requests(trace, {});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->model.gap_form, GapForm::kBatches);
  EXPECT_DOUBLE_EQ(report->model.step_s, 3);
  EXPECT_TRUE(report->gap_fits.empty());
  EXPECT_FALSE(report->gamma_moments.has_value());
  EXPECT_FALSE(fit_requests(trace, {.gaps = "gamma"}).has_value());
  const auto drawn = synthesise(report->model, {.seed = 1});
  EXPECT_NEAR(static_cast<double>(drawn->rows.size()) / 12'031, 1, 0.05);
}

// The table of published and measured reference numbers.
TEST(PublicTraces, AzureConversationFigures) {
  WEFT_NEED_DATA(file, "serving-traces/azure-2023/AzureLLMInferenceTrace_conv.csv");
  const auto trace = load(file);
  const RequestInfo info = describe_requests(trace);
  EXPECT_EQ(info.requests, 19'366);
  EXPECT_NEAR(info.span_s, 3'501.7, 0.05);
  EXPECT_NEAR(info.rate, 5.530, 0.0005);
  EXPECT_NEAR(info.gaps_s.cv(), 1.094, 0.0005);
  EXPECT_NEAR(info.idc_1s, 1.386, 0.0005);
  EXPECT_NEAR(info.idc_10s, 4.003, 0.0005);
  EXPECT_NEAR(info.idc_60s, 20.55, 0.005);
  EXPECT_NEAR(info.input_tokens.mean, 1'154.7, 0.05);
  EXPECT_EQ(info.input_tokens.p50, 1'020);
  EXPECT_EQ(info.input_tokens.p99, 4'142);
  EXPECT_NEAR(info.output_tokens.mean, 211.1, 0.05);
  EXPECT_EQ(info.output_tokens.p50, 129);
  EXPECT_EQ(info.output_tokens.p99, 601);
  const auto report = fit_requests(trace, {});
  ASSERT_TRUE(report.has_value());
  const auto gamma = fit_gamma(gaps_of(arrival_times_s(trace)));
  EXPECT_NEAR(gamma->a, 0.871, 0.0005);
  EXPECT_NEAR(gamma->b, 0.2076, 0.00005);
  ASSERT_EQ(report->window_gamma_shapes.size(), 3U);
  EXPECT_NEAR(report->window_gamma_shapes[0], 0.904, 0.0005);
  EXPECT_NEAR(report->window_gamma_shapes[1], 0.877, 0.0005);
  EXPECT_NEAR(report->window_gamma_shapes[2], 0.885, 0.0005);
}

TEST(PublicTraces, MooncakePrefixFigures) {
  WEFT_NEED_DATA(file, "serving-traces/mooncake/conversation_trace.jsonl");
  const RequestInfo info = describe_requests(load(file));
  EXPECT_EQ(info.distinct_times, 1'180);
  EXPECT_EQ(info.prefix.blocks, 288'500);
  EXPECT_EQ(info.prefix.distinct, 182'790);
  EXPECT_NEAR(100.0 * static_cast<double>(info.prefix.reused_blocks) / 288'500, 36.6, 0.05);
  EXPECT_NEAR(100.0 * static_cast<double>(info.prefix.reused_tokens) /
                  static_cast<double>(info.prefix.tokens),
              37.4, 0.05);
}

struct Burstiness {
  double cv = 0, idc1 = 0, idc10 = 0, idc60 = 0, input_ks = 0, output_ks = 0;
};

Burstiness mean_of_seeds(const RequestTrace& real, const RequestModel& model, int seeds) {
  Burstiness mean;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto drawn = synthesise(model, {.seed = static_cast<std::uint64_t>(seed)});
    EXPECT_TRUE(drawn.has_value());
    const RequestComparison c = compare_requests(real, *drawn);
    mean.cv += c.b.gaps_s.cv() / seeds;
    mean.idc1 += c.b.idc_1s / seeds;
    mean.idc10 += c.b.idc_10s / seeds;
    mean.idc60 += c.b.idc_60s / seeds;
    mean.input_ks = std::max(mean.input_ks, c.input_ks);
    mean.output_ks = std::max(mean.output_ks, c.output_ks);
  }
  return mean;
}

void expect_windowed_model_matches(const RequestTrace& trace) {
  const RequestInfo real = describe_requests(trace);
  const auto report = fit_requests(trace, {});
  ASSERT_TRUE(report.has_value());
  const Burstiness drawn = mean_of_seeds(trace, report->model, 20);
  EXPECT_NEAR(drawn.cv / real.gaps_s.cv(), 1, 0.15);
  EXPECT_NEAR(drawn.idc1 / real.idc_1s, 1, 0.3);
  EXPECT_NEAR(drawn.idc10 / real.idc_10s, 1, 0.3);
  EXPECT_NEAR(drawn.idc60 / real.idc_60s, 1, 0.3);
  EXPECT_LE(drawn.input_ks, 0.05);
  EXPECT_LE(drawn.output_ks, 0.05);
}

TEST(PublicTraces, WindowedModelReproducesAzureConversation) {
  WEFT_NEED_DATA(file, "serving-traces/azure-2023/AzureLLMInferenceTrace_conv.csv");
  expect_windowed_model_matches(load(file));
}

TEST(PublicTraces, WindowedModelReproducesAzureCodeAndOneGammaDoesNot) {
  WEFT_NEED_DATA(file, "serving-traces/azure-2023/AzureLLMInferenceTrace_code.csv");
  const auto trace = load(file);
  const RequestInfo real = describe_requests(trace);
  EXPECT_EQ(real.requests, 8'819);
  EXPECT_NEAR(real.gaps_s.cv(), 13.15, 0.005);
  EXPECT_NEAR(real.idc_60s, 160.5, 0.05);
  expect_windowed_model_matches(trace);
  const auto recipe = fit_requests(trace, {.window_s = 0, .gaps = "gamma"});
  ASSERT_TRUE(recipe.has_value());
  const Burstiness drawn = mean_of_seeds(trace, recipe->model, 20);
  EXPECT_GT(real.gaps_s.cv() / drawn.cv, 5);
  EXPECT_GT(real.idc_60s / drawn.idc60, 20);
}

TEST(PublicTraces, ServeGenClientsSuperpose) {
  WEFT_NEED_DATA(folder, "serving-traces/servegen/deepseek-r1");
  const auto pool = load_clients(folder);
  ASSERT_TRUE(pool.has_value()) << pool.error().message;
  EXPECT_EQ(pool->clients.size(), 10U);
  EXPECT_EQ(pool->windows, 1'440);
  EXPECT_EQ(pool->clients_without_lengths, 8);
  const auto trace = synthesise_clients(*pool, {.seed = 1});
  ASSERT_TRUE(trace.has_value());
  const double rate = clients_json(*pool)["rate"].get<double>();
  EXPECT_NEAR(static_cast<double>(trace->rows.size()) / (rate * pool->span_s), 1, 0.03);
  const auto again = synthesise_clients(*pool, {.seed = 1});
  EXPECT_EQ(again->rows.size(), trace->rows.size());
}

}  // namespace
}  // namespace weft::workload
