#include "weft/nn/ops_backward.h"

#include "weft/base/result.h"
#include "weft/nn/cpu/ops_backward_kernels.h"
#include "weft/nn/isa.h"
#include "weft/nn/share.h"

namespace weft::nn {
namespace {

const BackwardKernels& kernels() {
  switch (cpu_isa()) {
    case Isa::kScalar:
      return kBackwardKernelsScalar;
    case Isa::kAvx2:
      return kBackwardKernelsAvx2;
    default:
      return kBackwardKernelsAvx512;
  }
}

// Elements worth a piece of their own: about 10 us of work.
constexpr std::int64_t kGrainElements = 16384;
std::int64_t row_grain(std::int64_t n) { return std::max<std::int64_t>(1, kGrainElements / n); }

void norm_backward(const NormGradient& gradient, ThreadPool& pool) {
  const BackwardKernels& k = kernels();
  // Columns first: dx may be the residual, but never dy or x.
  if (gradient.dweight != nullptr) {
    const std::int64_t pieces = (gradient.n + 15) / 16;
    pool.parallel_for(pieces, row_grain(gradient.rows * 16),
                      [&](std::int64_t begin, std::int64_t end) {
                        k.norm_columns(gradient, begin * 16, std::min(end * 16, gradient.n));
                      });
  }
  pool.parallel_for(
      gradient.rows, row_grain(gradient.n),
      [&](std::int64_t begin, std::int64_t end) { k.norm_rows(gradient, begin, end); });
}

}  // namespace

void rms_norm_backward(const float* x, const float* weight, const float* inv_rms, const float* dy,
                       const float* residual, std::int64_t rows, std::int64_t n, float* dx,
                       float* dweight, ThreadPool& pool) {
  norm_backward({.x = x,
                 .weight = weight,
                 .mean = nullptr,
                 .inv_std = inv_rms,
                 .dy = dy,
                 .residual = residual,
                 .rows = rows,
                 .n = n,
                 .dx = dx,
                 .dweight = dweight,
                 .dbias = nullptr},
                pool);
}

void layer_norm_backward(const float* x, const float* weight, const float* mean,
                         const float* inv_std, const float* dy, const float* residual,
                         std::int64_t rows, std::int64_t n, float* dx, float* dweight, float* dbias,
                         ThreadPool& pool) {
  norm_backward({.x = x,
                 .weight = weight,
                 .mean = mean,
                 .inv_std = inv_std,
                 .dy = dy,
                 .residual = residual,
                 .rows = rows,
                 .n = n,
                 .dx = dx,
                 .dweight = dweight,
                 .dbias = dbias},
                pool);
}

void silu_mul_backward(const float* gate_up, const float* dy, std::int64_t rows, std::int64_t n,
                       float* dgate_up, ThreadPool& pool) {
  pool.parallel_for(rows, row_grain(n), [&, silu_mul = kernels().silu_mul](auto begin, auto end) {
    silu_mul(gate_up, dy, n, dgate_up, begin, end);
  });
}

void gelu_backward(const float* x, const float* dy, std::int64_t count, bool tanh_form, float* dx,
                   ThreadPool& pool) {
  pool.parallel_for((count + 15) / 16, kGrainElements / 16,
                    [&, gelu = kernels().gelu](std::int64_t begin, std::int64_t end) {
                      gelu(x, dy, tanh_form, dx, begin * 16, std::min(end * 16, count));
                    });
}

void add_rows(const float* dy, std::int64_t rows, std::int64_t n, std::int64_t ld, float* sums,
              ThreadPool& pool) {
  if (rows == 0) return;
  pool.parallel_for((n + 15) / 16, row_grain(rows * 16),
                    [&, add_rows = kernels().add_rows](std::int64_t begin, std::int64_t end) {
                      add_rows(dy, rows, ld, sums, begin * 16, std::min(end * 16, n));
                    });
}

void add(const float* a, const float* b, std::int64_t count, float* y, ThreadPool& pool) {
  pool.parallel_for((count + 15) / 16, kGrainElements / 16,
                    [&, add = kernels().add](std::int64_t begin, std::int64_t end) {
                      add(a, b, y, begin * 16, std::min(end * 16, count));
                    });
}

void row_entropy(const float* logits, const float* lse, std::int64_t rows, std::int64_t n,
                 float temperature, float* entropy, ThreadPool& pool) {
  pool.parallel_for(rows, row_grain(n),
                    [&, row_entropy = kernels().row_entropy](std::int64_t begin, std::int64_t end) {
                      row_entropy(logits, lse, n, temperature, entropy, begin, end);
                    });
}

void log_prob_backward(float* logits, const float* lse, const std::int32_t* tokens,
                       const float* dlogprob, const float* entropy, const float* dentropy,
                       std::int64_t rows, std::int64_t n, float temperature, ThreadPool& pool) {
  const LogProbGradient gradient = {.logits = logits,
                                    .lse = lse,
                                    .tokens = tokens,
                                    .dlogprob = dlogprob,
                                    .entropy = entropy,
                                    .dentropy = dentropy,
                                    .n = n,
                                    .temperature = temperature};
  pool.parallel_for(rows, row_grain(n), [&, log_prob = kernels().log_prob](auto begin, auto end) {
    log_prob(gradient, begin, end);
  });
}

void attention_backward(const AttentionGradient& gradient, std::span<const Segment> segments,
                        ThreadPool& pool) {
  // A unit is a segment without a parent and those after it until the next such one.
  std::vector<std::int64_t> first;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::int64_t parent = segments[i].parent;
    if (parent < 0) {
      first.push_back(static_cast<std::int64_t>(i));
    } else {
      WEFT_CHECK(!first.empty() && parent >= first.back() && parent < static_cast<std::int64_t>(i),
                 "segment {} has its parent {} in another unit", i, parent);
    }
  }
  const auto attention =
      gradient.bf16 && cpu_isa() == Isa::kAmx ? attention_backward_amx : kernels().attention;
  const auto units = static_cast<std::int64_t>(first.size());
  first.push_back(static_cast<std::int64_t>(segments.size()));
  share(pool, units * gradient.kv_heads, 1, [&, attention](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t unit = task / gradient.kv_heads;
      attention(gradient,
                segments.subspan(static_cast<std::size_t>(first[unit]),
                                 static_cast<std::size_t>(first[unit + 1] - first[unit])),
                first[unit], task % gradient.kv_heads);
    }
  });
}

}  // namespace weft::nn
