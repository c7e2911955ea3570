// Prints, for each kernel, what it reaches and the machine's limit measured in
// the same run: memory-bound ones against a read of the same bytes, products
// against a loop of the bf16 instruction on registers alone.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/machine/limits.h"
#include "bench/machine/peak.h"
#include "weft/base/thread_pool.h"
#include "weft/nn/attention.h"
#include "weft/nn/cpu/aligned_buffer.h"
#include "weft/nn/isa.h"
#include "weft/nn/matmul.h"
#include "weft/nn/matmul_backward.h"
#include "weft/nn/ops.h"

namespace weft::nn {
namespace {

int pool_threads = 0;

// The shortest of `times` runs, in seconds.
double shortest(int times, const std::function<void()>& body) {
  double best = 1e30;
  for (int i = 0; i < times; ++i) {
    const double start = bench::timing_seconds(pool_threads);
    body();
    best = std::min(best, bench::timing_seconds(pool_threads) - start);
  }
  return best;
}

void report(const std::string& name, const char* unit, double ours, double limit) {
  std::printf(
      "{\"case\": \"%s\", \"unit\": \"%s\", \"ours\": %.4g, \"limit\": %.4g, "
      "\"of_limit\": %.3f, \"isa\": \"%s\"}\n",
      name.c_str(), unit, ours, limit, ours / limit, std::string(to_string(cpu_isa())).c_str());
  std::fflush(stdout);
}

std::vector<float> random_floats(std::int64_t n, float scale) {
  std::vector<float> v(static_cast<std::size_t>(n));
  std::uint32_t state = 1;
  for (float& x : v) {
    state = state * 1664525U + 1013904223U;
    x = (static_cast<float>(state >> 8) / 16777216.0F - 0.5F) * scale;
  }
  return v;
}

// All matrices of a SmolLM2-135M step without the head: qkv, o, gate_up, down of 30 layers.
struct MatrixShape {
  std::int64_t out, in;
};
const MatrixShape kLayer[] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};

void bench_decode(ThreadPool& pool, DType type, Compute compute, const char* name) {
  std::vector<PackedMatrix> matrices;
  std::vector<std::byte> bytes;
  std::int64_t total = 0;
  for (int layer = 0; layer < 30; ++layer) {
    for (MatrixShape s : kLayer) {
      if (block_elements(type) == 256) s.in = s.in == 576 ? 768 : s.in;
      const std::int64_t size = s.out * s.in / block_elements(type) * block_bytes(type);
      bytes.resize(static_cast<std::size_t>(size));
      if (!is_quantized(type)) {
        const auto values = random_floats(s.out * s.in, 0.1F);
        matrices.push_back(*pack_matrix(
            {{reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {s.out, s.in}}},
            compute, pool));
      } else {
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          bytes[i] = static_cast<std::byte>((i * 2654435761U >> 13) & 0x3f);
        }
        matrices.push_back(*pack_matrix({{bytes.data(), type, {s.out, s.in}}}, compute, pool));
      }
      total += matrices.back().bytes();
    }
  }
  for (std::int64_t m : {1, 8, 32}) {
    const auto x = random_floats(m * 1536, 1.0F);
    std::vector<float> y(static_cast<std::size_t>(m * 3072));
    const double seconds = shortest(7, [&] {
      for (const PackedMatrix& w : matrices) {
        matmul(w, x.data(), m, w.in(), nullptr, y.data(), w.out(), pool);
      }
    });
    AlignedBuffer memory(static_cast<std::size_t>(total));
    std::memset(memory.data(), 1, memory.bytes());
    double rate = 0;
    for (int i = 0; i < 7; ++i) {
      rate = std::max(rate, bench::measure_read_rate(memory.data(), total, pool));
    }
    report(std::string("decode/") + name + "/rows=" + std::to_string(m), "GB/s",
           static_cast<double>(total) / seconds * 1e-9, rate);
  }
}

