// Products of pairs of columns (kernels/linear/int_pairs.h) where additions have ports of their own
// beside those of products: AMD Zen 5 does two of each a cycle.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace paredown {
namespace {

#define PAREDOWN_PAIRS_PRODUCTS 1

inline I32x16 take_off(I32x16 sum, I32x16 part) { return {_mm512_sub_epi32(sum.v, part.v)}; }

// The bytes of a register as the signed factor of dot4.
inline I32x16 as_signed(U8x64 a) { return {a.v}; }

// The matrix over GF(2) that takes a byte's nibble from bit kFirst on to a number from -8 to 7, but
// for its upper five bits, which must all be inverted: they are copies of the nibble's last.
template <int kFirst>
constexpr uint64_t nibble_matrix() {
  uint64_t matrix = 0;
  for (int bit = 0; bit < 8; ++bit) {
    matrix |= uint64_t{1} << (kFirst + (bit < 3 ? bit : 3)) << 8 * (7 - bit);
  }
  return matrix;
}
// Four bits of every byte, from bit kFirst on, less 8, or 120 more if kMore is 128.
template <int kFirst, int kMore>
inline U8x64 centered_nibbles(U8x64 a) {
  const __m512i matrix = _mm512_set1_epi64(static_cast<int64_t>(nibble_matrix<kFirst>()));
  return {_mm512_gf2p8affine_epi64_epi8(a.v, matrix, 0xF8 ^ kMore)};
}

// Lanes 0 to 3 in the place of lanes 4 to 7, 8 to 11 in that of 12 to 15; zero in the others.
inline I32x16 quad_before(I32x16 a) { return {_mm512_maskz_shuffle_i32x4(0xF0F0, a.v, a.v, 0xB1)}; }

// For two panels, sums[i] += sum over j < 4 of (x[j] + odd[4 i + j]) * (x[4 + j] + even[4 i + j]),
// the first factor unsigned, both modulo 256. In one piece: GCC 12 would keep of two dozen sums and
// totals some in memory.
inline __attribute__((always_inline)) void dot4_pairs(I32x16& sum0, I32x16& sum1, U8x64 even0,
                                                      U8x64 odd0, U8x64 even1, U8x64 odd1,
                                                      const uint8_t* x) {
  using Quad = int32_t __attribute__((may_alias));
  const auto* quads = reinterpret_cast<const Quad*>(x);
  __m512i first;
  __m512i second;
  __m512i unsigned_factor;
  __m512i signed_factor;
  asm("vpbroadcastd %[x0], %[first]\n\t"
      "vpbroadcastd %[x1], %[second]\n\t"
      "vpaddb %[first], %[odd0], %[u]\n\t"
      "vpaddb %[second], %[even0], %[s]\n\t"
      "vpdpbusd %[s], %[u], %[sum0]\n\t"
      "vpaddb %[first], %[odd1], %[u]\n\t"
      "vpaddb %[second], %[even1], %[s]\n\t"
      "vpdpbusd %[s], %[u], %[sum1]"
      : [sum0] "+&v"(sum0.v), [sum1] "+v"(sum1.v), [first] "=&v"(first), [second] "=&v"(second),
        [u] "=&v"(unsigned_factor), [s] "=&v"(signed_factor)
      : [x0] "m"(quads[0]), [x1] "m"(quads[1]), [even0] "v"(even0.v), [odd0] "v"(odd0.v),
        [even1] "v"(even1.v), [odd1] "v"(odd1.v));
}

}  // namespace
}  // namespace paredown
