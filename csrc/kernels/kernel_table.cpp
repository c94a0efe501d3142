#include "kernels/kernel_table.h"

namespace paredown {

extern const KernelTable kernels_generic;
#if defined(__x86_64__)
extern const KernelTable kernels_avx2;
extern const KernelTable kernels_avx2_vnni;
extern const KernelTable kernels_avx512;
extern const KernelTable kernels_avx512_bf16;
extern const KernelTable kernels_amx;
#elif defined(__aarch64__)
extern const KernelTable kernels_neon;
extern const KernelTable kernels_neon_dotprod;
extern const KernelTable kernels_neon_i8mm;
#endif

const KernelTable& kernel_table(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return kernels_avx2;
    case Isa::kAvx2Vnni:
      return kernels_avx2_vnni;
    case Isa::kAvx512:
      return kernels_avx512;
    case Isa::kAvx512Bf16:
      return kernels_avx512_bf16;
    case Isa::kAmx:
      return kernels_amx;
#elif defined(__aarch64__)
    case Isa::kNeon:
      return kernels_neon;
    case Isa::kNeonDotprod:
      return kernels_neon_dotprod;
    case Isa::kNeonI8mm:
      return kernels_neon_i8mm;
#endif
    default:
      return kernels_generic;
  }
}

}  // namespace paredown
