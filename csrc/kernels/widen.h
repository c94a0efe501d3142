// bf16 with short exponents, as bf16. Include after a simd header.
#pragma once

#include "decode.h"
#include "near_fetch.h"

namespace paredown {
namespace {

constexpr int kPairs = 16;  // of a block
constexpr int kQuadPairs = 4;
constexpr int64_t kPairBytes = 64;
constexpr int64_t kShortQuadBytes = kPairBytes * kQuadPairs * 3 / 4;

// Pair kPlace of a quad fetches its share of what is near. Inlined at once as fetch_scales.
template <int kPlace, NearFetch kNear>
inline __attribute__((always_inline)) void fetch_quad_share(const uint8_t* quad) {
  if constexpr (kPlace * 64 < kShortQuadBytes) {
    fetch_near<kNear, false>(quad + kPlace * 64);
  }
}

// A block that is not wide.
template <NearFetch kNear>
inline void widen_block(const uint8_t* block, ShortExponents exponents, uint8_t* pairs) {
  unroll<kPairs>([&](auto pair) {
    constexpr int kPlace = pair.value % kQuadPairs;
    const uint8_t* quad = block + pair.value / kQuadPairs * kShortQuadBytes;
    fetch_quad_share<kPlace, kNear>(quad);
    const I32x16 names = load_i(quad + kQuadPairs * kPairBytes / 2);
    store_i(pairs + pair.value * kPairBytes,
            widen_bf16<kPlace>(quad + kPlace * kPairBytes / 2, names, exponents));
  });
}

// Columns [first, first + num_columns) of a panel as blocks of bf16.
inline void widen_columns(const LinearView& w, int64_t panel, int64_t first, int64_t num_columns,
                          uint8_t* pairs) {
  constexpr int64_t kBytes = block_bytes(WeightKind::kBf16Short);
  const uint8_t* block = packed_columns(w, panel, first);
  const uint32_t* rank = w.short_bf16.wide_ranks + (panel * w.num_columns + first) / kBlockColumns;
  const uint32_t* end = rank + num_columns / kBlockColumns;
  const ShortExponents exponents = load_exponents(w.short_bf16.exponents + panel * kShortExponents);
  with_near_fetch([&](auto near) {
    for (; rank < end; ++rank) {
      if (*rank == 0) {
        widen_block<near.value>(block, exponents, pairs);
      } else {
        const uint8_t* rest = w.short_bf16.wide_rests + (*rank - 1) * kWideRestBytes;
        __builtin_memcpy(pairs, block, kBytes);
        __builtin_memcpy(pairs + kBytes, rest, kWideRestBytes);
      }
      block += kBytes;
      pairs += block_bytes(WeightKind::kBf16);
    }
  });
}

// The block of a panel from column `first` on as floats [32 columns][16 rows].
inline void widen_to_floats(const LinearView& w, int64_t panel, int64_t first, float* columns) {
  alignas(64) uint8_t pairs[block_bytes(WeightKind::kBf16)];
  widen_columns(w, panel, first, kBlockColumns, pairs);
  for (int pair = 0; pair < kPairs; ++pair, columns += 2 * kLanes) {
    const I32x16 both = load_i(pairs + pair * kPairBytes);
    store_f(columns, even_bf16(both));
    store_f(columns + kLanes, odd_bf16(both));
  }
}

}  // namespace
}  // namespace paredown
