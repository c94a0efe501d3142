// bf16 and fp8 weights times inputs rounded to bf16, summed in fp32. Sets without a bf16 product
// multiply the same rounded numbers as floats.
#pragma once

#include "kernels/linear/expand.h"
#include "kernels/linear/float.h"
#include "kernels/linear/next_input.h"
#include "kernels/linear/stretch.h"
#include "kernels/linear/widen.h"

namespace paredown {
namespace {

// fp8 blocks of one panel as bf16 blocks.
inline void decode_fp8(const uint8_t* blocks, int64_t num_columns, uint8_t* pairs) {
  for (int64_t quad = 0; quad < num_columns / 4; ++quad, blocks += 64, pairs += 128) {
    const U8x64 codes = load_u8(blocks);
    // Columns lie in the order 0, 2, 1, 3.
    I32x16 first;
    I32x16 second;
    bf16_from_fp8(codes, first, second);
    store_i(pairs, first);
    store_i(pairs + 64, second);
  }
}

// Columns [first, first + num_columns) of a panel of fp8, of short bf16 or of a bitmap as blocks
// of bf16.
inline void decode_pairs(const LinearView& w, int64_t panel, int64_t first, int64_t num_columns,
                         uint8_t* pairs) {
  if (w.kind == WeightKind::kFp8) {
    decode_fp8(packed_columns(w, panel, first), num_columns, pairs);
  } else if (traits_of(w.kind).is_bitmap) {
    expand_pairs(w, panel, first, num_columns, pairs);
  } else {
    widen_columns(w, panel, first, num_columns, pairs);
  }
}

inline F32x16 row_scales(const LinearView& w, int64_t panel) {
  return w.scales == nullptr ? set_f(1.0f) : load_scales(w, panel * kLanes);
}

#if !defined(PAREDOWN_HAS_TILES)

constexpr int64_t kInputBytes = kHasBf16Dot ? 2 : 4;  // of a column

// A pair of columns of some panels times that of some tokens, whose first one's lies at `x`.
template <int kTokens, int kPanels>
inline __attribute__((always_inline)) void add_pair(const I32x16 (&weights)[kPanels],
                                                    const uint8_t* x, int64_t row_bytes,
                                                    F32x16 (&sums)[kTokens][kPanels]) {
  if constexpr (kHasBf16Dot) {
    for (int t = 0; t < kTokens; ++t) {
      uint32_t pair;
      __builtin_memcpy(&pair, x + t * row_bytes, sizeof(pair));
      for (int p = 0; p < kPanels; ++p) sums[t][p] = dot_bf16(sums[t][p], weights[p], pair);
    }
  } else {
    for (int column = 0; column < 2; ++column) {
      for (int p = 0; p < kPanels; ++p) {
        const F32x16 floats = column == 0 ? even_bf16(weights[p]) : odd_bf16(weights[p]);
        // Inputs are read anew for each panel, so that they take no registers: 1.03 times as fast
        // (AVX2 on Zen 4).
        const uint8_t* own = x;
        asm("" : "+r"(own));
        for (int t = 0; t < kTokens; ++t) {
          float value;
          __builtin_memcpy(&value, own + t * row_bytes + column * sizeof(value), sizeof(value));
          sums[t][p] = fma(floats, set_f(value), sums[t][p]);
        }
      }
    }
  }
}

template <int kTokens, int kPanels>
inline __attribute__((always_inline)) void add_pairs(const uint8_t* pairs, int64_t panel_bytes,
                                                     int64_t num_pairs, const uint8_t* x,
                                                     int64_t row_bytes,
                                                     F32x16 (&sums)[kTokens][kPanels]) {
  for (int64_t k = 0; k < num_pairs; ++k, pairs += kPairBytes, x += 2 * kInputBytes) {
    I32x16 weights[kPanels];
    for (int p = 0; p < kPanels; ++p) weights[p] = load_i(pairs + p * panel_bytes);
    add_pair(weights, x, row_bytes, sums);
  }
}

// All tokens pass over a stretch of columns of some panels, as it lies or decoded, which stays in
// the second cache; their sums wait in `scratch`, as what is decoded does.
template <int kPanels>
void many_bf16_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                      int64_t num_tokens, int64_t panel, int64_t panel_end, uint8_t* scratch) {
  // Of four panels 256 KB, which leave room in the second cache for inputs and what comes next.
  constexpr int64_t kStretch = kManyColumns;
  constexpr int64_t kDecodedBytes = kLanes * kStretch * 2;
  auto* carry = reinterpret_cast<float*>(scratch + kFloatPanels * kDecodedBytes);
  const bool as_it_lies = w.kind == WeightKind::kBf16;
  const int64_t panel_bytes = as_it_lies ? w.num_columns * kLanes * 2 : kDecodedBytes;
  const int64_t padded = (num_tokens + kLanes - 1) / kLanes * kLanes;
  const FinishedPanels finished(out, num_tokens, carry + padded * kFloatPanels * kLanes);
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    const OutputRows rows = finished.rows(panel);
    for (int64_t first = 0; first < w.num_columns; first += kStretch) {
      const bool is_last = first + kStretch >= w.num_columns;
      const int64_t columns = is_last ? w.num_columns - first : kStretch;
      for (int p = 0; p < kPanels && !as_it_lies; ++p) {
        decode_pairs(w, panel + p, first, columns, scratch + p * kDecodedBytes);
      }
      const uint8_t* pairs = as_it_lies ? packed_columns(w, panel, first) : scratch;
      NextStretch<kPanels> next(w, panel, {first, columns, is_last}, num_tokens / kFloatTokens + 1);
      FetchedLines ahead = next.codes();
      token_tiles<kFloatTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
        if (is_last) fetch_outputs<tokens.value, kPanels>(rows, token, panel);
        F32x16 sums[tokens.value][kPanels];
        float* waiting = carry + token * kPanels * kLanes;
        for (int i = 0; i < tokens.value * kPanels; ++i) {
          sums[i / kPanels][i % kPanels] = first == 0 ? zero_f() : load_f(waiting + i * kLanes);
        }
        const auto* x =
            static_cast<const uint8_t*>(in.codes) + token * in.code_stride + first * kInputBytes;
        for (int64_t k = 0; k < columns; k += kBlockColumns) {
          ahead.template fetch_due<kPanels, 2>(columns / kBlockColumns);
          add_pairs<tokens.value, kPanels>(pairs + k * kLanes * 2, panel_bytes, kPairs,
                                           x + k * kInputBytes, in.code_stride, sums);
        }
        for (int i = 0; i < tokens.value * kPanels; ++i) {
          F32x16& sum = sums[i / kPanels][i % kPanels];
          if (!is_last) store_f(waiting + i * kLanes, sum);
          if (is_last && w.scales != nullptr) sum = mul(sum, row_scales(w, panel + i % kPanels));
        }
        if (is_last) finish_rows<tokens.value, kPanels>(w, rows, token, panel, sums);
      });
    }
    finished.end(panel + kPanels);
  }
  if constexpr (kPanels > 1) {
    many_bf16_linear<kPanels / 2>(w, in, out, num_tokens, panel, panel_end, scratch);
  }
}

