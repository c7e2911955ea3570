// weft bench run codecs: vectors of f32 to frames and back, on one thread.
#include <chrono>

#include "bench/bench.h"
#include "weft/base/rng.h"
#include "weft/comm/codec.h"

namespace weft::bench {
namespace {

constexpr std::size_t kValues = std::size_t{16} << 20;  // 64 MiB, more than a core's caches
constexpr double kGigabytes = 4e-9 * static_cast<double>(kValues);

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// The limit is one thread's streaming reads: 4 bytes of each value, and what a frame takes
// of them. Top-K reads the values twice, for the threshold and for the places.
Status run_codecs(const BenchOptions& options, ThreadPool& /*pool*/, const Report& report) {
  ThreadPool one(1);
  const MachineLimits limits = measure_limits(one);
  std::vector<float> x(kValues), out(kValues);
  const Rng rng(1, RngUse::kTest);
  for (std::size_t i = 0; i < kValues; ++i) {  // cubes: heavy tails, as gradients have
    const float u = rng.uniform(i) - 0.5F;
    x[i] = u * u * u;
  }
  const struct {
    const char* name;
    comm::CodecSpec spec;
    double reads;
  } codecs[] = {
      {"int8/block=128", {.kind = comm::CodecKind::kInt8}, 1},
      {"fp8/block=128", {.kind = comm::CodecKind::kFp8}, 1},
      {"top-k/fraction=0.01", {.kind = comm::CodecKind::kTopK, .fraction = 0.01}, 2},
      {"random-k/fraction=0.01", {.kind = comm::CodecKind::kRandomK, .fraction = 0.01}, 1},
      {"powersgd/rank=4", {.kind = comm::CodecKind::kPowerSgd, .rows = 4096}, 2},
      {"lossless", {.kind = comm::CodecKind::kLossless}, 1},
  };
  for (const auto& codec : codecs) {
    comm::Encoder encoder(codec.spec);
    std::vector<std::byte> frame;
    for (const bool decodes : {false, true}) {
      Case bench_case;
      bench_case.name = fmt::format("{}/{}", codec.name, decodes ? "decode" : "encode");
      bench_case.unit = "GB/s";
      if (bench_case.name.find(options.only) == std::string::npos) continue;
      WEFT_TRY(encoder.encode(x, 0, frame));
      const double bytes = (decodes ? 1 : codec.reads) * 4.0 * static_cast<double>(kValues) +
                           static_cast<double>(frame.size());
      bench_case.limit = kGigabytes / (bytes / limits.read_bytes_per_s);
      std::uint64_t step = 0;
      bench_case.ours = [&]() -> Result<double> {
        const auto begin = std::chrono::steady_clock::now();
        if (decodes) {
          WEFT_TRY(comm::decode(frame, out));
        } else {
          WEFT_TRY(encoder.encode(x, ++step, frame));
        }
        return kGigabytes / seconds_since(begin);
      };
      WEFT_ASSIGN(const CaseResult result, run_case(bench_case, options.rounds));
      report(result);
    }
  }
  return {};
}

}  // namespace weft::bench
