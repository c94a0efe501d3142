#include "isa.h"

#include <stdexcept>

namespace paredown {
namespace {

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
  }
  return "unknown";
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> found;
  for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
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
