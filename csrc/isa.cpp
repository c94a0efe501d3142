#include "isa.h"

#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace paredown {
namespace {

#if defined(__x86_64__)
// Tiles of int8 and bf16, and the system's leave to use them: Linux keeps the 8 KB of tile state
// per thread only for a process that asked (arch_prctl, ARCH_REQ_XCOMP_PERM).
bool tiles_are_granted() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22;
  constexpr unsigned kTile = 1u << 24;
  constexpr unsigned kInt8 = 1u << 25;
  constexpr unsigned kAll = kBf16 | kTile | kInt8;
  if ((edx & kAll) != kAll) return false;
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

bool processor_has(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kGeneric:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512vnni");
    case Isa::kAvx512Bf16:
      return processor_has(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16");
    case Isa::kAmx:
      return processor_has(Isa::kAvx512Bf16) && tiles_are_granted();
  }
  return false;
#else
  return isa == Isa::kGeneric;
#endif
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return "generic";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> found;
  for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    if (processor_has(isa)) found.push_back(isa);
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
