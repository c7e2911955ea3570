// weft bench run decode, prefill and generate-batch.
#include <algorithm>
#include <chrono>
#include <initializer_list>

#include "bench/bench.h"
#include "bench/subject.h"

namespace weft::bench {
namespace {

constexpr auto kPatience = std::chrono::minutes(5);  // for one run of a peer
constexpr DType kTypes[] = {DType::kQ4_1, DType::kQ4_0, DType::kQ8_0, DType::kBF16};

// `auto` is what `weft serve` does with a file of this type: f32 for F32, else bf16.
// bf16 also stands for int8 where the weights are not quantised.
nn::Compute compute_of(const BenchOptions& options, DType type) {
  if (options.compute == "f32") return nn::Compute::kF32;
  if (options.compute == "int8" && is_quantized(type)) return nn::Compute::kInt8;
  return options.compute == "auto" && type == DType::kF32 ? nn::Compute::kF32 : nn::Compute::kBF16;
}

bool wanted(const BenchOptions& options, std::string_view name) {
  return name.find(options.only) != name.npos;
}

// A rate in tokens a second from the peer's seconds.
std::function<Result<double>()> ask(Peer& peer, Json request, double tokens) {
  return [&peer, request = std::move(request), tokens]() -> Result<double> {
    WEFT_ASSIGN(const Json reply, peer.request(request, Deadline::after(kPatience)));
    WEFT_ASSIGN(const double seconds, json_field<double>(reply, "seconds"));
    return tokens / seconds;
  };
}

// Runs the cases of one file, whose names begin with its type and end in one of
// `endings`: `make(subject, peer)` gives them; the peer is null where there is none.
template <class Make>
Status run_file(const BenchOptions& options, ThreadPool& pool, DType type,
                std::initializer_list<std::string_view> endings, const Report& report,
                const Make& make) {
  const auto asked = [&](std::string_view ending) {
    return wanted(options, fmt::format("{}/{}", to_string(type), ending));
  };
  if (std::ranges::none_of(endings, asked)) return {};
  WEFT_ASSIGN(const std::filesystem::path file, gguf_of(options, type));
  WEFT_ASSIGN(const auto subject, load_subject(file, compute_of(options, type), pool));
  std::optional<Peer> peer;
  if (options.peers) {
    WEFT_ASSIGN(peer,
                Peer::start("llama_cpp_peer.py", {file.string(), std::to_string(pool.threads())}));
  }
  for (const Case& one : make(*subject, peer ? &*peer : nullptr)) {
    if (!wanted(options, one.name)) continue;
    WEFT_ASSIGN(const CaseResult result, run_case(one, options.rounds));
    report(result);
  }
  return {};
}

}  // namespace

Status run_decode(const BenchOptions& options, ThreadPool& pool, const Report& report) {
  const MachineLimits limits = measure_limits(pool);
  constexpr std::int64_t kPrompt = 32;
  std::uint64_t salt = 1;
  for (const DType type : kTypes) {
    const auto make = [&](Subject& subject, Peer* peer) {
      std::vector<Case> cases;
      for (const int sequences : {1, 8, 32}) {
        const std::int64_t steps = sequences == 1 ? 64 : 32;
        const double tokens = static_cast<double>(sequences) * static_cast<double>(steps);
        Case one;
        one.name = fmt::format("{}/seqs={}", to_string(type), sequences);
        // A step reads every weight once and multiplies it by each sequence; KV
        // of under 100 positions is left out, which only raises the limit.
        one.limit =
            sequences /
            least_seconds(limits, subject.body_bytes + subject.head_bytes,
                          sequences * (subject.body_flops_per_token + subject.head_flops_per_token),
                          subject.int8);
        one.ours = [&subject, &salt, sequences, steps, tokens]() -> Result<double> {
          WEFT_ASSIGN(const double seconds,
                      decode_seconds(subject, ++salt, sequences, kPrompt, steps));
          return tokens / seconds;
        };
        if (peer != nullptr) {
          one.peer = ask(
              *peer, {{"kind", "decode"}, {"seqs", sequences}, {"prompt", kPrompt}, {"new", steps}},
              tokens);
          one.peer_version = peer->version();
        }
        cases.push_back(std::move(one));
      }
      return cases;
    };
    WEFT_TRY(run_file(options, pool, type, {"seqs=1", "seqs=8", "seqs=32"}, report, make));
  }
  return {};
}

Status run_prefill(const BenchOptions& options, ThreadPool& pool, const Report& report) {
  const MachineLimits limits = measure_limits(pool);
  std::uint64_t salt = 1'000'000;
  std::optional<Peer> transformers;  // beside ours in BF16 alone
  if (options.peers && (wanted(options, "BF16/prompt=512/transformers") ||
                        wanted(options, "BF16/prompt=2048/transformers"))) {
    WEFT_ASSIGN(const std::filesystem::path directory, directory_of(options));
    WEFT_ASSIGN(transformers,
                Peer::start("torch_peer.py", {directory.string(), std::to_string(pool.threads())}));
  }
  for (const DType type : kTypes) {
    const auto make = [&](Subject& subject, Peer* peer) {
      std::vector<Case> cases;
      for (const std::int64_t prompt : {512, 2048}) {
        const auto tokens = static_cast<double>(prompt);
        Case one;
        one.name = fmt::format("{}/prompt={}", to_string(type), prompt);
        // Weights once, products for each token, the output layer for the last one,
        // attention over half the prompt on average.
        const double flops = tokens * (subject.body_flops_per_token +
                                       attention_flops(subject.model.config, tokens / 2)) +
                             subject.head_flops_per_token;
        one.limit = tokens / least_seconds(limits, subject.body_bytes + subject.head_bytes, flops,
                                           subject.int8);
        one.ours = [&subject, &salt, prompt, tokens]() -> Result<double> {
          WEFT_ASSIGN(const double seconds, generate_seconds(subject, ++salt, 1, prompt, 1, 0.0F));
          return tokens / seconds;
        };
        Case second = one;
        if (peer != nullptr) {
          one.peer = ask(*peer, {{"kind", "prefill"}, {"prompt", prompt}}, tokens);
          one.peer_version = peer->version();
        }
        cases.push_back(std::move(one));
        if (type != DType::kBF16 || !transformers) continue;
        second.name += "/transformers";
        second.peer =
            ask(*transformers, {{"kind", "prefill"}, {"mode", "bf16"}, {"prompt", prompt}}, tokens);
        second.peer_version = transformers->version();
        cases.push_back(std::move(second));
      }
      return cases;
    };
    WEFT_TRY(run_file(
        options, pool, type,
        {"prompt=512", "prompt=2048", "prompt=512/transformers", "prompt=2048/transformers"},
        report, make));
  }
  return {};
}

Status run_generate_batch(const BenchOptions& options, ThreadPool& pool, const Report& report) {
  const MachineLimits limits = measure_limits(pool);
  constexpr int kSequences = 64;
  constexpr std::int64_t kPrompt = 40;  // an arithmetic question in the chat template
  constexpr std::int64_t kNew = 32;
  constexpr double kTokens = kSequences * static_cast<double>(kNew);
  WEFT_ASSIGN(const std::filesystem::path directory, directory_of(options));
  // What the RL loop samples with: the trainer's own numerics.
  WEFT_ASSIGN(const auto subject, load_subject(directory, nn::Compute::kBF16, pool));
  Case one;
  one.name = fmt::format("bf16/seqs={}/prompt={}/new={}", kSequences, kPrompt, kNew);
  if (!wanted(options, one.name)) return {};
  const double prefill = least_seconds(limits, subject->body_bytes,
                                       kSequences * kPrompt * subject->body_flops_per_token, false);
  const double step = least_seconds(
      limits, subject->body_bytes + subject->head_bytes,
      kSequences * (subject->body_flops_per_token + subject->head_flops_per_token), false);
  one.limit = kTokens / (prefill + kNew * step);
  std::uint64_t salt = 2'000'000;
  one.ours = [&]() -> Result<double> {
    WEFT_ASSIGN(const double seconds,
                generate_seconds(*subject, ++salt, kSequences, kPrompt, kNew, 1.0F));
    return kTokens / seconds;
  };
  std::optional<Peer> peer;
  if (options.peers) {
    WEFT_ASSIGN(peer,
                Peer::start("torch_peer.py", {directory.string(), std::to_string(pool.threads())}));
    one.peer = ask(*peer,
                   {{"kind", "generate"},
                    {"mode", "bf16"},
                    {"seqs", kSequences},
                    {"prompt", kPrompt},
                    {"new", kNew}},
                   kTokens);
    one.peer_version = peer->version();
  }
  WEFT_ASSIGN(const CaseResult result, run_case(one, options.rounds));
  report(result);
  return {};
}

}  // namespace weft::bench
