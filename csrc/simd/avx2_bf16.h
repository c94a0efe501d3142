// bf16 pairs and what becomes them. Included by avx2.h.
#pragma once

#include "simd/fp8_subnormals.h"

namespace paredown {
namespace {

// Exponents that bf16 numbers name in four bits, twice over.
struct ShortExponents {
  __m256i v;
};
inline ShortExponents load_exponents(const uint8_t* p) {
  return {_mm256_broadcastsi128_si256(load_128(p))};
}
// The exponents of a quad of pairs: those of pairs 0 and 2 in even and odd bytes, and of 1 and 3.
struct QuadExponents {
  __m256i lo[2], hi[2];
};
inline QuadExponents quad_exponents(const uint8_t* names, ShortExponents exponents) {
  const I32x16 words = load_i(names);
  auto found = [&](__m256i nibbles) {
    return _mm256_shuffle_epi8(exponents.v, _mm256_and_si256(nibbles, _mm256_set1_epi8(0x0F)));
  };
  return {{found(words.lo), found(_mm256_srli_epi16(words.lo, 4))},
          {found(words.hi), found(_mm256_srli_epi16(words.hi, 4))}};
}
template <int kPlace>
inline __m256i widen_bf16(const uint8_t* bytes, const __m256i (&quad)[2]) {
  const __m256i wide = _mm256_and_si256(_mm256_cvtepi8_epi16(load_128(bytes)),
                                        _mm256_set1_epi16(static_cast<int16_t>(0x807F)));
  const __m256i both = quad[kPlace % 2];
  const __m256i shifted = kPlace < 2 ? _mm256_slli_epi16(both, 7) : _mm256_srli_epi16(both, 1);
  return _mm256_or_si256(wide, _mm256_and_si256(shifted, _mm256_set1_epi16(0x7F80)));
}
// The pairs of 16 rows from their signs and mantissas, a byte each.
template <int kPlace>
inline I32x16 widen_bf16(const uint8_t* bytes, const QuadExponents& quad) {
  return {widen_bf16<kPlace>(bytes, quad.lo), widen_bf16<kPlace>(bytes + 16, quad.hi)};
}

constexpr bool kPrefersShortBf16 = true;
inline F32x16 even_bf16(I32x16 pairs) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs.lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(pairs.hi, 16))};
}
inline F32x16 odd_bf16(I32x16 pairs) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(pairs.lo, mask)),
          _mm256_castsi256_ps(_mm256_and_si256(pairs.hi, mask))};
}

inline __m256i repeat_128(const uint8_t* table) {
  return _mm256_broadcastsi128_si256(load_128(table));
}
inline void bf16_from_fp8(__m256i codes, __m256i& even, __m256i& odd) {
  const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi8(0x7F));
  const __m256i subnormal = _mm256_cmpgt_epi8(_mm256_set1_epi8(8), magnitude);
  const __m256i normal_low =
      _mm256_and_si256(_mm256_slli_epi16(codes, 4), _mm256_set1_epi8(static_cast<char>(0xF0)));
  const __m256i normal_high =
      _mm256_add_epi8(_mm256_and_si256(_mm256_srli_epi16(codes, 4), _mm256_set1_epi8(7)),
                      _mm256_set1_epi8(kNormalHigh));
  const __m256i low = _mm256_blendv_epi8(
      normal_low, _mm256_shuffle_epi8(repeat_128(kSubnormalLow), magnitude), subnormal);
  __m256i high = _mm256_blendv_epi8(
      normal_high, _mm256_shuffle_epi8(repeat_128(kSubnormalHigh), magnitude), subnormal);
  high = _mm256_or_si256(high, _mm256_and_si256(codes, _mm256_set1_epi8(-128)));
  const __m256i is_odd = _mm256_set1_epi16(static_cast<int16_t>(0xFF00));
  even = _mm256_blendv_epi8(low, _mm256_slli_epi16(high, 8), is_odd);
  odd = _mm256_blendv_epi8(_mm256_srli_epi16(low, 8), high, is_odd);
}
// fp8 codes as bf16: the even bytes' and the odd bytes' numbers.
inline void bf16_from_fp8(U8x64 codes, I32x16& even, I32x16& odd) {
  bf16_from_fp8(codes.lo, even.lo, odd.lo);
  bf16_from_fp8(codes.hi, even.hi, odd.hi);
}

}  // namespace
}  // namespace paredown
