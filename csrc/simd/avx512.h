// 16 lanes in one AVX-512 register. With __AVX512BF16__ the bf16 dot product is native, with
// __AVX512VBMI__ fp8 codes are looked up.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace paredown {
namespace {

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};
struct U8x64 {
  __m512i v;
};

// Tiles that fit the 32 registers: tokens x panels of 16 rows.
constexpr int kFloatTokens = 6;
constexpr int kFloatPanels = 4;
constexpr int kFp8Tokens = 4;
// Sums that grow side by side where peaks are measured: no more than the registers hold.
constexpr int kPeakChains = 16;
// Query rows that attention takes through a pass over the keys.
constexpr int kAttentionRows = 8;
constexpr int kAttentionSums = 16;  // of rows by vectors
constexpr int kIntTokens = 6;
constexpr int kGroupTokens = 4;  // with groups, whose float sums take registers too
constexpr int kIntPanels = 2;
constexpr int kManyPanels = 4;  // by kIntTokens or kManyGroupTokens, once codes lie in memory
constexpr int kManyGroupTokens = 3;
// Group sums are read as the bits of floats.
constexpr bool kReadsBits = true;
constexpr int kSerialTokens = 8;
constexpr int kSerialPanels = 1;  // one after the other, for up to kSerialTokens
// How few tokens read a weight from memory: panels side by side, bytes ahead that come into the
// first cache, whether the panels after these come into the second, and how many sums of whole rows
// and of groups grow side by side, so that none waits for its own last product.
#if defined(__AVX512BF16__) && !defined(PAREDOWN_HAS_TILES)
// Measured on AMD Zen 5: one stream to a core, of which the processor itself fetches the most.
constexpr int kFewPanels = 1;
constexpr int64_t kNearBytes = 6144;
constexpr bool kFetchesNextPanels = false;
constexpr int kRowSums = 4;
constexpr int kGroupSums = 2;
constexpr int kSerialRowTokens = 16;
// Up to so many tokens widen bf16 of 12 bits in registers.
constexpr int kFewShortTokens = 16;
#else
// Measured on Intel Emerald Rapids.
constexpr int kFewPanels = 2;
constexpr int64_t kNearBytes = 2048;
constexpr bool kFetchesNextPanels = true;
constexpr int kRowSums = 1;
constexpr int kGroupSums = 1;
constexpr int kSerialRowTokens = 8;
constexpr int kFewShortTokens = 2;
#endif
// Up to this many tokens codes are decoded in registers; for more, once to memory.
#if defined(PAREDOWN_HAS_TILES)
constexpr int kFewTokens = 6;
constexpr int kFewTokensShortRows = 6;
constexpr int kFewTokensShortGroups = 8;  // groups of 32 columns, half a tile deep
#elif defined(__AVX512BF16__)
// Measured on AMD Zen 5: weights from memory gain up to 32 tokens, rows of bytes that stay in a
// cache up to 12, short groups in either.
constexpr int kFewTokens = 32;
constexpr int kFewTokensShortRows = 12;
constexpr int kFewTokensShortGroups = 32;
// From so many tokens to so many, tiles of tokens share codes that the first of them decodes.
#define PAREDOWN_SHARES_CODES 1
constexpr int kMinSharedTokens = 13;
constexpr int kMaxSharedRowTokens = 128;
constexpr int kMaxSharedGroupTokens = 256;
#else
constexpr int kFewTokens = 12;
constexpr int kFewTokensShortRows = 12;
constexpr int kFewTokensShortGroups = 12;
#endif
constexpr int kFewTokensSteps = kFewTokens;
// Products of codes below 8 bits are made differently.
constexpr bool kHasSmallDot = false;
// dot4 of 8-bit codes costs no more than a float product.
constexpr bool kHasByteDot = true;

