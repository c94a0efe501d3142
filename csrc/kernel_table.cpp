#include "kernels.h"

namespace paredown {

extern const KernelTable kernels_generic;
#if defined(__x86_64__)
extern const KernelTable kernels_avx2;
extern const KernelTable kernels_avx512;
extern const KernelTable kernels_avx512_bf16;
extern const KernelTable kernels_amx;
#endif

const KernelTable& kernel_table(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAvx2:
      return kernels_avx2;
    case Isa::kAvx512:
      return kernels_avx512;
    case Isa::kAvx512Bf16:
      return kernels_avx512_bf16;
    case Isa::kAmx:
      return kernels_amx;
    case Isa::kGeneric:
      break;
  }
#else
  (void)isa;
#endif
  return kernels_generic;
}

}  // namespace paredown
