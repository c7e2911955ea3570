#include "weft/nn/isa.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace weft::nn {
namespace {

// Linux grants the 8 KiB of tile registers only on request (since 5.16); see
// Documentation/arch/x86/xstate.rst.
bool request_amx() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::uint64_t enabled_state() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return 0;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

Isa machine_isa() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const std::uint64_t state = enabled_state();
  if ((state & 0x6) != 0x6) return Isa::kScalar;  // ymm registers
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return Isa::kScalar;
  const bool fma = (c & bit_FMA) != 0, f16c = (c & bit_F16C) != 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return Isa::kScalar;
  const bool avx2 = (b & bit_AVX2) != 0;
  if (!avx2 || !fma || !f16c) return Isa::kScalar;
  const unsigned avx512_b = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  const bool avx512 = (b & avx512_b) == avx512_b && (c & (1U << 11)) != 0 &&  // VNNI
                      (c & (1U << 1)) != 0 && (state & 0xe0) == 0xe0;         // VBMI, zmm state
  const bool amx = (d & (1U << 24)) != 0 && (d & (1U << 25)) != 0 && (d & (1U << 22)) != 0 &&
                   (state & 0x60000) == 0x60000;  // tile, int8, bf16, tile state
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return Isa::kAvx2;
  const bool bf16 = (a & (1U << 5)) != 0;
  if (!avx512 || !bf16) return Isa::kAvx2;
  return amx && request_amx() ? Isa::kAmx : Isa::kAvx512;
}

std::optional<Isa> from_string(std::string_view name) {
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (name == to_string(isa)) return isa;
  }
  return std::nullopt;
}

Isa best() {
  static const Isa isa = machine_isa();
  return isa;
}

Isa initial() {
  const char* name = std::getenv("WEFT_ISA");
  if (name == nullptr || *name == '\0') return best();
  const std::optional<Isa> wanted = from_string(name);
  if (!wanted) {
    std::fprintf(stderr, "weft: WEFT_ISA=%s is none of scalar, avx2, avx512, amx; ignored\n", name);
    return best();
  }
  if (*wanted > best()) {
    std::fprintf(stderr, "weft: WEFT_ISA=%s is above this machine's %s; ignored\n", name,
                 std::string(to_string(best())).c_str());
    return best();
  }
  return *wanted;
}

std::atomic<Isa>& current() {
  static std::atomic<Isa> isa{initial()};
  return isa;
}

}  // namespace

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

Isa cpu_isa() { return current().load(std::memory_order_relaxed); }

Status set_isa(Isa isa) {
  if (isa > best()) {
    return fail(ErrorCode::kUnsupported, "this machine has no {}, only {}", to_string(isa),
                to_string(best()));
  }
  current().store(isa, std::memory_order_relaxed);
  return {};
}

}  // namespace weft::nn
