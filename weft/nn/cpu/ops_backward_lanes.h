// Row-wise loops of ops_backward; included after one lanes_*.h and transcendental_lanes.h.
#pragma once

#include <algorithm>
#include <numbers>

#include "weft/nn/cpu/ops_backward_kernels.h"

namespace weft::nn {
namespace {

// body(index, lanes) over [begin, end) in vectors of 16, the last one shorter.
template <class Body>
inline void for_lanes(std::int64_t begin, std::int64_t end, Body body) {
  std::int64_t i = begin;
  for (; i + 16 <= end; i += 16) body(i, std::int64_t{16});
  if (i < end) body(i, end - i);
}
inline Lanes load(const float* p, std::int64_t lanes) {
  return lanes == 16 ? load(p) : load_part(p, lanes, 0.0F);
}
inline void store(float* p, Lanes a, std::int64_t lanes) {
  if (lanes == 16) {
    store(p, a);
  } else {
    store_part(p, lanes, a);
  }
}

// With g = dy * weight and h = (x - mean) * inv_std:
//   dx = inv_std * (g - [mean(g)] - h * mean(g h)), the bracket for LayerNorm only.
inline void norm_rows_backward_lanes(const NormGradient& a, std::int64_t begin, std::int64_t end) {
  const float inv_n = 1.0F / static_cast<float>(a.n);
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.n;
    const float* dy = a.dy + row * a.n;
    const Lanes mean = splat(a.mean != nullptr ? a.mean[row] : 0.0F);
    const Lanes inv_std = splat(a.inv_std[row]);
    Lanes sum_g = splat(0.0F), sum_gh = splat(0.0F);
    for_lanes(0, a.n, [&](std::int64_t i, std::int64_t lanes) {
      const Lanes g = mul(load(dy + i, lanes), load(a.weight + i, lanes));
      const Lanes h = mul(sub(load(x + i, lanes), mean), inv_std);
      sum_g = add(sum_g, g);
      sum_gh = fma(g, h, sum_gh);
    });
    const Lanes mean_g = splat(a.mean != nullptr ? sum(sum_g) * inv_n : 0.0F);
    const Lanes mean_gh = splat(sum(sum_gh) * inv_n);
    for_lanes(0, a.n, [&](std::int64_t i, std::int64_t lanes) {
      const Lanes g = mul(load(dy + i, lanes), load(a.weight + i, lanes));
      const Lanes h = mul(sub(load(x + i, lanes), mean), inv_std);
      Lanes d = mul(inv_std, sub(sub(g, mean_g), mul(h, mean_gh)));
      if (a.residual != nullptr) d = add(load(a.residual + row * a.n + i, lanes), d);
      store(a.dx + row * a.n + i, d, lanes);
    });
  }
}

inline void norm_columns_backward_lanes(const NormGradient& a, std::int64_t begin,
                                        std::int64_t end) {
  for_lanes(begin, end, [&](std::int64_t i, std::int64_t lanes) {
    Lanes dweight = load(a.dweight + i, lanes);
    Lanes dbias = a.dbias != nullptr ? load(a.dbias + i, lanes) : splat(0.0F);
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const Lanes dy = load(a.dy + row * a.n + i, lanes);
      const Lanes mean = splat(a.mean != nullptr ? a.mean[row] : 0.0F);
      const Lanes h = mul(sub(load(a.x + row * a.n + i, lanes), mean), splat(a.inv_std[row]));
      dweight = fma(dy, h, dweight);
      dbias = add(dbias, dy);
    }
    store(a.dweight + i, dweight, lanes);
    if (a.dbias != nullptr) store(a.dbias + i, dbias, lanes);
  });
}

inline Lanes sigmoid(Lanes x) {
  return div(splat(1.0F), add(splat(1.0F), exp(sub(splat(0.0F), x))));
}

inline void silu_mul_backward_lanes(const float* gate_up, const float* dy, std::int64_t n,
                                    float* dgate_up, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* gate = gate_up + row * 2 * n;
    float* dgate = dgate_up + row * 2 * n;
    for_lanes(0, n, [&](std::int64_t i, std::int64_t lanes) {
      const Lanes g = load(gate + i, lanes), up = load(gate + n + i, lanes);
      const Lanes d = load(dy + row * n + i, lanes);
      const Lanes s = sigmoid(g), silu = mul(g, s);
      // silu' = s (1 + g (1 - s)) = s + silu (1 - s)
      const Lanes slope = fma(silu, sub(splat(1.0F), s), s);
      store(dgate + i, mul(mul(d, up), slope), lanes);
      store(dgate + n + i, mul(d, silu), lanes);
    });
  }
}

