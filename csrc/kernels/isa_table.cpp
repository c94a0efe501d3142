// Compiled once per instruction set (see CMakeLists.txt) with PAREDOWN_ISA naming it. Everything
// the kernels define has internal linkage and uses no library templates, so that no code built for
// a wide instruction set can be linked into a path that runs on a narrow one.
#define PAREDOWN_SIMD_generic "simd/generic.h"
#define PAREDOWN_SIMD_avx2 "simd/avx2.h"
#define PAREDOWN_SIMD_avx2_vnni "simd/avx2.h"
#define PAREDOWN_SIMD_avx512 "simd/avx512.h"
#define PAREDOWN_SIMD_avx512_bf16 "simd/avx512.h"
#define PAREDOWN_SIMD_amx "simd/amx.h"
#define PAREDOWN_SIMD_neon "simd/neon.h"
#define PAREDOWN_SIMD_neon_dotprod "simd/neon.h"
#define PAREDOWN_SIMD_neon_i8mm "simd/neon.h"
#define PAREDOWN_PASTE(a, b) a##b
#define PAREDOWN_JOIN(a, b) PAREDOWN_PASTE(a, b)
#define PAREDOWN_QUOTE_PLAIN(a) #a
#define PAREDOWN_QUOTE(a) PAREDOWN_QUOTE_PLAIN(a)

#include PAREDOWN_JOIN(PAREDOWN_SIMD_, PAREDOWN_ISA)

#include "kernels/attention/attention.h"
#include "kernels/linear/dispatch.h"
#include "kernels/peak.h"
#include "kernels/weigh.h"

namespace paredown {

extern const KernelTable PAREDOWN_JOIN(kernels_, PAREDOWN_ISA);
const KernelTable PAREDOWN_JOIN(kernels_, PAREDOWN_ISA) = {
    PAREDOWN_QUOTE(PAREDOWN_ISA),
    kPrefersShortBf16,
    kHasBf16Dot ? 2 : 4,
    kLinearForms,
    kNumLinearForms,
    linear_form,
    makes_input,
    linear,
    input_rest,
    finish_split,
    norm,
    prepare_heads,
    write_kv,
    write_page,
    kAttentionForms,
    kNumAttentionForms,
    attend,
    merge,
    activate,
    soft_cap,
    embed,
    largest,
    largest_double,
    weigh_floats,
    weigh_doubles,
    sum,
    block_maxima,
    block_maxima_floats,
    peak_fp32,
    peak_bf16,
    peak_int8,
    read_memory,
};

}  // namespace paredown
