// What a constraint costs a token: masks, their use on a row of logits, and the step on.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>

#include "bench/bench.h"
#include "weft/base/rng.h"
#include "weft/model/load.h"
#include "weft/nn/isa.h"
#include "weft/serve/constrain/constraint.h"
#include "weft/serve/sampling.h"

namespace weft::bench {
namespace {

using namespace serve::constrain;
using Clock = std::chrono::steady_clock;

constexpr double kAllowedSeconds = 50e-6;  // what a token may cost
constexpr int kTokens = 2000;

double since(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

struct Named {
  const char* name;
  ConstraintSpec spec;
};
std::vector<Named> cases() {
  using Kind = ConstraintSpec::Kind;
  return {
      {"json-object", {Kind::kJsonObject, "", {}}},
      {"json-schema",
       {Kind::kJsonSchema,
        R"({"type":"object","properties":{"name":{"type":"string","maxLength":40},
            "age":{"type":"integer","minimum":0,"maximum":150},
            "mail":{"type":"string","format":"email"},
            "tags":{"type":"array","items":{"type":"string"}},
            "kind":{"enum":["person","company"]},"parent":{"$ref":"#"}},
            "required":["name","kind"],"additionalProperties":{"type":"number"}})",
        {}}},
      {"regex", {Kind::kRegex, R"(([A-Z][a-z]+ ){1,3}<[\w.]+@[a-z]+\.[a-z]{2,3}>(, .*)?)", {}}},
      {"gbnf",
       {Kind::kGbnf,
        "root ::= item (\", \" item)*\nitem ::= str | \"[\" root \"]\" | [0-9]+\n"
        "str ::= \"\\\"\" char* \"\\\"\"\nchar ::= [^\"\\\\] | \"\\\\\" [\"\\\\n]\n",
        {}}},
  };
}

// Random replies of allowed tokens. Every token's time is one allowed(), one greedy
// sample() less a free one, and one accept().
Result<std::vector<double>> token_seconds(const std::shared_ptr<const Constraint>& constraint,
                                          std::span<const float> logits, std::uint64_t seed) {
  Rng rng(seed, RngUse::kTest, 1);
  std::vector<double> seconds;
  std::vector<model::TokenId> ids;
  const serve::SamplingParams params;
  auto free_begin = Clock::now();
  for (int i = 0; i < 50; ++i) (void)serve::sample(logits, params, {}, {}, i);
  const double free_seconds = since(free_begin) / 50;
  std::unique_ptr<ConstraintState> state;
  for (int i = 0, in_reply = 0; i < kTokens; ++i, ++in_reply) {
    if (!state || state->complete() || in_reply == 200) {
      state = std::make_unique<ConstraintState>(constraint);
      in_reply = 0;
    }
    auto begin = Clock::now();
    const auto allowed = state->allowed();
    if (!allowed) return std::unexpected(allowed.error());
    (void)serve::sample(logits, params, {}, {}, i, *allowed);
    double spent = since(begin) - free_seconds;
    ids.clear();
    for (std::size_t w = 0; w < allowed->size(); ++w) {
      for (std::uint64_t word = (*allowed)[w]; word != 0; word &= word - 1) {
        ids.push_back(
            static_cast<model::TokenId>(w * 64 + static_cast<std::size_t>(std::countr_zero(word))));
      }
    }
    const auto id = ids[rng.next_below(static_cast<std::uint32_t>(ids.size()))];
    begin = Clock::now();
    if (!state->accept(id)) return fail(ErrorCode::kInternal, "an allowed token was refused");
    spent += since(begin);
    seconds.push_back(spent);
  }
  return seconds;
}

}  // namespace

Status run_constrain(const BenchOptions& options, ThreadPool&, const Report& report) {
  WEFT_ASSIGN(const model::Model model, model::load_model(options.model));
  if (!model.tokenizer) {
    return fail(ErrorCode::kNotFound, "{} has no tokenizer", options.model);
  }
  const auto trie = std::make_shared<const TokenTrie>(*model.tokenizer, model.config.vocab_size,
                                                      model.tokenizer->eos());
  Rng rng(1, RngUse::kTest, 2);
  std::vector<float> logits(static_cast<std::size_t>(model.config.vocab_size));
  for (float& x : logits) x = rng.next_normal();
  for (const Named& each : cases()) {
    if (std::string_view(each.name).find(options.only) == std::string_view::npos) continue;
    const auto begin = Clock::now();
    WEFT_ASSIGN(const auto constraint, make_constraint(each.spec, trie));
    const double compile_seconds = since(begin);
    std::vector<double> rates, all;
    for (int round = 0; round < options.rounds; ++round) {
      WEFT_ASSIGN(const auto seconds,
                  token_seconds(constraint, logits, static_cast<std::uint64_t>(round)));
      double total = 0;
      for (const double s : seconds) total += s;
      rates.push_back(kTokens / total);
      all.insert(all.end(), seconds.begin(), seconds.end());
    }
    std::ranges::sort(rates);
    std::ranges::sort(all);
    if (!options.quiet) {
      std::fprintf(stderr,
                   "weft: constrain/%s: compiled in %.1f ms, %.1f us a token, p99 %.1f us, "
                   "longest %.1f us\n",
                   each.name, compile_seconds * 1e3, 1e6 / rates[rates.size() / 2],
                   all[all.size() * 99 / 100] * 1e6, all.back() * 1e6);
    }
    CaseResult result;
    result.name = each.name;
    result.unit = "tokens/s";
    result.ours = rates[rates.size() / 2];
    result.limit = 1 / kAllowedSeconds;
    result.of_limit = result.ours / result.limit;
    result.isa = std::string(nn::to_string(nn::cpu_isa()));
    report(result);
  }
  return {};
}

}  // namespace weft::bench
