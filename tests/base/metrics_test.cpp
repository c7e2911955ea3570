#include "weft/base/metrics.h"

#include <gtest/gtest.h>

#include <thread>

namespace weft {
namespace {

TEST(Metrics, ExpositionIsPrometheusText) {
  Metrics metrics;
  metrics
      .counter("weft_requests_total", "Requests.\nAll of them, \\ included.",
               {{"path", "/v1/\"chat\"\\\n"}, {"code", "200"}})
      .add(3);
  metrics.gauge("weft_kv_pages", "Pages in use.").set(-1.5);
  auto& seconds = metrics.histogram("weft_step_seconds", "Step time.", {0.1, 1});
  for (const double value : {0.05, 0.1, 0.5, 7.0}) seconds.observe(value);
  EXPECT_EQ(metrics.prometheus(),
            "# HELP weft_requests_total Requests.\\nAll of them, \\\\ included.\n"
            "# TYPE weft_requests_total counter\n"
            "weft_requests_total{path=\"/v1/\\\"chat\\\"\\\\\\n\",code=\"200\"} 3\n"
            "# HELP weft_kv_pages Pages in use.\n"
            "# TYPE weft_kv_pages gauge\n"
            "weft_kv_pages -1.5\n"
            "# HELP weft_step_seconds Step time.\n"
            "# TYPE weft_step_seconds histogram\n"
            "weft_step_seconds_bucket{le=\"0.1\"} 2\n"
            "weft_step_seconds_bucket{le=\"1\"} 3\n"
            "weft_step_seconds_bucket{le=\"+Inf\"} 4\n"
            "weft_step_seconds_sum 7.65\n"
            "weft_step_seconds_count 4\n");
}

TEST(Metrics, AskingAgainGivesTheSameMetric) {
  Metrics metrics;
  Counter& one = metrics.counter("a_total", "A.", {{"k", "1"}});
  Counter& two = metrics.counter("a_total", "A.", {{"k", "2"}});
  EXPECT_NE(&one, &two);
  EXPECT_EQ(&one, &metrics.counter("a_total", "A.", {{"k", "1"}}));
}

TEST(Metrics, UpdatesFromManyThreadsAddUp) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics, t] {
      Counter& counter = metrics.counter("c_total", "C.");
      auto& histogram = metrics.histogram("h", "H.", exponential_bounds(1, 2, 4));
      for (int i = 0; i < 5000; ++i) {
        counter.add();
        histogram.observe(t);
      }
    });
  }
  for (int i = 0; i < 20; ++i) (void)metrics.prometheus();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(metrics.counter("c_total", "C.").value(), 20'000);
  EXPECT_EQ(metrics.histogram("h", "H.", {}).count(), 20'000U);
}

TEST(MetricsDeathTest, ANameKeepsItsKind) {
  Metrics metrics;
  metrics.counter("x", "X.");
  EXPECT_DEATH(metrics.gauge("x", "X."), "declared twice");
  EXPECT_DEATH(metrics.counter("1x", "X."), "metric name");
}

}  // namespace
}  // namespace weft
