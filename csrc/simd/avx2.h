// 16 lanes in two AVX2 registers (AVX2, FMA, F16C). With __AVXVNNI__ the dot product of bytes is
// one instruction.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "simd/two_by_two.h"

namespace paredown {
namespace {

struct F32x16 {
  __m256 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};
struct U8x64 {
  __m256i lo, hi;
};

// Sums that grow side by side where peaks are measured: no more than the registers hold.
constexpr int kPeakChains = 6;
// Query rows that attention takes through a pass over the keys.
constexpr int kAttentionRows = 4;
constexpr int kAttentionSums = 4;  // of rows by vectors
// Group sums are read as the bits of floats.
constexpr bool kReadsBits = true;
// Up to so many tokens codes are decoded in registers; for more, once to memory (without AVX-VNNI
// measured on AMD Zen 4, docs/log.md 2026-11-25). Products of codes below 8 bits are made
// differently; dot4 of 8-bit codes costs no more than a float product.
#if defined(__AVXVNNI__)
constexpr int kFewTokens = 8;
constexpr int kFewTokensShortRows = 8;
constexpr int kFewTokensShortGroups = 8;
constexpr int kFewTokensSteps = 8;
constexpr bool kHasSmallDot = false;
constexpr bool kHasByteDot = true;
#else
constexpr int kFewTokens = 16;
constexpr int kFewTokensShortRows = 8;
constexpr int kFewTokensShortGroups = 12;
constexpr int kFewTokensSteps = 4;
constexpr bool kHasSmallDot = true;
constexpr bool kHasByteDot = false;
#endif

inline F32x16 zero_f() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 set_f(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 load_f(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store_f(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
// Past the caches, to 64-byte aligned memory; stream_fence makes it visible to other threads.
inline void stream_f(float* p, F32x16 a) {
  _mm256_stream_ps(p, a.lo);
  _mm256_stream_ps(p + 8, a.hi);
}
inline void stream_fence() { _mm_sfence(); }
inline F32x16 add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline F32x16 sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline F32x16 mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline F32x16 div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline F32x16 abs(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline F32x16 select_less(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, y.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, y.hi, _CMP_LT_OQ))};
}
inline float sum_lanes(F32x16 a) {
  const __m256 half = _mm256_add_ps(a.lo, a.hi);
  __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}
inline float max_lanes(F32x16 a) {
  const __m256 half = _mm256_max_ps(a.lo, a.hi);
  __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  quarter = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_movehdup_ps(quarter)));
}

inline __m128i load_128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline F32x16 load_fp16(const uint16_t* p) {
  return {_mm256_cvtph_ps(load_128(p)), _mm256_cvtph_ps(load_128(p + 8))};
}
inline F32x16 load_bf16(const uint16_t* p) {
  const __m256i lo = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p)), 16);
  const __m256i hi = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p + 8)), 16);
  return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)};
}
inline __m256i round_to_bf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(_mm256_set1_epi32(0x7FFF), odd);
  return _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
}
inline void store_bf16(uint16_t* p, F32x16 a) {
  const __m256i packed = _mm256_packus_epi32(round_to_bf16(a.lo), round_to_bf16(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
}

inline I32x16 zero_i() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I32x16 set_i(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I32x16 load_i(const void* p) {
  const auto* words = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
}
inline I32x16 add(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline I32x16 mul(I32x16 a, I32x16 b) {
  return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
}
inline I32x16 max(I32x16 a, I32x16 b) {
  return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
inline I32x16 min(I32x16 a, I32x16 b) {
  return {_mm256_min_epi32(a.lo, b.lo), _mm256_min_epi32(a.hi, b.hi)};
}
inline I32x16 load_u8_as_i32(const uint8_t* p) {
  const __m128i bytes = load_128(p);
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
inline void store_i(void* p, I32x16 a) {
  auto* words = static_cast<__m256i*>(p);
  _mm256_storeu_si256(words, a.lo);
  _mm256_storeu_si256(words + 1, a.hi);
}
inline I32x16 bit_and(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline I32x16 bit_or(I32x16 a, I32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
template <int kShift>
inline I32x16 shift_left(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, kShift), _mm256_slli_epi32(a.hi, kShift)};
}
template <int kShift>
inline I32x16 shift_right(I32x16 a) {
  return {_mm256_srli_epi32(a.lo, kShift), _mm256_srli_epi32(a.hi, kShift)};
}
inline F32x16 bits_as_float(I32x16 a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
inline I32x16 float_bits(F32x16 a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
inline int32_t max_lanes(I32x16 a) {
  const __m256i half = _mm256_max_epi32(a.lo, a.hi);
  __m128i quarter = _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  quarter = _mm_max_epi32(quarter, _mm_shuffle_epi32(quarter, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(quarter, _mm_shuffle_epi32(quarter, 0xB1)));
}
inline int32_t sum_lanes(I32x16 a) {
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(a.lo, a.hi));
  int32_t total = 0;
  for (int32_t lane : lanes) total += lane;
  return total;
}
inline F32x16 to_float(I32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline I32x16 to_int(F32x16 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline void store_i8(int8_t* p, I32x16 a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xD8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
inline F32x16 scale_by_power(F32x16 a, I32x16 n) {
  return {
      _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.lo), _mm256_slli_epi32(n.lo, 23))),
      _mm256_castsi256_ps(
          _mm256_add_epi32(_mm256_castps_si256(a.hi), _mm256_slli_epi32(n.hi, 23)))};
}

inline U8x64 load_u8(const uint8_t* p) {
  const auto* words = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
}
inline void store_u8(uint8_t* p, U8x64 a) {
  auto* words = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(words, a.lo);
  _mm256_storeu_si256(words + 1, a.hi);
}
inline U8x64 set_u8(uint8_t x) {
  const __m256i v = _mm256_set1_epi8(static_cast<char>(x));
  return {v, v};
}
inline U8x64 sub(U8x64 a, U8x64 b) {
  return {_mm256_sub_epi8(a.lo, b.lo), _mm256_sub_epi8(a.hi, b.hi)};
}
// 32 bytes as 64 codes of four bits: the low nibbles, then the high ones.
inline U8x64 load_nibbles(const uint8_t* p) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i mask = _mm256_set1_epi8(0x0F);
  return {_mm256_and_si256(bytes, mask), _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask)};
}
// Bytes of 16 rows, each four times: what belongs to a row at its place in a quad of columns.
inline U8x64 repeat_4(const uint8_t* p) {
  const __m256i bytes = _mm256_broadcastsi128_si256(load_128(p));
  const __m256i lanes = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
  const __m256i index = _mm256_mullo_epi32(lanes, _mm256_set1_epi32(0x01010101));
  const __m256i later = _mm256_add_epi8(index, _mm256_set1_epi8(8));
  return {_mm256_shuffle_epi8(bytes, index), _mm256_shuffle_epi8(bytes, later)};
}
// Bytes of 16 rows in the form that multiply_add_codes takes factors in: 16-bit lanes.
inline U8x64 step_factors(const uint8_t* p) {
  const U8x64 bytes = repeat_4(p);
  const __m256i even = _mm256_set1_epi16(0x00FF);
  return {_mm256_and_si256(bytes.lo, even), _mm256_and_si256(bytes.hi, even)};
}
// codes * factors + offsets in every byte; products and sums fit a byte, so that a 16-bit product
// is those of two codes.
inline U8x64 multiply_add_codes(U8x64 codes, U8x64 factors, U8x64 offsets) {
  return {_mm256_add_epi8(_mm256_mullo_epi16(codes.lo, factors.lo), offsets.lo),
          _mm256_add_epi8(_mm256_mullo_epi16(codes.hi, factors.hi), offsets.hi)};
}
// kBits bits of every byte, from bit kFirst on.
template <int kFirst, int kBits>
inline U8x64 bit_field(U8x64 a) {
  const __m256i mask = _mm256_set1_epi8((1 << kBits) - 1);
  return {_mm256_and_si256(_mm256_srli_epi16(a.lo, kFirst), mask),
          _mm256_and_si256(_mm256_srli_epi16(a.hi, kFirst), mask)};
}
// a | b << kShift in every byte; nothing may be shifted out of a byte.
template <int kShift>
inline U8x64 or_shifted(U8x64 a, U8x64 b) {
  return {_mm256_or_si256(a.lo, _mm256_slli_epi16(b.lo, kShift)),
          _mm256_or_si256(a.hi, _mm256_slli_epi16(b.hi, kShift))};
}
// The bytes of a table of 16 at the places that codes of four bits name.
inline U8x64 look_up(const uint8_t* table, U8x64 codes) {
  const __m256i bytes = _mm256_broadcastsi128_si256(load_128(table));
  return {_mm256_shuffle_epi8(bytes, codes.lo), _mm256_shuffle_epi8(bytes, codes.hi)};
}
// Byte kByte of every four.
template <int kByte>
inline I32x16 byte_of(U8x64 a) {
  const __m256i mask = _mm256_set1_epi32(0xFF);
  return {_mm256_and_si256(_mm256_srli_epi32(a.lo, 8 * kByte), mask),
          _mm256_and_si256(_mm256_srli_epi32(a.hi, 8 * kByte), mask)};
}
template <int kByte>
inline I32x16 signed_byte_of(U8x64 a) {
  return {_mm256_srai_epi32(_mm256_slli_epi32(a.lo, 24 - 8 * kByte), 24),
          _mm256_srai_epi32(_mm256_slli_epi32(a.hi, 24 - 8 * kByte), 24)};
}
#if defined(__AVXVNNI__)
template <int kBits>
inline __m256i dot4_half(__m256i acc, __m256i w, __m256i x) {
  return _mm256_dpbusd_avx_epi32(acc, w, x);
}
#else
// sum + part, of 32 and of 16 bits, in assembler: of what is unrolled GCC 12 would make a tree of
// sums, with all products of a block in memory first (1.6 times as long, docs/log.md 2026-11-25).
inline __m256i add_up(__m256i sum, __m256i part) {
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(part));
  return sum;
}
inline __m256i add_up_shorts(__m256i sum, __m256i part) {
  asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(part));
  return sum;
}
template <int kBits>
inline __m256i dot4_half(__m256i acc, __m256i w, __m256i x) {
  // vpmaddubsw would saturate, so even and odd bytes go through 16-bit products.
  const __m256i w_even = _mm256_and_si256(w, _mm256_set1_epi16(0x00FF));
  const __m256i w_odd = _mm256_srli_epi16(w, 8);
  const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
  const __m256i x_odd = _mm256_srai_epi16(x, 8);
  acc = add_up(acc, _mm256_madd_epi16(w_even, x_even));
  return add_up(acc, _mm256_madd_epi16(w_odd, x_odd));
}

// Products of codes below 8 bits: a number is the sum of two, and more of them while 16 bits hold
// it (kernels/linear/int_products.h).
#define PAREDOWN_HAS_SHORT_SUMS 1
struct I16x32 {
  __m256i lo, hi;
};
inline I16x32 pair_products(U8x64 w, I32x16 x) {
  return {_mm256_maddubs_epi16(w.lo, x.lo), _mm256_maddubs_epi16(w.hi, x.hi)};
}
inline I16x32 add(I16x32 a, I16x32 b) {
  return {add_up_shorts(a.lo, b.lo), add_up_shorts(a.hi, b.hi)};
}
// sum[i] += both of the numbers in the place of lane i.
inline I32x16 add_both(I32x16 sum, I16x32 pairs) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(pairs.lo, ones)),
          _mm256_add_epi32(sum.hi, _mm256_madd_epi16(pairs.hi, ones))};
}
// Keeps codes in registers: those that several tokens read GCC 12 would load for each of them.
inline U8x64 kept(U8x64 w) {
  asm("" : "+x"(w.lo), "+x"(w.hi));
  return w;
}
#endif
template <int kBits>
inline I32x16 dot4(I32x16 acc, U8x64 w, I32x16 x) {
  return {dot4_half<kBits>(acc.lo, w.lo, x.lo), dot4_half<kBits>(acc.hi, w.hi, x.hi)};
}

}  // namespace
}  // namespace paredown

#include "simd/avx2_bf16.h"
#include "simd/avx2_expand.h"