void bench_products(ThreadPool& pool, const bench::MachineLimits& limit) {
  for (const MatrixShape& s : kLayer) {
    const auto weights = random_floats(s.out * s.in, 0.1F);
    const std::vector<TensorView> views{
        {reinterpret_cast<const std::byte*>(weights.data()), DType::kF32, {s.out, s.in}}};
    const PackedMatrix w = *pack_matrix(views, Compute::kBF16, pool);
    const PackedMatrix wt = *pack_transposed(views, Compute::kBF16, pool);
    const std::string shape =
        "out=" + std::to_string(s.out) + "/in=" + std::to_string(s.in) + "/rows=";
    for (std::int64_t m : {64, 256, 512, 2048, 8192}) {
      const auto x = random_floats(m * s.in, 1.0F), dy = random_floats(m * s.out, 1.0F);
      std::vector<float> y(static_cast<std::size_t>(m * s.out)),
          dx(static_cast<std::size_t>(m * s.in)), dw(static_cast<std::size_t>(s.out * s.in));
      const double flops = 2e-9 * static_cast<double>(m * s.out) * static_cast<double>(s.in);
      const int times = m >= 2048 ? 5 : 15;
      report(
          "product/" + shape + std::to_string(m), "GFLOP/s",
          flops / shortest(times,
                           [&] { matmul(w, x.data(), m, s.in, nullptr, y.data(), s.out, pool); }),
          1e-9 * limit.bf16_flops_per_s);
      report("dx/" + shape + std::to_string(m), "GFLOP/s",
             flops / shortest(
                         times,
                         [&] { matmul_dx(wt, dy.data(), m, s.out, dx.data(), s.in, false, pool); }),
             1e-9 * limit.bf16_flops_per_s);
      const std::vector<std::int64_t> segments(static_cast<std::size_t>(m / 64), 64);
      report("dw/" + shape + std::to_string(m), "GFLOP/s",
             flops / shortest(times,
                              [&] {
                                matmul_dw(Compute::kBF16, {s.out, s.in}, segments, dy.data(), s.out,
                                          x.data(), s.in, dw.data(), s.in, pool);
                              }),
             1e-9 * limit.bf16_flops_per_s);
    }
  }
}

void bench_attention(ThreadPool& pool, double fma_peak) {
  const std::int64_t heads = 9, kv_heads = 3, dim = 64, length = 512, sequences = 16;
  const AttentionShape shape{heads, kv_heads, dim, 0.125F, 0, kv_layout(true, dim)};
  const std::int64_t block = kAttentionBlock * kv_heads * dim;
  AlignedBuffer pages(static_cast<std::size_t>(2 * sequences * length * kv_heads * dim) * 4);
  std::vector<std::vector<const float*>> keys(sequences), values(sequences);
  std::vector<KvBlocks> kv;
  auto* page = reinterpret_cast<float*>(pages.data());
  for (std::int64_t s = 0; s < sequences; ++s) {
    for (std::int64_t b = 0; b < length / kAttentionBlock; ++b, page += 2 * block) {
      const auto rows = random_floats(2 * block, 1.0F);
      for (std::int64_t i = 0; i < kAttentionBlock; ++i) {
        const float* row = rows.data() + 2 * i * kv_heads * dim;
        store_kv(shape, row, row + kv_heads * dim, i, page, page + block);
      }
      keys[s].push_back(page);
      values[s].push_back(page + block);
    }
    kv.push_back({keys[s], values[s]});
  }
  const auto q = random_floats(sequences * length * heads * dim, 1.0F);
  std::vector<float> out(q.size());
  std::vector<QueryRow> rows, decode;
  for (std::int32_t s = 0; s < sequences; ++s) {
    for (std::int32_t p = 0; p < length; ++p) {
      const std::int64_t at = (s * length + p) * heads * dim;
      rows.push_back({q.data() + at, out.data() + at, nullptr, s, p});
      if (p + 1 == length) decode.push_back(rows.back());
    }
  }
  const double flops = 4e-9 * sequences * heads * dim * length * (length + 1) / 2;
  report("attention/16x512", "GFLOP/s",
         flops / shortest(5, [&] { attention(shape, kv, rows, pool); }), fma_peak);
  const double decode_flops = 4e-9 * sequences * heads * dim * length;
  report("attention/decode 16 at 512", "GFLOP/s",
         decode_flops / shortest(15, [&] { attention(shape, kv, decode, pool); }), fma_peak);
}

