// weft bench run tokenize and kl: what is measured on English text.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "bench/bench.h"
#include "bench/subject.h"
#include "weft/base/file.h"
#include "weft/model/tokenizer.h"
#include "weft/nn/isa.h"
#include "weft/serve/evaluate.h"

namespace weft::bench {
namespace {

namespace fs = std::filesystem;
constexpr auto kPatience = std::chrono::minutes(5);

// --text, else WikiText-2 in $WEFT_DATA.
Result<fs::path> english_text(const BenchOptions& options) {
  if (!options.text.empty()) return fs::path(options.text);
  if (const char* data = std::getenv("WEFT_DATA")) {
    const fs::path path = fs::path(data) / "text/wikitext-2/valid.txt";
    if (fs::exists(path)) return path;
  }
  return fail(
      ErrorCode::kUnavailable,
      "no text to measure with: give --text FILE, or WEFT_DATA with text/wikitext-2/valid.txt");
}

// A text file's name in a case: "wikitext-2" for the folder of valid.txt.
std::string text_name(const fs::path& path) {
  return path.stem() == "valid" ? path.parent_path().filename().string() : path.stem().string();
}

// Documents of whole lines, at least `kDocument` bytes each but the last.
constexpr std::size_t kDocument = 4096;
std::vector<std::string_view> documents(std::string_view text) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    std::size_t end = text.size() <= kDocument ? text.npos : text.find('\n', kDocument);
    end = end == text.npos ? text.size() : end + 1;
    all.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return all;
}

}  // namespace

// No limit of the machine is near: a byte must be read and its class looked up, about
// a nanosecond; the rest is one look-up of each word among those seen before (a hash of
// some ten bytes and a probe, 10 to 20 ns for a word of five letters).
Status run_tokenize(const BenchOptions& options, ThreadPool&, const Report& report) {
  WEFT_ASSIGN(const fs::path path, english_text(options));
  Case one;
  one.name = fmt::format("{}/documents={}", text_name(path), kDocument);
  one.unit = "MB/s";
  if (one.name.find(options.only) == std::string::npos) return {};
  WEFT_ASSIGN(const std::string text, read_file(path));
  WEFT_ASSIGN(const fs::path directory, directory_of(options));
  WEFT_ASSIGN(const auto tokenizer, model::load_tokenizer(directory));
  const std::vector<std::string_view> pieces = documents(text);
  const double megabytes = static_cast<double>(text.size()) * 1e-6;
  std::int64_t tokens = 0, peer_tokens = -1;
  std::int64_t sum = 0, peer_sum = 0;
  one.ours = [&]() -> Result<double> {
    tokens = 0;
    sum = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (const std::string_view piece : pieces) {
      for (const model::TokenId id : tokenizer->encode(piece)) {
        sum += (++tokens % 1000 + 1) * id;
      }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return megabytes / seconds.count();
  };
  std::optional<Peer> peer;
  if (options.peers) {
    WEFT_ASSIGN(peer,
                Peer::start("tokenizers_peer.py", {(directory / "tokenizer.json").string(),
                                                   path.string(), std::to_string(kDocument)}));
    one.peer = [&]() -> Result<double> {
      WEFT_ASSIGN(const Json reply,
                  peer->request({{"kind", "encode"}}, Deadline::after(kPatience)));
      WEFT_ASSIGN(peer_tokens, json_field<std::int64_t>(reply, "tokens"));
      WEFT_ASSIGN(peer_sum, json_field<std::int64_t>(reply, "sum"));
      WEFT_ASSIGN(const double seconds, json_field<double>(reply, "seconds"));
      return megabytes / seconds;
    };
    one.peer_version = peer->version();
  }
  WEFT_ASSIGN(const CaseResult result, run_case(one, options.rounds));
  if (peer && (tokens != peer_tokens || sum != peer_sum)) {
    return fail(ErrorCode::kInternal, "the ids differ: {} tokens of ours, {} of the peer's", tokens,
                peer_tokens);
  }
  report(result);
  return {};
}

Status run_kl(const BenchOptions& options, ThreadPool& pool, const Report& report) {
  constexpr serve::EvaluateOptions kWindows{.window = 512, .windows = 4, .skip = 0};
  constexpr std::size_t kHead = 512 * 4 * 16;  // bytes: more than four windows of English
  WEFT_ASSIGN(const fs::path path, english_text(options));
  const auto name = [](DType type, std::string_view compute) {
    return fmt::format("{}/{}", to_string(type), compute);
  };
  std::vector<std::pair<DType, std::string_view>> wanted;
  for (const DType type : {DType::kBF16, DType::kQ8_0, DType::kQ4_1, DType::kQ4_0}) {
    for (const std::string_view compute : {"bf16", "int8"}) {
      if (compute == "int8" && !is_quantized(type)) continue;
      if (options.compute != "auto" && options.compute != compute) continue;
      if (name(type, compute).find(options.only) != std::string::npos)
        wanted.emplace_back(type, compute);
    }
  }
  if (wanted.empty()) return {};
  WEFT_ASSIGN(std::string text, read_file(path));
  text.resize(std::min(text.size(), kHead));
  WEFT_ASSIGN(const fs::path f32, gguf_of(options, DType::kF32));
  WEFT_ASSIGN(const model::Model original, model::load_model(f32.string()));
  WEFT_ASSIGN(const auto reference,
              nn::build_weights(original.config, original.weights, nn::Compute::kF32, pool));
  const std::vector<model::TokenId> ids = original.tokenizer->encode(text);
  std::optional<Peer> peer;
  if (options.peers) {
    WEFT_ASSIGN(peer, Peer::start("kl_peer.py", {f32.string(), path.string(), std::to_string(kHead),
                                                 std::to_string(pool.threads())}));
  }
  std::map<DType, double> peers;
  for (const auto& [type, compute] : wanted) {
    WEFT_ASSIGN(const fs::path file, gguf_of(options, type));
    WEFT_ASSIGN(const model::Model model, model::load_model(file.string()));
    const nn::Compute arithmetic = compute == "int8" ? nn::Compute::kInt8 : nn::Compute::kBF16;
    WEFT_ASSIGN(const auto weights,
                nn::build_weights(model.config, model.weights, arithmetic, pool));
    WEFT_ASSIGN(const serve::Evaluation ours,
                serve::evaluate(weights, reference, ids, kWindows, pool));
    CaseResult result;
    result.name = name(type, compute);
    result.unit = "nats";
    result.ours = ours.mean_kl;
    result.isa = std::string(nn::to_string(nn::cpu_isa()));
    if (peer) {
      if (!peers.contains(type)) {
        const Json request = {{"kind", "kl"}, {"file", file.string()}};
        WEFT_ASSIGN(const Json reply, peer->request(request, Deadline::after(kPatience)));
        WEFT_ASSIGN(peers[type], json_field<double>(reply, "mean_kl"));
        WEFT_ASSIGN(const std::int64_t scored, json_field<std::int64_t>(reply, "tokens"));
        if (scored != ours.tokens) {
          return fail(ErrorCode::kInternal, "ours scored {} tokens, the peer {}", ours.tokens,
                      scored);
        }
      }
      result.peer = peers[type];
      result.peer_version = peer->version();
      result.ratio = result.ratio_low = result.ratio_high = result.ours / *result.peer;
    }
    report(result);
  }
  return {};
}

}  // namespace weft::bench
