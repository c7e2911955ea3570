#include "bench/bench.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "weft/nn/isa.h"

namespace weft::bench {
namespace {

// A peer's threads spin for a while after their work (OpenMP, ggml); they must
// not disturb our next run, nor ours theirs.
constexpr auto kSettle = std::chrono::milliseconds(200);

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

Json to_json(const CaseResult& result) {
  return Json{{"case", result.name},
              {"unit", result.unit},
              {"ours", result.ours},
              {"peer", number_or_null(result.peer)},
              {"peer_version", result.peer ? Json(result.peer_version) : Json(nullptr)},
              {"ratio", number_or_null(result.ratio)},
              {"ratio_low", number_or_null(result.ratio_low)},
              {"ratio_high", number_or_null(result.ratio_high)},
              {"limit", result.limit > 0 ? Json(result.limit) : Json(nullptr)},
              {"of_limit", result.limit > 0 ? Json(result.of_limit) : Json(nullptr)},
              {"isa", result.isa}};
}

Result<CaseResult> run_case(const Case& bench_case, int rounds) {
  std::vector<double> ours;
  std::vector<double> peers;
  std::vector<double> ratios;
  const auto run = [](const std::function<Result<double>()>& side) {
    std::this_thread::sleep_for(kSettle);
    return side();
  };
  for (int round = -1; round < rounds; ++round) {  // -1 warms both up
    double our_rate = 0;
    double peer_rate = 0;
    for (int turn = 0; turn < 2; ++turn) {
      const bool our_turn = (turn == 0) == (round % 2 == 0);
      if (our_turn) {
        WEFT_ASSIGN(our_rate, run(bench_case.ours));
      } else if (bench_case.peer) {
        WEFT_ASSIGN(peer_rate, run(bench_case.peer));
      }
    }
    if (round < 0) continue;
    ours.push_back(our_rate);
    if (!bench_case.peer) continue;
    peers.push_back(peer_rate);
    ratios.push_back(our_rate / peer_rate);
  }
  CaseResult result;
  result.name = bench_case.name;
  result.unit = bench_case.unit;
  result.ours = median(ours);
  if (!ratios.empty()) {
    result.peer = median(peers);
    result.peer_version = bench_case.peer_version;
    result.ratio = median(ratios);
    result.ratio_low = std::ranges::min(ratios);
    result.ratio_high = std::ranges::max(ratios);
  }
  result.limit = bench_case.limit;
  result.of_limit = bench_case.limit > 0 ? result.ours / bench_case.limit : 0;
  result.isa = std::string(nn::to_string(nn::cpu_isa()));
  return result;
}

const std::vector<Benchmark>& benchmarks() {
  static const std::vector<Benchmark> all = {
      {"decode", "one token at a time, beside llama.cpp", run_decode},
      {"prefill", "prompts of 512 and 2,048 tokens, beside llama.cpp and transformers",
       run_prefill},
      {"train-step", "forward, backward and AdamW, beside eager PyTorch", run_train_step},
      {"generate-batch", "64 sampled sequences, beside transformers' generate", run_generate_batch},
      {"rl-step", "sampling, rewards and update, beside eager PyTorch in f32", run_rl_step},
      {"tokenize", "English to ids on one thread, beside the tokenizers wheel", run_tokenize},
      {"kl", "divergence of quantised files from F32, beside llama.cpp's", run_kl},
      {"codecs", "f32 vectors to smaller frames and back, on one thread", run_codecs},
      {"traffic-plan", "paths of 245,760 flows on a leaf-spine fabric", run_traffic_plan},
      {"constrain", "tokens of constrained replies, against 50 us a token", run_constrain},
      {"job-sim", "the Philly jobs on 3,000 and on 600 GPUs, against 10^6 events/s", run_job_sim},
  };
  return all;
}

}  // namespace weft::bench
