// 16 lanes in four NEON registers. With __ARM_FEATURE_DOTPROD sums of byte products are one
// instruction, with __ARM_FEATURE_MATMUL_INT8 they also take unsigned weights, and with
// __ARM_FEATURE_BF16_VECTOR_ARITHMETIC the bf16 dot product is native.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "simd/two_by_two.h"

namespace paredown {
namespace {

struct F32x16 {
  float32x4_t v[4];
};
struct I32x16 {
  int32x4_t v[4];
};
struct U8x64 {
  uint8x16_t v[4];
};

// Sums that grow side by side where peaks are measured: no more than the registers hold.
constexpr int kPeakChains = 6;
// Query rows that attention takes through a pass over the keys.
constexpr int kAttentionRows = 4;
constexpr int kAttentionSums = 4;  // of rows by vectors
// Group sums are read as the bits of floats.
constexpr bool kReadsBits = false;
// Up to this many tokens codes are decoded in registers; for more, once to memory.
constexpr int kFewTokens = 8;
constexpr int kFewTokensShortRows = 8;
constexpr int kFewTokensShortGroups = 8;
constexpr int kFewTokensSteps = kFewTokens;
// Products of codes below 8 bits are made differently.
#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr bool kHasSmallDot = false;
#else
constexpr bool kHasSmallDot = true;
#endif
// dot4 of 8-bit codes costs no more than a float product.
#if defined(__ARM_FEATURE_DOTPROD)
constexpr bool kHasByteDot = true;
#else
constexpr bool kHasByteDot = false;
#endif

template <class Result, class Function, class... Operands>
inline Result each_register(Function function, const Operands&... operands) {
  return {function(operands.v[0]...), function(operands.v[1]...), function(operands.v[2]...),
          function(operands.v[3]...)};
}

inline F32x16 set_f(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
inline F32x16 zero_f() { return set_f(0.0f); }
inline F32x16 load_f(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
inline void store_f(float* p, F32x16 a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
// Sets that can store past the caches do.
inline void stream_f(float* p, F32x16 a) { store_f(p, a); }
inline void stream_fence() {}
inline F32x16 add(F32x16 a, F32x16 b) {
  return each_register<F32x16>([](float32x4_t x, float32x4_t y) { return vaddq_f32(x, y); }, a, b);
}
inline F32x16 sub(F32x16 a, F32x16 b) {
  return each_register<F32x16>([](float32x4_t x, float32x4_t y) { return vsubq_f32(x, y); }, a, b);
}
inline F32x16 mul(F32x16 a, F32x16 b) {
  return each_register<F32x16>([](float32x4_t x, float32x4_t y) { return vmulq_f32(x, y); }, a, b);
}
inline F32x16 div(F32x16 a, F32x16 b) {
  return each_register<F32x16>([](float32x4_t x, float32x4_t y) { return vdivq_f32(x, y); }, a, b);
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return each_register<F32x16>(
      [](float32x4_t x, float32x4_t y, float32x4_t z) { return vfmaq_f32(z, x, y); }, a, b, c);
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return each_register<F32x16>([](float32x4_t x, float32x4_t y) { return vmaxq_f32(x, y); }, a, b);
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return each_register<F32x16>([](float32x4_t x, float32x4_t y) { return vminq_f32(x, y); }, a, b);
}
inline F32x16 abs(F32x16 a) {
  return each_register<F32x16>([](float32x4_t x) { return vabsq_f32(x); }, a);
}
inline F32x16 select_less(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
  return each_register<F32x16>([](float32x4_t x4, float32x4_t y4, float32x4_t a4,
                                  float32x4_t b4) { return vbslq_f32(vcltq_f32(x4, y4), a4, b4); },
                               x, y, a, b);
}
// The tree of the other sets: lane i with i + 8, then i + 4, i + 2, i + 1.
inline float sum_lanes(F32x16 a) {
  const float32x4_t quarter = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t eighth = vadd_f32(vget_low_f32(quarter), vget_high_f32(quarter));
  return vget_lane_f32(vpadd_f32(eighth, eighth), 0);
}
inline float max_lanes(F32x16 a) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[1]), vmaxq_f32(a.v[2], a.v[3])));
}

inline F32x16 load_fp16(const uint16_t* p) {
  auto quarter = [p](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); };
  return {quarter(0), quarter(1), quarter(2), quarter(3)};
}
inline F32x16 load_bf16(const uint16_t* p) {
  auto quarter = [p](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); };
  return {quarter(0), quarter(1), quarter(2), quarter(3)};
}
// Round to nearest even.
inline void store_bf16(uint16_t* p, F32x16 a) {
  for (int i = 0; i < 4; ++i) {
    const uint32x4_t bits = vreinterpretq_u32_f32(a.v[i]);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd);
    vst1_u16(p + 4 * i, vshrn_n_u32(rounded, 16));
  }
}

