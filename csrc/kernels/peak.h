// Loops that reach the arithmetic and memory limits of one core, for `doctor`.
#pragma once

#include "kernels/decode.h"

namespace paredown {
namespace {

// About `num_operations` float operations (a multiply-add counts two).
float peak_fp32(int64_t num_operations) {
  F32x16 sums[kPeakChains];
  // Unlike each other: of chains that are the same GCC 12 makes one.
  for (int i = 0; i < kPeakChains; ++i) sums[i] = set_f(static_cast<float>(i));
  const F32x16 factor = set_f(0.999f);
  const F32x16 addend = set_f(0.001f);
  for (int64_t i = 0; i < num_operations; i += 2 * kLanes * kPeakChains) {
    for (F32x16& sum : sums) sum = fma(sum, factor, addend);
  }
  F32x16 total = zero_f();
  for (const F32x16& sum : sums) total = add(total, sum);
  return sum_lanes(total);
}

#if defined(PAREDOWN_HAS_TILES)

// Four accumulators fed by two A and two B tiles, as the linear layers use them.
template <class Product>
float peak_tiles(int64_t num_operations, int64_t operations_per_product, Product&& product) {
  const TileScope scope;
  alignas(64) float sums[16 * kLanes] = {};
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  tile_load<4>(sums, 64);
  tile_load<5>(sums, 64);
  tile_load<6>(sums, 64);
  tile_load<7>(sums, 64);
  for (int64_t i = 0; i < num_operations; i += 4 * operations_per_product) product();
  tile_store<0>(sums, 64);
  return sums[0];
}

float peak_bf16(int64_t num_operations) {
  return peak_tiles(num_operations, 2 * 16 * 16 * 32, [] {
    tile_dot_bf16<0, 4, 6>();
    tile_dot_bf16<1, 4, 7>();
    tile_dot_bf16<2, 5, 6>();
    tile_dot_bf16<3, 5, 7>();
  });
}

float peak_int8(int64_t num_operations) {
  return peak_tiles(num_operations, 2 * 16 * 16 * 64, [] {
    tile_dot_su<0, 4, 6>();
    tile_dot_su<1, 4, 7>();
    tile_dot_su<2, 5, 6>();
    tile_dot_su<3, 5, 7>();
  });
}

#else

// bf16 pairs where the processor multiplies them, else the float path that bf16 weights take there.
float peak_bf16(int64_t num_operations) {
  if constexpr (!kHasBf16Dot) return peak_fp32(num_operations);
  F32x16 sums[kPeakChains];
  for (int i = 0; i < kPeakChains; ++i) sums[i] = set_f(static_cast<float>(i));
  const I32x16 weights = set_i(0x3F803F80);
  for (int64_t i = 0; i < num_operations; i += 4 * kLanes * kPeakChains) {
    for (F32x16& sum : sums) sum = dot_bf16(sum, weights, 0x3F803F80u);
  }
  F32x16 total = zero_f();
  for (const F32x16& sum : sums) total = add(total, sum);
  return sum_lanes(total);
}

#if defined(PAREDOWN_HAS_SHORT_SUMS)
// Four bits at a time, which are summed in 16 bits.
inline void add_peak_quads(const uint8_t (*weights)[64], I32x16 codes,
                           I32x16 (&sums)[kPeakChains]) {
  I16x32 shorts[kPeakChains];
  unroll<kQuads>([&](auto quad) __attribute__((always_inline)) {
    asm volatile("" : : "r"(weights) : "memory");
    for (int i = 0; i < kPeakChains; ++i) {
      const I16x32 products = pair_products(load_u8(weights[i]), codes);
      shorts[i] = quad.value == 0 ? products : add(shorts[i], products);
    }
  });
  for (int i = 0; i < kPeakChains; ++i) sums[i] = add_both(sums[i], shorts[i]);
}
#else
inline void add_peak_quads(const uint8_t (*weights)[64], I32x16 codes,
                           I32x16 (&sums)[kPeakChains]) {
  const U8x64 first = load_u8(weights[0]);
  unroll<kQuads>([&](auto) __attribute__((always_inline)) {
    // Where a product is not made with its sum, it must not be made once for all.
    if constexpr (!kHasByteDot) asm volatile("" : : "r"(weights) : "memory");
    for (int i = 0; i < kPeakChains; ++i) {
      sums[i] = dot4<8>(sums[i], kHasByteDot ? first : load_u8(weights[i]), codes);
    }
  });
}
#endif

float peak_int8(int64_t num_operations) {
  I32x16 sums[kPeakChains];
  for (int i = 0; i < kPeakChains; ++i) sums[i] = set_i(i);
  alignas(64) uint8_t weights[kPeakChains][64];
  for (auto& bytes : weights) {
    for (uint8_t& byte : bytes) byte = 3;
  }
  const I32x16 codes = set_i(0x01010101);
  for (int64_t i = 0; i < num_operations; i += kQuads * 8 * kLanes * kPeakChains) {
    add_peak_quads(weights, codes, sums);
  }
  I32x16 total = zero_i();
  for (const I32x16& sum : sums) total = add(total, sum);
  return static_cast<float>(sum_lanes(total));
}

#endif

// Reads num_bytes (a multiple of 512) once, in order.
float read_memory(const void* data, int64_t num_bytes) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  I32x16 sums[8];
  for (I32x16& sum : sums) sum = zero_i();
  for (int64_t i = 0; i + 512 <= num_bytes; i += 512) {
    for (int j = 0; j < 8; ++j) sums[j] = add(sums[j], load_i(bytes + i + 64 * j));
  }
  I32x16 total = zero_i();
  for (const I32x16& sum : sums) total = add(total, sum);
  return static_cast<float>(sum_lanes(total));
}

}  // namespace
}  // namespace paredown
