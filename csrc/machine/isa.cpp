#include "machine/isa.h"

#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace paredown {
namespace {

#if defined(__x86_64__)

struct CpuidLeaf {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
};

CpuidLeaf cpuid_leaf(unsigned leaf, unsigned subleaf) {
  CpuidLeaf found;
  if (__get_cpuid_count(leaf, subleaf, &found.eax, &found.ebx, &found.ecx, &found.edx) == 0) {
    return {};
  }
  return found;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx_vnni() {
  constexpr unsigned kAvxVnni = 1u << 4;
  return (cpuid_leaf(7, 1).eax & kAvxVnni) != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

bool has_newer_avx512() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("gfni");
}

bool has_tiles() {
  constexpr unsigned kBf16 = 1u << 22;
  constexpr unsigned kTile = 1u << 24;
  constexpr unsigned kInt8 = 1u << 25;
  constexpr unsigned kAll = kBf16 | kTile | kInt8;
  return (cpuid_leaf(7, 0).edx & kAll) == kAll;
}

// Linux keeps the 8 KB of tile state per thread only for a process that asked (arch_prctl,
// ARCH_REQ_XCOMP_PERM).
bool tiles_are_granted() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

#elif defined(__aarch64__)

// Bits of the kernel's ABI (Documentation/arch/arm64/elf_hwcaps.rst); older headers lack some.
constexpr unsigned long kHwcapDotprod = 1ul << 20;
constexpr unsigned long kHwcap2I8mm = 1ul << 13;
constexpr unsigned long kHwcap2Bf16 = 1ul << 14;

bool has_dotprod() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & kHwcapDotprod) != 0;
#else
  return false;
#endif
}

bool has_i8mm_and_bf16() {
#if defined(__linux__)
  constexpr unsigned long kBoth = kHwcap2I8mm | kHwcap2Bf16;
  return (getauxval(AT_HWCAP2) & kBoth) == kBoth;
#else
  return false;
#endif
}

#endif

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return "generic";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx2Vnni:
      return "avx2_vnni";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAmx:
      return "amx";
    case Isa::kNeon:
      return "neon";
    case Isa::kNeonDotprod:
      return "neon_dotprod";
    case Isa::kNeonI8mm:
      return "neon_i8mm";
  }
  return "unknown";
}

std::vector<Isa> known_isas() {
#if defined(__x86_64__)
  return {Isa::kGeneric, Isa::kAvx2, Isa::kAvx2Vnni, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx};
#elif defined(__aarch64__)
  return {Isa::kGeneric, Isa::kNeon, Isa::kNeonDotprod, Isa::kNeonI8mm};
#else
  return {Isa::kGeneric};
#endif
}

std::string why_unavailable(Isa isa) {
  if (isa == Isa::kGeneric) return "";
#if defined(__x86_64__)
  if (!has_avx2()) return "the processor lacks AVX2, FMA or F16C";
  if (isa == Isa::kAvx2) return "";
  if (isa == Isa::kAvx2Vnni) return has_avx_vnni() ? "" : "the processor lacks AVX-VNNI";
  if (!has_avx512()) return "the processor lacks AVX-512 F, BW, DQ, VL or VNNI";
  if (isa == Isa::kAvx512) return "";
  if (!has_newer_avx512()) return "the processor lacks AVX-512 BF16, VBMI, VBMI2 or GFNI";
  if (isa == Isa::kAvx512Bf16) return "";
  if (isa == Isa::kAmx) {
    if (!has_tiles()) return "the processor lacks AMX int8 or bf16";
    return tiles_are_granted() ? "" : "the system did not grant the tile state of AMX";
  }
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return "";  // part of the base architecture
  if (isa == Isa::kNeonDotprod || isa == Isa::kNeonI8mm) {
    if (!has_dotprod()) return "the processor lacks the dot product (DotProd)";
    if (isa == Isa::kNeonDotprod) return "";
    return has_i8mm_and_bf16() ? "" : "the processor lacks I8MM or BF16";
  }
#endif
  return "this build has no kernels for it";
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> found;
  for (Isa isa : known_isas()) {
    if (why_unavailable(isa).empty()) found.push_back(isa);
  }
  return found;
}

Isa choose_isa(const std::string& name) {
  const std::vector<Isa> supported = supported_isas();
  if (name.empty()) return supported.back();
  std::string names;
  for (Isa isa : supported) {
    if (name == isa_name(isa)) return isa;
    names += std::string(names.empty() ? "" : ", ") + isa_name(isa);
  }
  throw std::invalid_argument("instruction set '" + name +
                              "' is unknown or not supported by this processor; it has: " + names);
}

}  // namespace paredown
