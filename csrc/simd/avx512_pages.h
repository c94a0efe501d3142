// Numbers of several tokens as pages of bf16 have them side by side. Included by avx512.h.
#pragma once

namespace paredown {
namespace {

#define PAREDOWN_HAS_BF16_PAIRS 1
// Lane by lane the bf16 numbers of two registers side by side.
inline void store_bf16_pairs(uint16_t* p, F32x16 even, F32x16 odd) {
  constexpr uint32_t kOddWords = 0xAAAAAAAA;
  const __m512i low = _mm512_srli_epi32(rounded_bf16(even), 16);
  _mm512_storeu_si512(p, _mm512_mask_blend_epi16(kOddWords, low, rounded_bf16(odd)));
}
// The bf16 numbers of 16 rows as [8 pairs of lanes][16 rows][2].
inline void store_bf16_columns(uint16_t* p, const F32x16 (&rows)[16]) {
  // Two rows in one register: the upper halves of the lanes of both.
  const __m512i lanes = _mm512_mullo_epi32(lane_numbers(), _mm512_set1_epi32(0x00040004));
  const __m512i upper = _mm512_add_epi32(lanes, _mm512_set1_epi32(0x00030001));
  __m512i both[8];
  for (int i = 0; i < 8; ++i) {
    const int row = i / 4 * 8 + i % 4;
    both[i] =
        _mm512_permutex2var_epi16(rounded_bf16(rows[row]), upper, rounded_bf16(rows[row + 4]));
  }
  __m512i twos[8];
  for (int i = 0; i < 8; i += 2) {
    twos[i] = _mm512_unpacklo_epi32(both[i], both[i + 1]);
    twos[i + 1] = _mm512_unpackhi_epi32(both[i], both[i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    // Lane pair i of four rows in each quarter, and lane pair i + 4.
    const int first = i / 2;
    __m512i fours[2];
    for (int j = 0; j < 2; ++j) {
      const __m512i a = twos[4 * j + first];
      const __m512i b = twos[4 * j + first + 2];
      fours[j] = i % 2 == 0 ? _mm512_unpacklo_epi64(a, b) : _mm512_unpackhi_epi64(a, b);
    }
    _mm512_storeu_si512(p + i * 32, _mm512_shuffle_i32x4(fours[0], fours[1], 0x88));
    _mm512_storeu_si512(p + (i + 4) * 32, _mm512_shuffle_i32x4(fours[0], fours[1], 0xDD));
  }
}

}  // namespace
}  // namespace paredown