inline I32x16 set_i(int32_t x) {
  const int32x4_t v = vdupq_n_s32(x);
  return {v, v, v, v};
}
inline I32x16 zero_i() { return set_i(0); }
inline I32x16 load_i(const void* p) {
  const auto* bytes = static_cast<const uint8_t*>(p);
  auto quarter = [bytes](int i) { return vreinterpretq_s32_u8(vld1q_u8(bytes + 16 * i)); };
  return {quarter(0), quarter(1), quarter(2), quarter(3)};
}
inline I32x16 add(I32x16 a, I32x16 b) {
  return each_register<I32x16>([](int32x4_t x, int32x4_t y) { return vaddq_s32(x, y); }, a, b);
}
inline I32x16 mul(I32x16 a, I32x16 b) {
  return each_register<I32x16>([](int32x4_t x, int32x4_t y) { return vmulq_s32(x, y); }, a, b);
}
inline I32x16 max(I32x16 a, I32x16 b) {
  return each_register<I32x16>([](int32x4_t x, int32x4_t y) { return vmaxq_s32(x, y); }, a, b);
}
inline I32x16 min(I32x16 a, I32x16 b) {
  return each_register<I32x16>([](int32x4_t x, int32x4_t y) { return vminq_s32(x, y); }, a, b);
}
inline I32x16 load_u8_as_i32(const uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
  const uint16x8_t high = vmovl_u8(vget_high_u8(bytes));
  return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
          vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
          vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
          vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))};
}
inline void store_i(void* p, I32x16 a) {
  auto* bytes = static_cast<uint8_t*>(p);
  for (int i = 0; i < 4; ++i) vst1q_u8(bytes + 16 * i, vreinterpretq_u8_s32(a.v[i]));
}
inline I32x16 bit_and(I32x16 a, I32x16 b) {
  return each_register<I32x16>([](int32x4_t x, int32x4_t y) { return vandq_s32(x, y); }, a, b);
}
inline I32x16 bit_or(I32x16 a, I32x16 b) {
  return each_register<I32x16>([](int32x4_t x, int32x4_t y) { return vorrq_s32(x, y); }, a, b);
}
template <int kShift>
inline I32x16 shift_left(I32x16 a) {
  return each_register<I32x16>([](int32x4_t x) { return vshlq_n_s32(x, kShift); }, a);
}
template <int kShift>
inline int32x4_t shift_right(int32x4_t a) {
  // The instruction shifts by 1 to 32.
  if constexpr (kShift == 0) return a;
  return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), kShift == 0 ? 1 : kShift));
}
template <int kShift>
inline I32x16 shift_right(I32x16 a) {
  return each_register<I32x16>([](int32x4_t x) { return shift_right<kShift>(x); }, a);
}
inline F32x16 bits_as_float(I32x16 a) {
  return each_register<F32x16>([](int32x4_t x) { return vreinterpretq_f32_s32(x); }, a);
}
inline I32x16 float_bits(F32x16 a) {
  return each_register<I32x16>([](float32x4_t x) { return vreinterpretq_s32_f32(x); }, a);
}
inline int32_t max_lanes(I32x16 a) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3])));
}
inline int32_t sum_lanes(I32x16 a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}
inline F32x16 to_float(I32x16 a) {
  return each_register<F32x16>([](int32x4_t x) { return vcvtq_f32_s32(x); }, a);
}
// Round to nearest even.
inline I32x16 to_int(F32x16 a) {
  return each_register<I32x16>([](float32x4_t x) { return vcvtnq_s32_f32(x); }, a);
}
inline void store_i8(int8_t* p, I32x16 a) {
  const int16x8_t low = vcombine_s16(vqmovn_s32(a.v[0]), vqmovn_s32(a.v[1]));
  const int16x8_t high = vcombine_s16(vqmovn_s32(a.v[2]), vqmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
}
// a * 2^n for results that stay normal.
inline F32x16 scale_by_power(F32x16 a, I32x16 n) {
  return each_register<F32x16>(
      [](float32x4_t x, int32x4_t power) {
        return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x), vshlq_n_s32(power, 23)));
      },
      a, n);
}

