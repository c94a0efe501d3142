// bf16 pairs: their products, and what becomes them. Included by avx512.h.
#pragma once

#include "simd/fp8_subnormals.h"

namespace paredown {
namespace {

#if defined(__AVX512BF16__)
#define PAREDOWN_HAS_BF16_DOT 1
#if defined(PAREDOWN_HAS_TILES)
// Tiles would have to be widened first.
constexpr bool kPrefersShortBf16 = false;
#else
constexpr bool kPrefersShortBf16 = true;
#endif
// acc[i] += sum over j < 2 of w[2 i + j] * x[j] in bf16 pairs: two fused multiply-adds, that of j =
// 1 first, but that numbers which are not normal count as zero.
#define PAREDOWN_DOTS_AS_FLOATS 1
inline F32x16 dot_bf16(F32x16 acc, I32x16 w, uint32_t x) {
  const __m512i all = _mm512_set1_epi32(static_cast<int>(x));
  // As an intrinsic its sums are copied where they are many, as those of dot4 are.
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc.v) : "v"(w.v), "v"(all));
  return acc;
}

// The bf16 numbers of signed integers of five bits; and of codes of four with the zero point 8,
// twice over.
struct BitNumbers {
  uint16_t of[32];
};
template <class Number>
constexpr BitNumbers bit_numbers(Number&& number) {
  BitNumbers numbers{};
  for (int i = 0; i < 32; ++i) {
    const auto value = static_cast<float>(number(i));
    numbers.of[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
  }
  return numbers;
}
alignas(64) constexpr BitNumbers kFiveBitNumbers = bit_numbers([](int i) {
  return i < 16 ? i : i - 32;
});
alignas(64) constexpr BitNumbers kNibbleNumbers = bit_numbers([](int i) { return i % 16 - 8; });
// The bf16 numbers of byte kByte of each pair of bytes, of which five bits count.
template <int kByte>
inline I32x16 look_up_pairs(U8x64 bytes) {
  return {_mm512_permutexvar_epi16(_mm512_srli_epi16(bytes.v, 8 * kByte),
                                   _mm512_load_si512(kFiveBitNumbers.of))};
}
// The bf16 numbers of nibble kNibble of each pair of bytes.
template <int kNibble>
inline I32x16 look_up_nibbles(I32x16 words) {
  return {_mm512_permutexvar_epi16(_mm512_srli_epi16(words.v, 4 * kNibble),
                                   _mm512_load_si512(kNibbleNumbers.of))};
}
#else
constexpr bool kPrefersShortBf16 = true;
#endif

#if defined(__AVX512VBMI__)
// The two bytes of the bf16 number of each fp8 code without its sign.
struct Fp8Tables {
  uint8_t low[128];
  uint8_t high[128];
};
constexpr Fp8Tables fp8_tables() {
  Fp8Tables tables{};
  for (int code = 0; code < 128; ++code) {
    int bits = (code << 4) + (120 << 7);
    if (code < 8) {
      // Subnormal codes count 2^-9: shifted until they have the leading bit of a normal one.
      int exponent = 121;
      int shifted = code;
      for (; shifted > 0 && shifted < 8; shifted *= 2) --exponent;
      bits = code == 0 ? 0 : (exponent << 7) + ((shifted - 8) << 4);
    }
    tables.low[code] = static_cast<uint8_t>(bits & 0xFF);
    tables.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  return tables;
}
alignas(64) constexpr Fp8Tables kFp8Tables = fp8_tables();

inline U8x64 look_up_128(const uint8_t* table, U8x64 index) {
  return {
      _mm512_permutex2var_epi8(_mm512_load_si512(table), index.v, _mm512_load_si512(table + 64))};
}
// fp8 codes as bf16: the even bytes' and the odd bytes' numbers.
inline void bf16_from_fp8(U8x64 codes, I32x16& even, I32x16& odd) {
  constexpr uint64_t kOdd = 0xAAAAAAAAAAAAAAAA;
  const __m512i low = look_up_128(kFp8Tables.low, codes).v;
  const __m512i magnitude = look_up_128(kFp8Tables.high, codes).v;
  // magnitude | (codes & 0x80)
  const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes.v, _mm512_set1_epi8(-128), 0xF8);
  even = {_mm512_mask_blend_epi8(kOdd, low, _mm512_slli_epi16(high, 8))};
  odd = {_mm512_mask_blend_epi8(kOdd, _mm512_srli_epi16(low, 8), high)};
}
#else
inline __m512i repeat_128(const uint8_t* table) {
  return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
}
// fp8 codes as bf16: the even bytes' and the odd bytes' numbers.
inline void bf16_from_fp8(U8x64 codes, I32x16& even, I32x16& odd) {
  constexpr uint64_t kOdd = 0xAAAAAAAAAAAAAAAA;
  const __m512i magnitude = _mm512_and_si512(codes.v, _mm512_set1_epi8(0x7F));
  const __mmask64 subnormal = _mm512_cmplt_epu8_mask(magnitude, _mm512_set1_epi8(8));
  const __m512i normal_low =
      _mm512_and_si512(_mm512_slli_epi16(codes.v, 4), _mm512_set1_epi8(static_cast<char>(0xF0)));
  const __m512i normal_high =
      _mm512_add_epi8(_mm512_and_si512(_mm512_srli_epi16(codes.v, 4), _mm512_set1_epi8(7)),
                      _mm512_set1_epi8(kNormalHigh));
  const __m512i low =
      _mm512_mask_shuffle_epi8(normal_low, subnormal, repeat_128(kSubnormalLow), magnitude);
  __m512i high =
      _mm512_mask_shuffle_epi8(normal_high, subnormal, repeat_128(kSubnormalHigh), magnitude);
  // high | (codes & 0x80)
  high = _mm512_ternarylogic_epi32(high, codes.v, _mm512_set1_epi8(-128), 0xF8);
  even = {_mm512_mask_blend_epi8(kOdd, low, _mm512_slli_epi16(high, 8))};
  odd = {_mm512_mask_blend_epi8(kOdd, _mm512_srli_epi16(low, 8), high)};
}
#endif

// Exponents that bf16 numbers name in four bits, in their place, twice over.
struct ShortExponents {
  __m512i v;
};
inline ShortExponents load_exponents(const uint8_t* p) {
  const __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_slli_epi16(_mm512_broadcast_i64x4(words), 7)};
}
// The exponents of a quad of pairs, by their names of four bits.
struct QuadExponents {
  __m512i names;
  ShortExponents exponents;
};
inline QuadExponents quad_exponents(const uint8_t* names, ShortExponents exponents) {
  return {load_i(names).v, exponents};
}
// The pairs of 16 rows from their signs and mantissas, a byte each.
template <int kPlace>
inline I32x16 widen_bf16(const uint8_t* bytes, const QuadExponents& quad) {
  const __m512i wide =
      _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
  const __m512i found =
      _mm512_permutexvar_epi16(_mm512_srli_epi16(quad.names, 4 * kPlace), quad.exponents.v);
  // (wide & 0x807F) | found
  return {_mm512_ternarylogic_epi32(wide, _mm512_set1_epi16(static_cast<int16_t>(0x807F)), found,
                                    0xEA)};
}

// The even and odd columns of bf16 pairs, as float.
inline F32x16 even_bf16(I32x16 pairs) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs.v, 16))};
}
inline F32x16 odd_bf16(I32x16 pairs) {
  return {_mm512_castsi512_ps(
      _mm512_and_si512(pairs.v, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))))};
}

}  // namespace
}  // namespace paredown
