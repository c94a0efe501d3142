// Numbers of which only those are stored that are not zero (kernels/bitmap.h), put in their places.
// Included by avx512.h.
#pragma once

#define PAREDOWN_HAS_EXPAND 1

namespace paredown {
namespace {

#if defined(__AVX512VBMI2__)
inline __m512i expand_bytes_or_zero(__m512i bytes, uint64_t mask) {
  return _mm512_maskz_expand_epi8(mask, bytes);
}
inline __m512i expand_words_or_zero(__m512i words, uint32_t mask) {
  return _mm512_maskz_expand_epi16(mask, words);
}
inline U8x64 expand_bytes(const uint8_t* bytes, uint64_t mask, U8x64 rest) {
  return {_mm512_mask_expand_epi8(rest.v, mask, _mm512_loadu_si512(bytes))};
}
#else
// Widened to 32 bits, for which every AVX-512 has an instruction.
template <int kQuarter>
inline __m128i expand_quarter(const uint8_t* bytes, uint64_t mask) {
  const uint64_t before = mask & ((uint64_t{1} << 16 * kQuarter) - 1);
  const __m512i wide = _mm512_cvtepu8_epi32(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + __builtin_popcountll(before))));
  const auto own = static_cast<__mmask16>(mask >> 16 * kQuarter);
  return _mm512_cvtepi32_epi8(_mm512_maskz_expand_epi32(own, wide));
}
inline __m512i expand_bytes_or_zero(const uint8_t* bytes, uint64_t mask) {
  const __m512i first = _mm512_castsi128_si512(expand_quarter<0>(bytes, mask));
  const __m512i second = _mm512_inserti32x4(first, expand_quarter<1>(bytes, mask), 1);
  const __m512i third = _mm512_inserti32x4(second, expand_quarter<2>(bytes, mask), 2);
  return _mm512_inserti32x4(third, expand_quarter<3>(bytes, mask), 3);
}
inline __m512i expand_bytes_or_zero(__m512i bytes, uint64_t mask) {
  alignas(64) uint8_t stored[64 + 16];
  _mm512_store_si512(stored, bytes);
  return expand_bytes_or_zero(stored, mask);
}
inline __m256i expand_half(const uint8_t* words, uint32_t mask) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)));
  return _mm512_cvtepi32_epi16(_mm512_maskz_expand_epi32(static_cast<__mmask16>(mask), wide));
}
inline __m512i expand_words_or_zero(const uint8_t* words, uint32_t mask) {
  const __m256i second = expand_half(words + 2 * __builtin_popcount(mask & 0xFFFF), mask >> 16);
  return _mm512_inserti64x4(_mm512_castsi256_si512(expand_half(words, mask & 0xFFFF)), second, 1);
}
inline U8x64 expand_bytes(const uint8_t* bytes, uint64_t mask, U8x64 rest) {
  return {_mm512_mask_mov_epi8(rest.v, mask, expand_bytes_or_zero(bytes, mask))};
}
#endif

// Numbers of 16 bits, the others zero. 64 bytes are read from `words` on.
inline I32x16 expand_words(const uint8_t* words, uint32_t mask) {
#if defined(__AVX512VBMI2__)
  return {expand_words_or_zero(_mm512_loadu_si512(words), mask)};
#else
  return {expand_words_or_zero(words, mask)};
#endif
}

// Numbers of 16 bits from their lower bytes and, in four bits, the places of their upper bytes
// among 16: of two pairs of columns, the others zero.
inline void expand_short(const uint8_t* lower, const uint8_t* places, uint64_t mask,
                         const uint8_t* upper_bytes, I32x16& first, I32x16& second) {
  const __m512i pairs =
      _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(places)));
  const __m512i nibbles =
      _mm512_and_si512(_mm512_or_si512(pairs, _mm512_slli_epi16(pairs, 4)), _mm512_set1_epi8(0x0F));
  const __m512i upper = _mm512_shuffle_epi8(load_quarters(upper_bytes), nibbles);
  const __m512i high = expand_bytes_or_zero(upper, mask);
#if defined(__AVX512VBMI2__)
  const __m512i low = expand_bytes_or_zero(_mm512_loadu_si512(lower), mask);
#else
  const __m512i low = expand_bytes_or_zero(lower, mask);
#endif
  first = {_mm512_unpacklo_epi8(low, high)};
  second = {_mm512_unpackhi_epi8(low, high)};
}

}  // namespace
}  // namespace paredown
