// bf16 pairs: their products, and what becomes them. Included by neon.h.
#pragma once

#include "simd/fp8_subnormals.h"

namespace paredown {
namespace {

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define PAREDOWN_HAS_BF16_DOT 1
constexpr bool kPrefersShortBf16 = false;
// acc[i] += sum over j < 2 of w[2 i + j] * x[j] in bf16 pairs. bfdot rounds to odd and flushes
// denormals, so its last bits differ from those of the x86 instruction
// (docs/internals/instruction-sets.md).
inline F32x16 dot_bf16(F32x16 acc, I32x16 w, uint32_t x) {
  const uint32x4_t pairs = vdupq_n_u32(x);
  for (int i = 0; i < 4; ++i) {
    // Not vbfdotq_f32: GCC 12 writes a bf16 constant as the fp16 one of the same value.
    asm("bfdot %0.4s, %1.8h, %2.8h" : "+w"(acc.v[i]) : "w"(w.v[i]), "w"(pairs));
  }
  return acc;
}
#else
constexpr bool kPrefersShortBf16 = false;
#endif
// Exponents that bf16 numbers name in four bits.
struct ShortExponents {
  uint8x16_t v;
};
inline ShortExponents load_exponents(const uint8_t* p) { return {vld1q_u8(p)}; }
// The exponents of a quad of pairs, by their names of four bits.
struct QuadExponents {
  I32x16 names;
  ShortExponents exponents;
};
inline QuadExponents quad_exponents(const uint8_t* names, ShortExponents exponents) {
  return {load_i(names), exponents};
}
// The pairs of 16 rows from their signs and mantissas, a byte each.
template <int kPlace>
inline I32x16 widen_bf16(const uint8_t* bytes, const QuadExponents& quad) {
  I32x16 pairs;
  for (int i = 0; i < 4; ++i) {
    const uint16x8_t wide =
        vreinterpretq_u16_s16(vmovl_s8(vld1_s8(reinterpret_cast<const int8_t*>(bytes + 8 * i))));
    const uint16x8_t shifted =
        vshlq_u16(vreinterpretq_u16_s32(quad.names.v[i]), vdupq_n_s16(-4 * kPlace));
    // An index beyond the table finds a zero: so do all upper bytes.
    const uint16x8_t index =
        vorrq_u16(vandq_u16(shifted, vdupq_n_u16(0x000F)), vdupq_n_u16(0xFF00));
    const uint16x8_t found =
        vreinterpretq_u16_u8(vqtbl1q_u8(quad.exponents.v, vreinterpretq_u8_u16(index)));
    pairs.v[i] = vreinterpretq_s32_u16(
        vorrq_u16(vandq_u16(wide, vdupq_n_u16(0x807F)), vshlq_n_u16(found, 7)));
  }
  return pairs;
}

// The even and odd columns of bf16 pairs, as float.
inline F32x16 even_bf16(I32x16 pairs) {
  return each_register<F32x16>(
      [](int32x4_t x) { return vreinterpretq_f32_s32(vshlq_n_s32(x, 16)); }, pairs);
}
inline F32x16 odd_bf16(I32x16 pairs) {
  return each_register<F32x16>(
      [](int32x4_t x) {
        const uint32x4_t mask = vdupq_n_u32(0xFFFF0000u);
        return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_s32(x), mask));
      },
      pairs);
}

// fp8 codes as bf16: the even bytes' and the odd bytes' numbers.
inline void bf16_from_fp8(U8x64 codes, I32x16& even, I32x16& odd) {
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t code = codes.v[i];
    const uint8x16_t magnitude = vandq_u8(code, vdupq_n_u8(0x7F));
    const uint8x16_t subnormal = vcltq_u8(magnitude, vdupq_n_u8(8));
    const uint8x16_t exponent = vandq_u8(vshrq_n_u8(code, 4), vdupq_n_u8(7));
    const uint8x16_t low =
        vbslq_u8(subnormal, vqtbl1q_u8(vld1q_u8(kSubnormalLow), magnitude), vshlq_n_u8(code, 4));
    uint8x16_t high = vbslq_u8(subnormal, vqtbl1q_u8(vld1q_u8(kSubnormalHigh), magnitude),
                               vaddq_u8(exponent, vdupq_n_u8(kNormalHigh)));
    high = vorrq_u8(high, vandq_u8(code, vdupq_n_u8(0x80)));
    even.v[i] = vreinterpretq_s32_u8(vtrn1q_u8(low, high));
    odd.v[i] = vreinterpretq_s32_u8(vtrn2q_u8(low, high));
  }
}

}  // namespace
}  // namespace paredown
