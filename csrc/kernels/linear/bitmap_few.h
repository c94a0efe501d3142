// Few tokens times weights whose zeros are a bit each: blocks are expanded in registers and meet
// the products that dense blocks meet, in the same order. A weight is read once, panel after panel.
#pragma once

#include "kernels/linear/bf16.h"
#include "kernels/linear/expand.h"
#include "kernels/linear/int_few.h"

namespace paredown {
namespace {

// The groups of a panel of int8, added to `totals`: as add_groups does of what lies dense.
template <NearFetch kNear, bool kReads, int kChains, int kTokens>
inline __attribute__((always_inline)) void add_bitmap_groups(const LinearView& w,
                                                             const InputRows& in, int64_t token,
                                                             int64_t panel,
                                                             F32x16 (&totals)[kTokens][1]) {
  const auto* x = static_cast<const int8_t*>(in.codes) + token * in.code_stride;
  const int32_t* corrections = in.corrections + input_index(token, w.num_groups, 0);
  const float* x_scales = in.scales + input_index(token, w.input_groups, 0);
  const uint8_t* at = bitmap_columns(w, panel, 0);
  for (int64_t group = 0; group < w.num_groups; ++group, corrections += kLanes) {
    I32x16 sums[kTokens][kChains];
    const int64_t index = (panel * w.weight_groups + (w.weight_groups == 1 ? 0 : group)) * kLanes;
    const F32x16 scale = load_scales(w, index);
    for (int t = 0; t < kTokens; ++t) {
      const I32x16 first = kReads ? begin_bits(w, index, corrections + t, x_scales + t)
                                  : correction(w, index, corrections + t);
      start_chains<1, kChains>(first, 0, sums[t]);
    }
    for (int64_t k = 0; k < w.group_size; k += kBlockColumns, x += kBlockColumns) {
      BitmapBlock block = block_at(at);
      unroll<kQuads>([&](auto quad) __attribute__((always_inline)) {
        fetch_near<kNear>(block.numbers);
        const U8x64 codes = block.quad<quad.value>();
        for (int t = 0; t < kTokens; ++t) {
          I32x16& sum = sums[t][quad.value % kChains];
          sum = dot4_of<8>(sum, codes, x + t * in.code_stride + 4 * quad.value);
        }
      });
      at = block.numbers;
    }
    for (int t = 0; t < kTokens; ++t) {
      const float x_scale = w.input_groups == 1 ? 1.0f : x_scales[t];
      const I32x16 sum = whole_sum<1, kChains>(sums[t], 0);
      if constexpr (kReads) {
        const F32x16 product = sub(bits_as_float(sum), set_f(x_scale));
        totals[t][0] = fma(product, scale, totals[t][0]);
      } else {
        totals[t][0] = add_group(w, totals[t][0], sum, scale, x_scale);
      }
    }
    if (w.input_groups > 1) x_scales += kLanes;
  }
}

template <NearFetch kNear, int kTokens, int kPanels>
void bitmap_few_codes(const LinearView& w, const InputRows& in, const OutputRows& out,
                      int64_t num_tokens, int64_t panel, int64_t panel_end) {
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    token_tiles<kTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
      constexpr int kChains = num_chains<8, false>(tokens.value);
      F32x16 totals[tokens.value][kPanels];
      for (int p = 0; p < kPanels; ++p) {
        F32x16 part[tokens.value][1];
        for (auto& row : part) row[0] = zero_f();
        if (may_read_bits(w)) {
          add_bitmap_groups<kNear, kReadsBits, kChains>(w, in, token, panel + p, part);
        } else {
          add_bitmap_groups<kNear, false, kChains>(w, in, token, panel + p, part);
        }
        for (int t = 0; t < tokens.value; ++t) totals[t][p] = part[t][0];
      }
      finish_tile<tokens.value, kPanels>(w, in, out, token, panel, totals);
    });
  }
  if constexpr (kPanels > 1) {
    bitmap_few_codes<kNear, kTokens, kPanels / 2>(w, in, out, num_tokens, panel, panel_end);
  }
}

// Loads run far ahead of what is expanded: fetching takes requests away from them on Zen 4, which
// fetches one stream of memory itself (2,048 columns, one token: 1.4 ns for 64 codes of int8, 2.7
// with kSecondCache; docs/log.md 2026-11-27).
template <class Body>
inline void with_bitmap_fetch(Body&& body) {
  if (on_zen4()) return body(std::integral_constant<NearFetch, NearFetch::kNowhere>{});
  body(std::integral_constant<NearFetch, NearFetch::kFirstCache>{});
}

