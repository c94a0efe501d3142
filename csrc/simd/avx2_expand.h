// Numbers of which only those are stored that are not zero (kernels/bitmap.h), put in their places:
// eight at a time, by a table of shuffles. Included by avx2.h.
#pragma once

#define PAREDOWN_HAS_EXPAND 1

namespace paredown {
namespace {

// For each mask of eight numbers which of the stored ones comes to each place; 0x80: none.
struct ExpandTables {
  alignas(16) uint8_t words[256][16];
  uint8_t bytes[256][8];
};
constexpr ExpandTables expand_tables() {
  ExpandTables tables{};
  for (int mask = 0; mask < 256; ++mask) {
    int rank = 0;
    for (int bit = 0; bit < 8; ++bit) {
      const bool is_there = (mask >> bit & 1) != 0;
      tables.bytes[mask][bit] = static_cast<uint8_t>(is_there ? rank : 0x80);
      tables.words[mask][2 * bit] = static_cast<uint8_t>(is_there ? 2 * rank : 0x80);
      tables.words[mask][2 * bit + 1] = static_cast<uint8_t>(is_there ? 2 * rank + 1 : 0x80);
      rank += is_there;
    }
  }
  return tables;
}
constexpr ExpandTables kExpandTables = expand_tables();

inline __m128i load_64(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }

// 32 numbers: those of a byte in place, and with the upper bit of `rest` where there is none.
struct ExpandedBytes {
  __m256i bytes;
  __m256i shuffles;
};
inline ExpandedBytes expand_half(const uint8_t* bytes, uint32_t mask) {
  __m128i parts[4];
  __m128i shuffles[4];
  for (int i = 0; i < 4; ++i) {
    const uint32_t own = mask >> 8 * i & 0xFF;
    shuffles[i] = load_64(kExpandTables.bytes[own]);
    parts[i] = _mm_shuffle_epi8(load_64(bytes), shuffles[i]);
    bytes += __builtin_popcount(own);
  }
  return {_mm256_set_m128i(_mm_unpacklo_epi64(parts[2], parts[3]),
                           _mm_unpacklo_epi64(parts[0], parts[1])),
          _mm256_set_m128i(_mm_unpacklo_epi64(shuffles[2], shuffles[3]),
                           _mm_unpacklo_epi64(shuffles[0], shuffles[1]))};
}

inline U8x64 expand_bytes(const uint8_t* bytes, uint64_t mask, U8x64 rest) {
  const auto low = static_cast<uint32_t>(mask);
  const ExpandedBytes lo = expand_half(bytes, low);
  const ExpandedBytes hi =
      expand_half(bytes + __builtin_popcount(low), static_cast<uint32_t>(mask >> 32));
  return {_mm256_blendv_epi8(lo.bytes, rest.lo, lo.shuffles),
          _mm256_blendv_epi8(hi.bytes, rest.hi, hi.shuffles)};
}

inline __m256i expand_sixteen(const uint8_t* words, uint32_t mask) {
  const uint32_t low = mask & 0xFF;
  const auto part = [](const uint8_t* from, uint32_t own) {
    return _mm_shuffle_epi8(load_128(from), load_128(kExpandTables.words[own]));
  };
  return _mm256_set_m128i(part(words + 2 * __builtin_popcount(low), mask >> 8 & 0xFF),
                          part(words, low));
}
// Numbers of 16 bits, the others zero. 64 bytes are read from `words` on.
inline I32x16 expand_words(const uint8_t* words, uint32_t mask) {
  return {expand_sixteen(words, mask & 0xFFFF),
          expand_sixteen(words + 2 * __builtin_popcount(mask & 0xFFFF), mask >> 16)};
}

// Numbers of 16 bits from their lower bytes and, in four bits, the places of their upper bytes
// among 16: of two pairs of columns, the others zero.
inline void expand_short(const uint8_t* lower, const uint8_t* places, uint64_t mask,
                         const uint8_t* upper_bytes, I32x16& first, I32x16& second) {
  alignas(32) uint8_t upper[64 + 8];
  const __m256i table = _mm256_broadcastsi128_si256(load_128(upper_bytes));
  for (int i = 0; i < 2; ++i) {
    const __m256i pairs = _mm256_cvtepu8_epi16(load_128(places + 16 * i));
    const __m256i nibbles = _mm256_and_si256(_mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4)),
                                             _mm256_set1_epi8(0x0F));
    _mm256_store_si256(reinterpret_cast<__m256i*>(upper + 32 * i),
                       _mm256_shuffle_epi8(table, nibbles));
  }
  const auto low_mask = static_cast<uint32_t>(mask);
  const auto high_mask = static_cast<uint32_t>(mask >> 32);
  const int before = __builtin_popcount(low_mask);
  const __m256i low[2] = {expand_half(lower, low_mask).bytes,
                          expand_half(lower + before, high_mask).bytes};
  const __m256i high[2] = {expand_half(upper, low_mask).bytes,
                           expand_half(upper + before, high_mask).bytes};
  first = {_mm256_unpacklo_epi8(low[0], high[0]), _mm256_unpacklo_epi8(low[1], high[1])};
  second = {_mm256_unpackhi_epi8(low[0], high[0]), _mm256_unpackhi_epi8(low[1], high[1])};
}

}  // namespace
}  // namespace paredown
