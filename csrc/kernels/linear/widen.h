// bf16 with short exponents, as bf16. Include after a simd header.
#pragma once

#include "kernels/decode.h"
#include "kernels/linear/near_fetch.h"

namespace paredown {
namespace {

constexpr int kPairs = 16;  // of a block
constexpr int kQuadPairs = 4;
constexpr int64_t kPairBytes = 64;
constexpr int64_t kMantissaBytes = kPairBytes / 2 * kQuadPairs;  // signs and mantissas of a quad
constexpr int64_t kShortQuadBytes = kMantissaBytes * 3 / 2;

// Pair kPlace of a quad fetches its share of what is near. Inlined at once as fetch_scales.
template <int kPlace, NearFetch kNear>
inline __attribute__((always_inline)) void fetch_quad_share(const uint8_t* quad) {
  if constexpr (kPlace * 64 < kShortQuadBytes) {
    fetch_near<kNear>(quad + kPlace * 64);
  }
}

// A block that is not wide.
template <NearFetch kNear>
inline void widen_block(const uint8_t* block, ShortExponents exponents, uint8_t* pairs) {
  unroll<kPairs / kQuadPairs>([&](auto index) {
    const uint8_t* quad = block + index.value * kShortQuadBytes;
    const QuadExponents found = quad_exponents(quad + kMantissaBytes, exponents);
    unroll<kQuadPairs>([&](auto place) {
      fetch_quad_share<place.value, kNear>(quad);
      store_i(pairs + (index.value * kQuadPairs + place.value) * kPairBytes,
              widen_bf16<place.value>(quad + place.value * kPairBytes / 2, found));
    });
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

}  // namespace
}  // namespace paredown