inline U8x64 load_u8(const uint8_t* p) {
  return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
}
inline void store_u8(uint8_t* p, U8x64 a) {
  for (int i = 0; i < 4; ++i) vst1q_u8(p + 16 * i, a.v[i]);
}
inline U8x64 set_u8(uint8_t x) {
  const uint8x16_t v = vdupq_n_u8(x);
  return {v, v, v, v};
}
inline U8x64 sub(U8x64 a, U8x64 b) {
  return each_register<U8x64>([](uint8x16_t x, uint8x16_t y) { return vsubq_u8(x, y); }, a, b);
}
// 32 bytes as 64 codes of four bits: the low nibbles, then the high ones.
inline U8x64 load_nibbles(const uint8_t* p) {
  const uint8x16_t first = vld1q_u8(p);
  const uint8x16_t second = vld1q_u8(p + 16);
  const uint8x16_t mask = vdupq_n_u8(0x0F);
  return {vandq_u8(first, mask), vandq_u8(second, mask), vshrq_n_u8(first, 4),
          vshrq_n_u8(second, 4)};
}
// Bytes of 16 rows, each four times: what belongs to a row at its place in a quad of columns.
inline U8x64 repeat_4(const uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint8x16_t twice[2] = {vzip1q_u8(bytes, bytes), vzip2q_u8(bytes, bytes)};
  return {vzip1q_u8(twice[0], twice[0]), vzip2q_u8(twice[0], twice[0]),
          vzip1q_u8(twice[1], twice[1]), vzip2q_u8(twice[1], twice[1])};
}
// Bytes of 16 rows in the form that multiply_add_codes takes factors in.
inline U8x64 step_factors(const uint8_t* p) { return repeat_4(p); }
// codes * factors + offsets in every byte; products and sums fit a byte.
inline U8x64 multiply_add_codes(U8x64 codes, U8x64 factors, U8x64 offsets) {
  return each_register<U8x64>([](uint8x16_t code, uint8x16_t factor,
                                 uint8x16_t offset) { return vmlaq_u8(offset, code, factor); },
                              codes, factors, offsets);
}
// kBits bits of every byte, from bit kFirst on.
template <int kFirst, int kBits>
inline U8x64 bit_field(U8x64 a) {
  return each_register<U8x64>(
      [](uint8x16_t x) {
        // The instruction shifts by 1 to 8.
        if constexpr (kFirst > 0) x = vshrq_n_u8(x, kFirst > 0 ? kFirst : 1);
        return vandq_u8(x, vdupq_n_u8((1 << kBits) - 1));
      },
      a);
}
// a | b << kShift in every byte; nothing may be shifted out of a byte.
template <int kShift>
inline U8x64 or_shifted(U8x64 a, U8x64 b) {
  return each_register<U8x64>(
      [](uint8x16_t x, uint8x16_t y) { return vorrq_u8(x, vshlq_n_u8(y, kShift)); }, a, b);
}
// The bytes of a table of 16 at the places that codes of four bits name.
inline U8x64 look_up(const uint8_t* table, U8x64 codes) {
  const uint8x16_t bytes = vld1q_u8(table);
  return each_register<U8x64>([bytes](uint8x16_t x) { return vqtbl1q_u8(bytes, x); }, codes);
}
// Byte kByte of every four.
template <int kByte>
inline I32x16 byte_of(U8x64 a) {
  return each_register<I32x16>(
      [](uint8x16_t x) {
        const int32x4_t shifted = shift_right<8 * kByte>(vreinterpretq_s32_u8(x));
        return vandq_s32(shifted, vdupq_n_s32(0xFF));
      },
      a);
}

template <int kByte>
inline I32x16 signed_byte_of(U8x64 a) {
  return each_register<I32x16>(
      [](uint8x16_t x) {
        const int32x4_t words = vreinterpretq_s32_u8(x);
        return vshrq_n_s32(vshlq_n_s32(words, 24 - 8 * kByte), 24);
      },
      a);
}

// Sums of four products of signed bytes, added to acc.
inline int32x4_t dot4_signed(int32x4_t acc, int8x16_t w, int8x16_t x) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(acc, w, x);
#else
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
  const int32x4_t high = vpaddlq_s16(vmull_high_s8(w, x));
  // In assembler as in avx2.h, where it was measured.
  asm("add %0.4s, %0.4s, %1.4s" : "+w"(acc) : "w"(vpaddq_s32(low, high)));
  return acc;
#endif
}
// acc[i] += sum over j < 4 of w[4 i + j] * x[j]; `x` holds the same four signed bytes in each lane.
template <int kBits>
inline I32x16 dot4(I32x16 acc, U8x64 w, I32x16 x) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return each_register<I32x16>(
      [](int32x4_t sum, uint8x16_t weights, int32x4_t codes) {
        return vusdotq_s32(sum, weights, vreinterpretq_s8_s32(codes));
      },
      acc, w, x);
#else
  const int8x16_t codes = vreinterpretq_s8_s32(x.v[0]);
  if constexpr (kBits < 8) {
    return each_register<I32x16>(
        [codes](int32x4_t sum, uint8x16_t weights) {
          return dot4_signed(sum, vreinterpretq_s8_u8(weights), codes);
        },
        acc, w);
  } else {
    // w = (w ^ 128 as a signed byte) + 128, so 128 times the sum of x is still to be added:
    // subtracting its product with -128 is exact in int32.
    const int32x4_t minus_rest = dot4_signed(vdupq_n_s32(0), vdupq_n_s8(-128), codes);
    return each_register<I32x16>(
        [codes, minus_rest](int32x4_t sum, uint8x16_t weights) {
          const int8x16_t shifted = vreinterpretq_s8_u8(veorq_u8(weights, vdupq_n_u8(0x80)));
          return dot4_signed(vsubq_s32(sum, minus_rest), shifted, codes);
        },
        acc, w);
  }
#endif
}

}  // namespace
}  // namespace paredown

#include "simd/neon_bf16.h"