// A block of short bf16 that is not wide, widened in registers. What is near is fetched meanwhile.
template <NearFetch kNear, int kTokens>
inline __attribute__((always_inline)) void add_short_block(const uint8_t* block,
                                                           ShortExponents exponents,
                                                           const uint8_t* x, int64_t row_bytes,
                                                           F32x16 (&sums)[kTokens][1]) {
  unroll<kPairs / kQuadPairs>([&](auto index) {
    const uint8_t* quad = block + index.value * kShortQuadBytes;
    const QuadExponents found = quad_exponents(quad + kMantissaBytes, exponents);
    unroll<kQuadPairs>([&](auto place) {
      fetch_quad_share<place.value, kNear>(quad);
      const I32x16 weights[1] = {
          widen_bf16<place.value>(quad + place.value * kPairBytes / 2, found)};
      add_pair(weights, x + 2 * kInputBytes * (index.value * kQuadPairs + place.value), row_bytes,
               sums);
    });
  });
}

// The sums of a panel over all columns.
template <NearFetch kNear, int kTokens>
inline __attribute__((always_inline)) void add_short_panel(const LinearView& w, int64_t panel,
                                                           const uint8_t* x, int64_t row_bytes,
                                                           F32x16 (&sums)[kTokens][1]) {
  constexpr int kPairsInPlace = block_bytes(WeightKind::kBf16Short) / kPairBytes;
  const ShortExponents exponents = load_exponents(w.short_bf16.exponents + panel * kShortExponents);
  const uint8_t* block = packed_columns(w, panel, 0);
  const int64_t num_blocks = w.num_columns / kBlockColumns;
  const uint32_t* rank = w.short_bf16.wide_ranks + panel * num_blocks;
  for (const uint32_t* end = rank + num_blocks; rank < end; ++rank) {
    if (*rank == 0) {
      add_short_block<kNear>(block, exponents, x, row_bytes, sums);
    } else {
      const uint8_t* rest = w.short_bf16.wide_rests + (*rank - 1) * kWideRestBytes;
      add_pairs(block, 0, kPairsInPlace, x, row_bytes, sums);
      add_pairs(rest, 0, kPairs - kPairsInPlace, x + 2 * kInputBytes * kPairsInPlace, row_bytes,
                sums);
      // The next one's.
      for (int64_t byte = 0; byte < kWideRestBytes; byte += 64) {
        __builtin_prefetch(rest + kWideRestBytes + byte, 0, 3);
      }
    }
    block += block_bytes(WeightKind::kBf16Short);
    x += kInputBytes * kBlockColumns;
  }
}

