// Integer weights for many tokens on vectors: a stretch of columns of two panels is decoded once
// and stays in the first cache while all tokens pass over it; their sums wait in memory.
#pragma once

#include "linear_int.h"

namespace paredown {
namespace {

// Columns of two panels that stay in the first cache: 16 KB of codes.
constexpr int64_t kStretchColumns = 512;

struct Stretch {
  int64_t first;
  int64_t num_columns;
  bool is_last;
};

// Whole groups, or a part of the one group there is.
inline Stretch stretch_at(const LinearView& w, int64_t first, int64_t limit) {
  int64_t columns = limit;
  if (w.num_groups > 1)
    columns = w.group_size > limit ? w.group_size : limit / w.group_size * w.group_size;
  if (first + columns >= w.num_columns) return {first, w.num_columns - first, true};
  return {first, columns, false};
}

// The codes of kPanels panels in a stretch: where they lie, or decoded.
template <int kPanels>
inline CodeSource decoded_source(const LinearView& w, int64_t panel, const Stretch& stretch,
                                 uint8_t* decoded) {
  const int bits = weight_bits(w.kind);
  const int64_t panel_bytes = w.num_columns * kLanes / 8 * bits;
  const uint8_t* codes = static_cast<const uint8_t*>(w.values) + panel * panel_bytes +
                         stretch.first * kLanes / 8 * bits;
  if (bits == 8) return {codes, panel_bytes, 0};
  for (int p = 0; p < kPanels; ++p) {
    uint8_t* target = decoded + p * kDecodedColumns * kLanes;
    if (w.num_steps > 0) {
      decode_stepped(w, panel + p, stretch.first, stretch.num_columns, target);
    } else {
      decode_codes(w.kind, codes + p * panel_bytes, stretch.num_columns, target);
    }
  }
  return {decoded, kDecodedColumns * kLanes, 0};
}

// One group over the whole row: int32 sums wait between stretches.
template <bool kSmall, int kTokens, int kPanels>
inline void row_tile(const LinearView& w, const InputRows& in, const OutputRows& out,
                     CodeSource source, const Stretch& stretch, int64_t token, int64_t panel,
                     float* waiting) {
  I32x16 sums[kTokens][kPanels];
  for (int i = 0; i < kTokens * kPanels; ++i) {
    const int t = i / kPanels;
    const int64_t index = (panel + i % kPanels) * kLanes;
    sums[t][i % kPanels] = stretch.first == 0
                               ? correction(w, index, in.corrections + input_index(token + t, 1, 0))
                               : load_i(waiting + i * kLanes);
  }
  const auto* x = static_cast<const int8_t*>(in.codes) + token * in.code_stride + stretch.first;
  add_products<kSmall, false>(PlainCodes<8>{}, source, stretch.num_columns, x, in.code_stride,
                              sums);
  if (!stretch.is_last) {
    for (int i = 0; i < kTokens * kPanels; ++i) {
      store_i(waiting + i * kLanes, sums[i / kPanels][i % kPanels]);
    }
    return;
  }
  F32x16 totals[kTokens][kPanels];
  for (int i = 0; i < kTokens * kPanels; ++i) {
    totals[i / kPanels][i % kPanels] = to_float(sums[i / kPanels][i % kPanels]);
  }
  finish_tile<kTokens, kPanels>(w, in, out, token, panel, totals);
}

// Several groups: float totals wait between stretches.
template <bool kSmall, int kTokens, int kPanels>
inline void group_tile(const LinearView& w, const InputRows& in, const OutputRows& out,
                       CodeSource source, const Stretch& stretch, int64_t token, int64_t panel,
                       float* waiting) {
  F32x16 totals[kTokens][kPanels];
  for (int i = 0; i < kTokens * kPanels; ++i) {
    totals[i / kPanels][i % kPanels] = stretch.first == 0 ? zero_f() : load_f(waiting + i * kLanes);
  }
  const int64_t group = stretch.first / w.group_size;
  add_groups<8, kSmall, false, kTokens, kPanels>(
      w, in, source, token, panel, group, group + stretch.num_columns / w.group_size, totals);
  if (stretch.is_last) return finish_tile<kTokens, kPanels>(w, in, out, token, panel, totals);
  for (int i = 0; i < kTokens * kPanels; ++i) {
    store_f(waiting + i * kLanes, totals[i / kPanels][i % kPanels]);
  }
}

template <bool kSmall, int kPanels = kIntPanels>
void int_many(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
              int64_t panel, int64_t panel_end, void* scratch) {
  auto* decoded = static_cast<uint8_t*>(scratch);
  auto* carry = reinterpret_cast<float*>(decoded + kPanels * kLanes * kDecodedColumns);
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    Stretch stretch{0, 0, false};
    for (int64_t first = 0; !stretch.is_last; first += stretch.num_columns) {
      stretch = stretch_at(w, first, kStretchColumns);
      const CodeSource source = decoded_source<kPanels>(w, panel, stretch, decoded);
      auto waiting = [&](int64_t token) { return carry + token * kPanels * kLanes; };
      if (w.num_groups == 1) {
        token_tiles<kIntTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
          row_tile<kSmall, tokens.value, kPanels>(w, in, out, source, stretch, token, panel,
                                                  waiting(token));
        });
      } else {
        token_tiles<kGroupTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
          group_tile<kSmall, tokens.value, kPanels>(w, in, out, source, stretch, token, panel,
                                                    waiting(token));
        });
      }
    }
  }
  if constexpr (kPanels > 1) {
    int_many<kSmall, kPanels / 2>(w, in, out, num_tokens, panel, panel_end, scratch);
  }
}

// Several groups too wide to be decoded at once are read in registers, whatever the tokens.
inline bool fits_decoded(const LinearView& w) {
  return w.num_groups == 1 || w.group_size <= kDecodedColumns;
}

}  // namespace
}  // namespace paredown