inline F32x16 zero_f() { return {_mm512_setzero_ps()}; }
inline F32x16 set_f(float x) { return {_mm512_set1_ps(x)}; }
inline F32x16 load_f(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store_f(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
// Past the caches, to 64-byte aligned memory; stream_fence makes it visible to other threads.
inline void stream_f(float* p, F32x16 a) { _mm512_stream_ps(p, a.v); }
inline void stream_fence() { _mm_sfence(); }
inline F32x16 add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// The same where sums fill the registers, each in its own: of an intrinsic the result may take the
// place of a factor, and GCC 12 then keeps sums in memory.
#define PAREDOWN_HAS_ADD_PRODUCT 1
inline F32x16 add_product(F32x16 sum, F32x16 a, F32x16 b) {
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum.v) : "v"(a.v), "v"(b.v));
  return sum;
}
inline F32x16 take_off(F32x16 sum, F32x16 whole) {
  asm("vsubps %1, %0, %0" : "+v"(sum.v) : "v"(whole.v));
  return sum;
}
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F32x16 abs(F32x16 a) { return {_mm512_abs_ps(a.v)}; }
// a where x < y, else b, lane by lane.
inline F32x16 select_less(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ), b.v, a.v)};
}
inline float sum_lanes(F32x16 a) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}
inline float max_lanes(F32x16 a) { return _mm512_reduce_max_ps(a.v); }
// What the lanes of each of 16 registers come to: halving the registers four times leaves one lane
// to each.
#define PAREDOWN_HAS_FOLD_EACH 1
template <class Combine>
inline
    __attribute__((always_inline)) __m512 fold_each(const F32x16 (&rows)[16], Combine&& combine) {
  __m512 eight[8];
  for (int i = 0; i < 8; ++i) {
    const int row = i / 4 * 8 + i % 4;
    eight[i] = combine(_mm512_shuffle_f32x4(rows[row].v, rows[row + 4].v, 0x44),
                       _mm512_shuffle_f32x4(rows[row].v, rows[row + 4].v, 0xEE));
  }
  __m512 four[4];
  for (int i = 0; i < 4; ++i) {
    four[i] = combine(_mm512_shuffle_f32x4(eight[i], eight[i + 4], 0x88),
                      _mm512_shuffle_f32x4(eight[i], eight[i + 4], 0xDD));
  }
  __m512 two[2];
  for (int i = 0; i < 2; ++i) {
    two[i] =
        combine(_mm512_unpacklo_ps(four[i], four[i + 2]), _mm512_unpackhi_ps(four[i], four[i + 2]));
  }
  return combine(_mm512_unpacklo_ps(two[0], two[1]), _mm512_unpackhi_ps(two[0], two[1]));
}
inline F32x16 max_of_each(const F32x16 (&rows)[16]) {
  return {fold_each(rows, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); })};
}

inline F32x16 load_fp16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline F32x16 load_bf16(const uint16_t* p) {
  const __m512i bits =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16))};
}
// 0 to 15, one per lane.
inline __m512i lane_numbers() {
  return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}
// bf16 in the upper halves of the lanes, rounded to nearest even; what is below them is no part.
inline __m512i rounded_bf16(F32x16 a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
}
inline void store_bf16(uint16_t* p, F32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_bf16(a), 16)));
}