void bitmap_few_tokens(const LinearView& w, const InputRows& in, const OutputRows& out,
                       int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void*) {
  with_bitmap_fetch([&](auto near) {
    if (num_tokens == 1) {
      return bitmap_few_codes<near.value, 1, kIntPanels>(w, in, out, num_tokens, panel_begin,
                                                         panel_end);
    }
    bitmap_few_codes<near.value, kSerialTokens, kIntPanels>(w, in, out, num_tokens, panel_begin,
                                                            panel_end);
  });
}

#if !defined(PAREDOWN_HAS_TILES)

// Blocks of short numbers of kPanels panels, added to the sums of some tokens: pairs of columns in
// their order. One panel's sums would wait for their own last product.
template <NearFetch kNear, int kTokens, int kPanels>
inline __attribute__((always_inline)) void add_short_bitmaps(const LinearView& w, int64_t panel,
                                                             const uint8_t* x, int64_t row_bytes,
                                                             F32x16 (&sums)[kTokens][kPanels]) {
  constexpr int64_t kBytes = block_bytes(WeightKind::kBf16);
  const uint8_t* at[kPanels];
  for (int p = 0; p < kPanels; ++p) at[p] = bitmap_columns(w, panel + p, 0);
  const uint8_t* upper_bytes = w.bitmap.upper_bytes + panel * kUpperBytes;
  for (int64_t k = 0; k < w.num_columns; k += kBlockColumns, x += kInputBytes * kBlockColumns) {
    int any_wide = 0;
    for (int p = 0; p < kPanels; ++p) any_wide |= *at[p];
    if (any_wide != 0) {
      alignas(64) uint8_t pairs[kPanels * kBytes];
      for (int p = 0; p < kPanels; ++p) {
        at[p] = expand_short_block(at[p], upper_bytes + p * kUpperBytes, pairs + p * kBytes);
      }
      add_pairs(pairs, kBytes, kPairs, x, row_bytes, sums);
      continue;
    }
    BitmapBlock blocks[kPanels];
    for (int p = 0; p < kPanels; ++p) blocks[p] = block_at(at[p] + 1);
    unroll<kMasks>([&](auto mask) __attribute__((always_inline)) {
      I32x16 first[kPanels];
      I32x16 second[kPanels];
      for (int p = 0; p < kPanels; ++p) {
        fetch_near<kNear>(blocks[p].numbers);
        blocks[p].template shorts<mask.value>(upper_bytes + p * kUpperBytes, first[p], second[p]);
      }
      add_pair(first, x + 4 * kInputBytes * mask.value, row_bytes, sums);
      add_pair(second, x + 4 * kInputBytes * mask.value + 2 * kInputBytes, row_bytes, sums);
    });
    for (int p = 0; p < kPanels; ++p) at[p] = blocks[p].numbers;
  }
}

template <NearFetch kNear, int kMaxTokens, int kPanels>
void few_short_bitmaps(const LinearView& w, const InputRows& in, const OutputRows& out,
                       int64_t num_tokens, int64_t panel, int64_t panel_end) {
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    even_tiles<kMaxTokens>(num_tokens, [&](auto tokens, int64_t token) {
      const auto* x = static_cast<const uint8_t*>(in.codes) + token * in.code_stride;
      F32x16 sums[tokens.value][kPanels];
      for (auto& row : sums) {
        for (F32x16& sum : row) sum = zero_f();
      }
      add_short_bitmaps<kNear>(w, panel, x, in.code_stride, sums);
      finish_rows<tokens.value, kPanels>(w, out, token, panel, sums);
    });
  }
  if constexpr (kPanels > 1) {
    few_short_bitmaps<kNear, kMaxTokens, kPanels / 2>(w, in, out, num_tokens, panel, panel_end);
  }
}

void short_bitmap_few_tokens(const LinearView& w, const InputRows& in, const OutputRows& out,
                             int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void*) {
  with_bitmap_fetch([&](auto near) {
    few_short_bitmaps<near.value, kFewShortTokens / 2, 2>(w, in, out, num_tokens, panel_begin,
                                                          panel_end);
  });
}

#endif

}  // namespace
}  // namespace paredown