void bench_rows(ThreadPool& pool, const bench::MachineLimits& limit) {
  const std::int64_t n = 49152, rows = 512;
  const auto logits = random_floats(rows * n, 10.0F);
  std::vector<float> top(rows), lse(rows);
  const double bytes = 4e-9 * static_cast<double>(rows * n);
  report("log_sum_exp/512x49152", "GB/s",
         bytes / shortest(5,
                          [&] {
                            log_sum_exp(logits.data(), rows, n, 1.0F, top.data(), lse.data(), pool);
                          }),
         1e-9 * limit.read_bytes_per_s);
  const std::int64_t hidden = 576, tokens = 8192;
  const auto x = random_floats(tokens * hidden, 1.0F), weight = random_floats(hidden, 1.0F);
  std::vector<float> y(x.size());
  report("rms_norm/8192x576 (read and write)", "GB/s",
         8e-9 * static_cast<double>(x.size()) /
             shortest(5,
                      [&] {
                        rms_norm(x.data(), weight.data(), 1e-5F, tokens, hidden, y.data(), nullptr,
                                 pool);
                      }),
         1e-9 * limit.read_bytes_per_s);
}

void bench_repack(ThreadPool& pool, const bench::MachineLimits& limit) {
  // 135M parameters: 30 layers and the embedding, tied.
  std::vector<std::vector<float>> masters;
  std::vector<PackedMatrix> forward, transposed;
  std::vector<std::vector<TensorView>> views;
  double parameters = 0;
  const auto add = [&](std::int64_t out, std::int64_t in) {
    masters.push_back(random_floats(out * in, 0.1F));
    views.push_back(
        {{reinterpret_cast<const std::byte*>(masters.back().data()), DType::kF32, {out, in}}});
    forward.push_back(*pack_matrix(views.back(), Compute::kBF16, pool));
    transposed.push_back(*pack_transposed(views.back(), Compute::kBF16, pool));
    parameters += static_cast<double>(out * in);
  };
  for (int layer = 0; layer < 30; ++layer) {
    for (const MatrixShape& s : kLayer) add(s.out, s.in);
  }
  add(49152, 576);
  const double seconds = shortest(5, [&] {
    for (std::size_t i = 0; i < masters.size(); ++i) {
      repack(views[i], forward[i], transposed[i], pool);
    }
  });
  std::printf("repack of %.1f M parameters: %.1f ms\n", parameters * 1e-6, seconds * 1e3);
  report("repack (8 bytes a parameter)", "GB/s", 8e-9 * parameters / seconds,
         1e-9 * limit.read_bytes_per_s);
}

int main_of(int argc, char** argv) {
  const std::string filter = argc > 1 ? argv[1] : "";
  const auto wanted = [&](const char* name) {
    return filter.empty() || std::string(name).find(filter) != std::string::npos;
  };
  ThreadPool pool(argc > 2 ? std::atoi(argv[2]) : 0);
  pool_threads = pool.threads();
  const bench::MachineLimits limit = bench::measure_limits(pool);
  std::printf(
      "{\"isa\": \"%s\", \"threads\": %d, \"bf16_gflops\": %.0f, \"fma_gflops\": %.0f, "
      "\"read_gb_s\": %.1f}\n",
      std::string(to_string(cpu_isa())).c_str(), pool.threads(), 1e-9 * limit.bf16_flops_per_s,
      1e-9 * limit.f32_flops_per_s, 1e-9 * limit.read_bytes_per_s);
  if (wanted("decode")) {
    bench_decode(pool, DType::kF32, Compute::kBF16, "BF16");
    for (DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ4_K, DType::kQ6_K}) {
      bench_decode(pool, type, Compute::kBF16, std::string(to_string(type)).c_str());
      bench_decode(pool, type, Compute::kInt8, (std::string(to_string(type)) + "/int8").c_str());
    }
  }
  if (wanted("product")) bench_products(pool, limit);
  if (wanted("attention")) bench_attention(pool, 1e-9 * limit.f32_flops_per_s);
  if (wanted("rows")) bench_rows(pool, limit);
  if (wanted("repack")) bench_repack(pool, limit);
  return 0;
}

}  // namespace
}  // namespace weft::nn

int main(int argc, char** argv) { return weft::nn::main_of(argc, argv); }
