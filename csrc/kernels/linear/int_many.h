// Integer weights for many tokens on vectors: a stretch of columns of some panels is decoded once
// and stays in the caches while all tokens pass over it; their sums wait in memory for the next.
#pragma once

#include "kernels/linear/expand.h"
#include "kernels/linear/int_groups.h"
#include "kernels/linear/next_input.h"

namespace paredown {
namespace {

// Columns of a stretch. Four panels take 24 products for four loads of codes, which the second
// cache gives without delay: codes that lie in the weight are whole rows then, decoded ones as many
// as there is room for. What begins and ends a stretch costs more than loads from the first cache
// save.
constexpr int64_t kStretchColumns = 512;
// Up to so many tokens codes just decoded are read so few times that the first cache must have
// them.
constexpr int64_t kFewReadings = 64;
static_assert(1024 / kManyPanels <= kGroupStretchColumns);
static_assert(kGroupStretchColumns / kBlockColumns * kManyPanels * kLanes <= kScaleFloats);
inline int64_t stretch_columns(const LinearView& w, int64_t num_tokens) {
  const bool few = num_tokens <= kFewReadings;
  if (w.num_groups > 1) return few ? 1024 / kManyPanels : kGroupStretchColumns;
  if (kManyPanels < 4) return kStretchColumns;
  if (w.kind == WeightKind::kInt8) return w.num_columns;
  return few ? kStretchColumns : kManyColumns;
}

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
  const bool as_bytes = w.kind == WeightKind::kInt8;
  if (as_bytes && !has_input_groups(w)) return {codes, panel_bytes, 0};
  for (int p = 0; p < kPanels; ++p) {
    uint8_t* target = decoded + p * kDecodedPanelBytes;
    if (as_bytes) {
      std::memcpy(target, codes + p * panel_bytes,
                  static_cast<size_t>(stretch.num_columns * kLanes));
    } else if (traits_of(w.kind).is_bitmap) {
      expand_codes(w, panel + p, stretch.first, stretch.num_columns, target);
    } else if (w.num_steps > 0) {
      decode_stepped(w, panel + p, stretch.first, stretch.num_columns, target);
    } else {
      decode_codes(w.kind, codes + p * panel_bytes, stretch.num_columns, target);
    }
  }
  return {decoded, kDecodedPanelBytes, 0};
}

// The scales of a stretch of kPanels panels as floats.
template <int kPanels>
inline void widen_scales(const LinearView& w, int64_t panel, const Stretch& stretch,
                         float* scales) {
  const int64_t end = (stretch.first + stretch.num_columns) / w.group_size;
  for (int64_t group = stretch.first / w.group_size; group < end; ++group) {
    for (int p = 0; p < kPanels; ++p, scales += kLanes) {
      store_f(scales, load_scales(w, ((panel + p) * w.weight_groups + group) * kLanes));
    }
  }
}

// One group over the whole row: int32 sums wait between stretches.
template <int kDotBits, int kTokens, int kPanels>
__attribute__((noinline)) void row_tile(const LinearView& w, const InputRows& in,
                                        const OutputRows& out, const ReadStretch& stretch,
                                        int64_t token, int64_t panel, float* waiting) {
  if (stretch.is_last) fetch_outputs<kTokens, kPanels>(out, token, panel);
  I32x16 sums[kTokens][kPanels];
  for (int i = 0; i < kTokens * kPanels; ++i) {
    const int t = i / kPanels;
    const int64_t index = (panel + i % kPanels) * kLanes;
    sums[t][i % kPanels] = stretch.first == 0
                               ? correction(w, index, in.corrections + input_index(token + t, 1, 0))
                               : load_i(waiting + i * kLanes);
  }
  const auto* x = static_cast<const int8_t*>(in.codes) + token * in.code_stride + stretch.first;
  add_products<kDotBits, NearFetch::kNowhere>(PlainCodes<8>{}, stretch.source, stretch.num_columns,
                                              x, in.code_stride, sums);
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

// All tokens through a stretch of kPanels panels.
template <int kDotBits, int kPanels>
inline void stretch_tiles(const LinearView& w, const InputRows& in, const OutputRows& out,
                          const ReadStretch& stretch, int64_t num_tokens, int64_t panel,
                          float* carry) {
  auto waiting = [&](int64_t token) { return carry + token * kPanels * kLanes; };
  if (w.num_groups == 1) {
    NextStretch<kPanels> next(w, panel, stretch, num_tokens / kIntTokens + 1);
    return token_tiles<kIntTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
      next.fetch_share();
      row_tile<kDotBits, tokens.value, kPanels>(w, in, out, stretch, token, panel, waiting(token));
    });
  }
  NextStretch<kPanels> next(w, panel, stretch, num_tokens / kManyGroupTokens + 1);
  token_tiles<kManyGroupTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
    constexpr int kTokens = tokens.value;
    next.fetch_share();
    any_group_tile<kDotBits, kTokens, kPanels>(w, in, out, stretch, token, panel, waiting(token));
  });
}

template <int kDotBits, int kPanels = kManyPanels>
void int_many(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
              int64_t panel, int64_t panel_end, void* scratch) {
  auto* decoded = static_cast<uint8_t*>(scratch);
  auto* scales = reinterpret_cast<float*>(decoded + kManyPanels * kLanes * kManyColumns);
  float* carry = scales + kScaleFloats;
  const int64_t padded = (num_tokens + kLanes - 1) / kLanes * kLanes;
  const FinishedPanels finished(out, num_tokens, carry + padded * kManyPanels * kLanes);
  const int64_t limit = stretch_columns(w, num_tokens);
  const bool reads_bits = may_read_bits(w);
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    const OutputRows rows = finished.rows(panel);
    Stretch stretch{0, 0, false};
    for (int64_t first = 0; !stretch.is_last; first += stretch.num_columns) {
      stretch = stretch_at(w, first, limit);
      const CodeSource source = decoded_source<kPanels>(w, panel, stretch, decoded);
      if (reads_bits) widen_scales<kPanels>(w, panel, stretch, scales);
      stretch_tiles<kDotBits, kPanels>(
          w, in, rows, {stretch, source, reads_bits ? scales : nullptr}, num_tokens, panel, carry);
    }
    finished.end(panel + kPanels);
  }
  if constexpr (kPanels > 1) {
    int_many<kDotBits, kPanels / 2>(w, in, out, num_tokens, panel, panel_end, scratch);
  }
}

void int_many_tokens(const LinearView& w, const InputRows& in, const OutputRows& out,
                     int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  auto run = [&](auto bits) {
    int_many<bits.value>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  };
  const int bits = w.num_steps > 0 ? 8 : dot_bits(weight_bits(w.kind));
  if (bits == 4) return run(Index<dot_bits(4)>{});
  if (bits == 6) return run(Index<dot_bits(6)>{});
  run(Index<8>{});
}

}  // namespace
}  // namespace paredown
