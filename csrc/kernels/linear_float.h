// Weights of any format times fp32 inputs: codes become floats in registers, and a scale is
// applied to the sum of its group.
#pragma once

#include "finish.h"

namespace paredown {
namespace {

constexpr bool is_coded(WeightKind kind) {
  return is_integer(kind) || kind == WeightKind::kFp8;
}

// Sums of a run of blocks of plain numbers, added to `sums`.
template <WeightKind kKind, int kTokens, int kPanels>
inline void add_plain(const LinearView& w, const float* x, int64_t row_stride, int64_t panel,
                      F32x16 (&sums)[kTokens][kPanels]) {
  constexpr bool kPaired = kKind == WeightKind::kBf16;
  constexpr int64_t kStepBytes = block_bytes(kKind) / kBlockColumns * (kPaired ? 2 : 1);
  const int64_t panel_bytes = w.num_columns / kBlockColumns * block_bytes(kKind);
  const uint8_t* values = static_cast<const uint8_t*>(w.values) + panel * panel_bytes;
  constexpr int kStep = kPaired ? 2 : 1;
  for (int64_t k = 0; k < w.num_columns; k += kStep, values += kStepBytes) {
    unroll<kStep>([&](auto column) {
      F32x16 weights[kPanels];
      for (int p = 0; p < kPanels; ++p) {
        weights[p] = block_column<kKind, column.value>(values + p * panel_bytes, zero_f());
      }
      for (int t = 0; t < kTokens; ++t) {
        const F32x16 value = set_f(x[t * row_stride + k + column.value]);
        for (int p = 0; p < kPanels; ++p) sums[t][p] = fma(weights[p], value, sums[t][p]);
      }
    });
  }
}

template <WeightKind kKind, int kTokens, int kPanels>
void plain_tile(const LinearView& w, const float* x, int64_t row_stride, const OutputRows& out,
                int64_t token, int64_t panel) {
  F32x16 sums[kTokens][kPanels];
  for (auto& row : sums) {
    for (F32x16& sum : row) sum = zero_f();
  }
  add_plain<kKind, kTokens, kPanels>(w, x + token * row_stride, row_stride, panel, sums);
  for (int t = 0; t < kTokens; ++t) finish<kPanels>(w, out, token + t, panel, sums[t]);
}

inline F32x16 zero_points_of(const LinearView& w, int64_t index) {
  if (!is_integer(w.kind)) return zero_f();
  if (w.zero_points != nullptr) return to_float(load_u8_as_i32(w.zero_points + index));
  return set_f(static_cast<float>(1 << (weight_bits(w.kind) - 1)));
}

// Sums of one group of codes, from zero.
template <WeightKind kKind, int kTokens, int kPanels>
inline void coded_group(const LinearView& w, const float* x, int64_t row_stride,
                        const uint8_t* blocks, const F32x16 (&zero_points)[kPanels],
                        F32x16 (&sums)[kTokens][kPanels]) {
  const int64_t panel_bytes = w.num_columns / kBlockColumns * block_bytes(kKind);
  for (int64_t k = 0; k < w.group_size; k += kBlockColumns, blocks += block_bytes(kKind)) {
    unroll<kBlockColumns>([&](auto column) {
      F32x16 weights[kPanels];
      for (int p = 0; p < kPanels; ++p) {
        weights[p] = block_column<kKind, column.value>(blocks + p * panel_bytes, zero_points[p]);
      }
      for (int t = 0; t < kTokens; ++t) {
        const F32x16 value = set_f(x[t * row_stride + k + column.value]);
        for (int p = 0; p < kPanels; ++p) sums[t][p] = fma(weights[p], value, sums[t][p]);
      }
    });
  }
}

// y = sum over groups of scale * sum of (code - zero_point) * x
template <WeightKind kKind, int kTokens, int kPanels>
void coded_tile(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t token,
                int64_t panel) {
  F32x16 totals[kTokens][kPanels];
  for (auto& row : totals) {
    for (F32x16& total : row) total = zero_f();
  }
  const int64_t panel_bytes = w.num_columns / kBlockColumns * block_bytes(kKind);
  const auto* values = static_cast<const uint8_t*>(w.values) + panel * panel_bytes;
  for (int64_t group = 0; group < w.num_groups; ++group) {
    F32x16 sums[kTokens][kPanels];
    F32x16 zero_points[kPanels];
    F32x16 scales[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      const int64_t weight_group = w.weight_groups == 1 ? 0 : group;
      const int64_t index = ((panel + p) * w.weight_groups + weight_group) * kLanes;
      zero_points[p] = zero_points_of(w, index);
      scales[p] = load_scales(w, index);
      for (int t = 0; t < kTokens; ++t) sums[t][p] = zero_f();
    }
    const int64_t first = group * w.group_size;
    coded_group<kKind, kTokens, kPanels>(w, in.values + token * in.row_stride + first,
                                         in.row_stride,
                                         values + first / kBlockColumns * block_bytes(kKind),
                                         zero_points, sums);
    for (int t = 0; t < kTokens; ++t) {
      for (int p = 0; p < kPanels; ++p) totals[t][p] = fma(sums[t][p], scales[p], totals[t][p]);
    }
  }
  for (int t = 0; t < kTokens; ++t) finish<kPanels>(w, out, token + t, panel, totals[t]);
}

// plain numbers [T][row_stride] in `x`.
template <WeightKind kKind, int kPanels>
void plain_linear(const LinearView& w, const float* x, int64_t row_stride, const OutputRows& out,
                  int64_t num_tokens, int64_t panel, int64_t panel_end) {
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    token_tiles<kFloatTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
      plain_tile<kKind, tokens.value, kPanels>(w, x, row_stride, out, token, panel);
    });
  }
  if constexpr (kPanels > 1) {
    plain_linear<kKind, kPanels / 2>(w, x, row_stride, out, num_tokens, panel, panel_end);
  }
}

template <WeightKind kKind, int kPanels = 2>
void coded_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                  int64_t num_tokens, int64_t panel, int64_t panel_end) {
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    token_tiles<kCodedTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
      coded_tile<kKind, tokens.value, kPanels>(w, in, out, token, panel);
    });
  }
  if constexpr (kPanels > 1) {
    coded_linear<kKind, kPanels / 2>(w, in, out, num_tokens, panel, panel_end);
  }
}

template <WeightKind kKind>
void float_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                  int64_t num_tokens, int64_t panel_begin, int64_t panel_end) {
  if constexpr (is_coded(kKind)) {
    coded_linear<kKind>(w, in, out, num_tokens, panel_begin, panel_end);
  } else {
    plain_linear<kKind, kFloatPanels>(w, in.values, in.row_stride, out, num_tokens, panel_begin,
                                      panel_end);
  }
}

}  // namespace
}  // namespace paredown