inline I32x16 zero_i() { return {_mm512_setzero_si512()}; }
inline I32x16 set_i(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline I32x16 load_i(const void* p) { return {_mm512_loadu_si512(p)}; }
inline I32x16 add(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I32x16 mul(I32x16 a, I32x16 b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
inline I32x16 max(I32x16 a, I32x16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
inline I32x16 min(I32x16 a, I32x16 b) { return {_mm512_min_epi32(a.v, b.v)}; }
inline I32x16 load_u8_as_i32(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline void store_i(void* p, I32x16 a) { _mm512_storeu_si512(p, a.v); }
inline I32x16 bit_and(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
inline I32x16 bit_or(I32x16 a, I32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int kShift>
inline I32x16 shift_left(I32x16 a) {
  return {_mm512_slli_epi32(a.v, kShift)};
}
template <int kShift>
inline I32x16 shift_right(I32x16 a) {
  return {_mm512_srli_epi32(a.v, kShift)};
}
inline F32x16 bits_as_float(I32x16 a) { return {_mm512_castsi512_ps(a.v)}; }
inline I32x16 float_bits(F32x16 a) { return {_mm512_castps_si512(a.v)}; }
inline int32_t sum_lanes(I32x16 a) { return _mm512_reduce_add_epi32(a.v); }
inline int32_t max_lanes(I32x16 a) { return _mm512_reduce_max_epi32(a.v); }
template <class Combine>
inline __attribute__((always_inline)) I32x16 fold_each_int(const I32x16 (&rows)[16],
                                                           Combine&& combine) {
  F32x16 bits[16];
  for (int i = 0; i < 16; ++i) bits[i] = bits_as_float(rows[i]);
  return float_bits({fold_each(bits, [&](__m512 a, __m512 b) {
    return bits_as_float(combine(float_bits({a}), float_bits({b}))).v;
  })});
}
inline I32x16 max_of_each(const I32x16 (&rows)[16]) {
  return fold_each_int(rows, [](I32x16 a, I32x16 b) { return max(a, b); });
}
inline I32x16 sum_of_each(const I32x16 (&rows)[16]) {
  return fold_each_int(rows, [](I32x16 a, I32x16 b) { return add(a, b); });
}
inline F32x16 to_float(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
// Round to nearest even.
inline I32x16 to_int(F32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }
inline void store_i8(int8_t* p, I32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a.v));
}
// a * 2^n for results that stay normal.
inline F32x16 scale_by_power(F32x16 a, I32x16 n) {
  return {
      _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_slli_epi32(n.v, 23)))};
}

// 2^x for x <= 0 to about 2 ulp, exactly 1 at 0 and exactly 0 below -125 (minimax polynomial of
// degree 5 on [0, 1] with its constant term held at 1).
#define PAREDOWN_HAS_EXP2 1
inline F32x16 exp2_or_zero(F32x16 x) {
  constexpr int kLessFloor = 1;
  const __m512 r = _mm512_reduce_ps(x.v, kLessFloor);
  __m512 poly = _mm512_set1_ps(0x1.e974fap-10f);
  poly = _mm512_fmadd_ps(poly, r, _mm512_set1_ps(0x1.277854p-7f));
  poly = _mm512_fmadd_ps(poly, r, _mm512_set1_ps(0x1.c91ce4p-5f));
  poly = _mm512_fmadd_ps(poly, r, _mm512_set1_ps(0x1.ebdb58p-3f));
  poly = _mm512_fmadd_ps(poly, r, _mm512_set1_ps(0x1.62e4bap-1f));
  poly = _mm512_fmadd_ps(poly, r, _mm512_set1_ps(1.0f));
  const __mmask16 counts = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(-125.0f), _CMP_GE_OQ);
  return {_mm512_maskz_scalef_ps(counts, poly, x.v)};
}

inline U8x64 load_u8(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline void store_u8(uint8_t* p, U8x64 a) { _mm512_storeu_si512(p, a.v); }
inline U8x64 set_u8(uint8_t x) { return {_mm512_set1_epi8(static_cast<char>(x))}; }
inline U8x64 sub(U8x64 a, U8x64 b) { return {_mm512_sub_epi8(a.v, b.v)}; }
// 32 bytes as 64 codes of four bits: the low nibbles, then the high ones.
inline U8x64 load_nibbles(const uint8_t* p) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m512i both =
      _mm512_inserti64x4(_mm512_castsi256_si512(bytes), _mm256_srli_epi16(bytes, 4), 1);
  return {_mm512_and_si512(both, _mm512_set1_epi8(0x0F))};
}
// 16 bytes in every quarter of a register.
inline __m512i load_quarters(const uint8_t* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// Bytes of 16 rows, each four times: what belongs to a row at its place in a quad of columns.
inline U8x64 repeat_4(const uint8_t* p) {
  const __m512i index = _mm512_mullo_epi32(lane_numbers(), _mm512_set1_epi32(0x01010101));
  return {_mm512_shuffle_epi8(load_quarters(p), index)};
}
// Bytes of 16 rows in the form that multiply_add_codes takes factors in: 16-bit lanes.
inline U8x64 step_factors(const uint8_t* p) {
  const __m512i twice = _mm512_mullo_epi32(lane_numbers(), _mm512_set1_epi32(0x00010001));
  const __m512i zeros = _mm512_set1_epi16(static_cast<int16_t>(0x8000));
  return {_mm512_shuffle_epi8(load_quarters(p), _mm512_or_si512(twice, zeros))};
}
// codes * factors + offsets in every byte; products and sums fit a byte, so that a 16-bit product
// is those of two codes.
inline U8x64 multiply_add_codes(U8x64 codes, U8x64 factors, U8x64 offsets) {
  return {_mm512_add_epi8(_mm512_mullo_epi16(codes.v, factors.v), offsets.v)};
}
// kBits bits of every byte, from bit kFirst on.
template <int kFirst, int kBits>
inline U8x64 bit_field(U8x64 a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, kFirst), _mm512_set1_epi8((1 << kBits) - 1))};
}
// a | b << kShift in every byte; nothing may be shifted out of a byte.
template <int kShift>
inline U8x64 or_shifted(U8x64 a, U8x64 b) {
  return {_mm512_or_si512(a.v, _mm512_slli_epi16(b.v, kShift))};
}
// The bytes of a table of 16 at the places that codes of four bits name.
inline U8x64 look_up(const uint8_t* table, U8x64 codes) {
  return {_mm512_shuffle_epi8(load_quarters(table), codes.v)};
}
// Byte kByte of every four.
template <int kByte>
inline I32x16 byte_of(U8x64 a) {
  return {_mm512_and_si512(_mm512_srli_epi32(a.v, 8 * kByte), _mm512_set1_epi32(0xFF))};
}
template <int kByte>
inline I32x16 signed_byte_of(U8x64 a) {
  return {_mm512_srai_epi32(_mm512_slli_epi32(a.v, 24 - 8 * kByte), 24)};
}
// acc[i] += sum over j < 4 of w[4 i + j] * x[j]; `x` holds the same four signed bytes in each lane.
template <int kBits>
inline I32x16 dot4(I32x16 acc, U8x64 w, I32x16 x) {
  // As an intrinsic it has its sum copied by GCC 12, to and fro.
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(w.v), "v"(x.v));
  return acc;
}
// The same four bytes read by the product itself: an instruction less where they serve one.
#define PAREDOWN_HAS_DOT4_OF 1
template <int kBits>
inline I32x16 dot4_of(I32x16 acc, U8x64 w, const int8_t* x) {
  using Four = int32_t __attribute__((may_alias));
  const auto* four = reinterpret_cast<const Four*>(x);
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc.v) : "v"(w.v), "m"(*four));
  return acc;
}

}  // namespace
}  // namespace paredown

#include "simd/avx512_bf16.h"
#include "simd/avx512_expand.h"
#include "simd/avx512_pages.h"
#if defined(PAREDOWN_SHARES_CODES)
#include "simd/avx512_pairs.h"
#endif