// Up to kMaxTokens: a weight is read once, panel after panel, which is one stream of memory;
// kPanels are finished together.
template <NearFetch kNear, int kMaxTokens, int kPanels>
void few_short_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                      int64_t num_tokens, int64_t panel, int64_t panel_end) {
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    even_tiles<kMaxTokens>(num_tokens, [&](auto tokens, int64_t token) {
      const auto* x = static_cast<const uint8_t*>(in.codes) + token * in.code_stride;
      F32x16 totals[tokens.value][kPanels];
      for (int p = 0; p < kPanels; ++p) {
        F32x16 sums[tokens.value][1];
        for (auto& row : sums) row[0] = zero_f();
        add_short_panel<kNear>(w, panel + p, x, in.code_stride, sums);
        for (int t = 0; t < tokens.value; ++t) totals[t][p] = sums[t][0];
      }
      finish_rows<tokens.value, kPanels>(w, out, token, panel, totals);
    });
  }
  if constexpr (kPanels > 1) {
    few_short_linear<kNear, kMaxTokens, kPanels / 2>(w, in, out, num_tokens, panel, panel_end);
  }
}

void short_few_tokens(const LinearView& w, const InputRows& in, const OutputRows& out,
                      int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void*) {
  constexpr int kBits = weight_bits(WeightKind::kBf16Short);
  if (runs_ahead<kBits>(w, num_tokens)) {
    return few_short_linear<NearFetch::kNowhere, kMaxAheadTokens<kBits>, 2>(w, in, out, num_tokens,
                                                                            panel_begin, panel_end);
  }
  with_near_fetch([&](auto near) {
    few_short_linear<near.value, kFewShortTokens, 2>(w, in, out, num_tokens, panel_begin,
                                                     panel_end);
  });
}

void bf16_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                 int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  many_bf16_linear<kFloatPanels>(w, in, out, num_tokens, panel_begin, panel_end,
                                 static_cast<uint8_t*>(scratch));
}

#endif

}  // namespace
}  // namespace paredown