// Abramowitz & Stegun 7.1.26 (error below 1.5e-7), for x >= 0.
inline Lanes erf_positive(Lanes x) {
  const Lanes t = div(splat(1.0F), fma(splat(0.3275911F), x, splat(1.0F)));
  Lanes p = splat(1.061405429F);
  p = fma(p, t, splat(-1.453152027F));
  p = fma(p, t, splat(1.421413741F));
  p = fma(p, t, splat(-0.284496736F));
  p = fma(p, t, splat(0.254829592F));
  return sub(splat(1.0F), mul(mul(p, t), exp(sub(splat(0.0F), mul(x, x)))));
}

inline void gelu_backward_lanes(const float* x, const float* dy, bool tanh_form, float* dx,
                                std::int64_t begin, std::int64_t end) {
  const Lanes one = splat(1.0F), half = splat(0.5F), zero = splat(0.0F);
  for_lanes(begin, end, [&](std::int64_t i, std::int64_t lanes) {
    const Lanes v = load(x + i, lanes);
    Lanes slope;
    if (tanh_form) {
      const Lanes c = splat(0.7978845608F), square = mul(v, v);  // c = sqrt(2 / pi)
      const Lanes u = mul(mul(c, v), fma(splat(0.044715F), square, one));
      const Lanes t = sub(one, div(splat(2.0F), add(exp(add(u, u)), one)));
      const Lanes du = mul(c, fma(splat(3.0F * 0.044715F), square, one));
      slope = fma(mul(mul(half, v), sub(one, mul(t, t))), du, mul(half, add(one, t)));
    } else {
      const Lanes z = mul(max(v, sub(zero, v)), splat(0.7071067812F));
      const Lanes tail = mul(half, sub(one, erf_positive(z)));  // Phi(-|v|)
      const Lanes phi = select_greater(v, zero, sub(one, tail), tail);
      const Lanes density = mul(splat(0.3989422804F), exp(mul(mul(splat(-0.5F), v), v)));
      slope = fma(v, density, phi);
    }
    store(dx + i, mul(load(dy + i, lanes), slope), lanes);
  });
}

inline void add_rows_backward_lanes(const float* dy, std::int64_t rows, std::int64_t ld,
                                    float* sums, std::int64_t begin, std::int64_t end) {
  for_lanes(begin, end, [&](std::int64_t i, std::int64_t lanes) {
    Lanes total = load(sums + i, lanes);
    for (std::int64_t row = 0; row < rows; ++row) {
      total = add(total, load(dy + row * ld + i, lanes));
    }
    store(sums + i, total, lanes);
  });
}

inline void add_arrays_lanes(const float* a, const float* b, float* y, std::int64_t begin,
                             std::int64_t end) {
  for_lanes(begin, end, [&](std::int64_t i, std::int64_t lanes) {
    store(y + i, add(load(a + i, lanes), load(b + i, lanes)), lanes);
  });
}

inline void row_entropy_lanes(const float* logits, const float* lse, std::int64_t n,
                              float temperature, float* entropy, std::int64_t begin,
                              std::int64_t end) {
  const Lanes inverse = splat(1.0F / temperature);
  for (std::int64_t row = begin; row < end; ++row) {
    const Lanes total = splat(lse[row]);
    Lanes expected = splat(0.0F);  // -sum p log p
    for_lanes(0, n, [&](std::int64_t i, std::int64_t lanes) {
      const Lanes logp = sub(mul(load(logits + row * n + i, lanes), inverse), total);
      Lanes term = mul(exp(logp), logp);
      if (lanes < 16) {
        float kept[16];
        store(kept, term);
        term = load_part(kept, lanes, 0.0F);
      }
      expected = sub(expected, term);
    });
    entropy[row] = sum(expected);
  }
}

// d logprob / d logit_j = (delta_j - p_j) / T; d entropy / d logit_j = -p_j (log p_j + H) / T.
inline void log_prob_backward_lanes(const LogProbGradient& a, std::int64_t begin,
                                    std::int64_t end) {
  const float inverse = 1.0F / a.temperature;
  for (std::int64_t row = begin; row < end; ++row) {
    float* logits = a.logits + row * a.n;
    const Lanes total = splat(a.lse[row]), dlogprob = splat(a.dlogprob[row]);
    const Lanes entropy = splat(a.entropy != nullptr ? a.entropy[row] : 0.0F);
    const Lanes dentropy = splat(a.entropy != nullptr ? a.dentropy[row] : 0.0F);
    for_lanes(0, a.n, [&](std::int64_t i, std::int64_t lanes) {
      const Lanes logp = sub(mul(load(logits + i, lanes), splat(inverse)), total);
      const Lanes slope = fma(dentropy, add(logp, entropy), dlogprob);
      const Lanes p = mul(exp(logp), splat(-inverse));
      store(logits + i, mul(p, slope), lanes);
    });
    logits[a.tokens[row]] += a.dlogprob[row] * inverse;
  }
}

}  // namespace
}  // namespace weft::nn
