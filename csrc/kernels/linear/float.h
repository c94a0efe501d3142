// Floats and fp8 times fp32 inputs: fp8 becomes floats, and a scale is applied to the sum of its
// group.
#pragma once

#include "kernels/linear/finish.h"

namespace paredown {
namespace {

// A column of plain numbers; kColumn counts within a pair for bf16.
template <WeightKind kKind, int kColumn>
inline F32x16 plain_column(const uint8_t* values) {
  if constexpr (kKind == WeightKind::kFp32) return load_f(reinterpret_cast<const float*>(values));
  if constexpr (kKind == WeightKind::kFp16) {
    return load_fp16(reinterpret_cast<const uint16_t*>(values));
  }
  if constexpr (kKind == WeightKind::kBf16) {
    return kColumn == 0 ? even_bf16(load_i(values)) : odd_bf16(load_i(values));
  }
}

// The numbers at `values` of kPanels panels times `num_columns` columns of the inputs, added to
// `sums`.
template <WeightKind kKind, int kTokens, int kPanels>
inline void add_plain(const uint8_t* values, int64_t panel_bytes, int64_t num_columns,
                      const float* x, int64_t row_stride, F32x16 (&sums)[kTokens][kPanels]) {
  constexpr int kStep = kKind == WeightKind::kBf16 ? 2 : 1;
  constexpr int64_t kStepBytes = block_bytes(kKind) / kBlockColumns * kStep;
  for (int64_t k = 0; k < num_columns; k += kStep, values += kStepBytes) {
    unroll<kStep>([&](auto column) {
      F32x16 weights[kPanels];
      for (int p = 0; p < kPanels; ++p) {
        weights[p] = plain_column<kKind, column.value>(values + p * panel_bytes);
      }
      for (int t = 0; t < kTokens; ++t) {
        const F32x16 value = set_f(x[t * row_stride + k + column.value]);
        for (int p = 0; p < kPanels; ++p) sums[t][p] = fma(weights[p], value, sums[t][p]);
      }
    });
  }
}

// plain numbers [T][row_stride] in `x`.
template <WeightKind kKind, int kPanels>
void plain_linear(const LinearView& w, const float* x, int64_t row_stride, const OutputRows& out,
                  int64_t num_tokens, int64_t panel, int64_t panel_end) {
  const int64_t panel_bytes = w.num_columns / kBlockColumns * block_bytes(kKind);
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    const auto* values = static_cast<const uint8_t*>(w.values) + panel * panel_bytes;
    token_tiles<kFloatTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
      F32x16 sums[tokens.value][kPanels];
      for (auto& row : sums) {
        for (F32x16& sum : row) sum = zero_f();
      }
      add_plain<kKind>(values, panel_bytes, w.num_columns, x + token * row_stride, row_stride,
                       sums);
      for (int t = 0; t < tokens.value; ++t) finish<kPanels>(w, out, token + t, panel, sums[t]);
    });
  }
  if constexpr (kPanels > 1) {
    plain_linear<kKind, kPanels / 2>(w, x, row_stride, out, num_tokens, panel, panel_end);
  }
}

// y = sum over groups of scale * sum of value * x; blocks of fp8 become floats in the first cache.
template <int kTokens, int kPanels>
void fp8_tile(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t token,
              int64_t panel) {
  constexpr int64_t kPanelFloats = kBlockColumns * kLanes;
  alignas(64) float columns[kPanels * kPanelFloats];
  F32x16 totals[kTokens][kPanels];
  for (auto& row : totals) {
    for (F32x16& total : row) total = zero_f();
  }
  const int64_t num_blocks = w.num_columns / kBlockColumns;
  const auto* values =
      static_cast<const uint8_t*>(w.values) + panel * num_blocks * block_bytes(w.kind);
  for (int64_t group = 0; group < w.num_groups; ++group) {
    F32x16 sums[kTokens][kPanels];
    for (auto& row : sums) {
      for (F32x16& sum : row) sum = zero_f();
    }
    for (int64_t k = group * w.group_size; k < (group + 1) * w.group_size; k += kBlockColumns) {
      for (int p = 0; p < kPanels; ++p) {
        decode_fp8_floats(values + (p * num_blocks + k / kBlockColumns) * block_bytes(w.kind),
                          columns + p * kPanelFloats);
      }
      add_plain<WeightKind::kFp32>(reinterpret_cast<const uint8_t*>(columns), kPanelFloats * 4,
                                   kBlockColumns, in.values + token * in.row_stride + k,
                                   in.row_stride, sums);
    }
    for (int p = 0; p < kPanels; ++p) {
      const int64_t of_row = (panel + p) * w.weight_groups;
      const int64_t index = (of_row + (w.weight_groups == 1 ? 0 : group)) * kLanes;
      const F32x16 scale = load_scales(w, index);
      for (int t = 0; t < kTokens; ++t) totals[t][p] = fma(sums[t][p], scale, totals[t][p]);
    }
  }
  for (int t = 0; t < kTokens; ++t) finish<kPanels>(w, out, token + t, panel, totals[t]);
}

template <int kPanels>
void fp8_panels(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
                int64_t panel, int64_t panel_end) {
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    token_tiles<kFp8Tokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
      fp8_tile<tokens.value, kPanels>(w, in, out, token, panel);
    });
  }
  if constexpr (kPanels > 1) {
    fp8_panels<kPanels / 2>(w, in, out, num_tokens, panel, panel_end);
  }
}

void fp8_linear(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
                int64_t panel_begin, int64_t panel_end, void*) {
  fp8_panels<2>(w, in, out, num_tokens, panel_begin, panel_end);
}

void float_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                  int64_t num_tokens, int64_t panel, int64_t panel_end, void*) {
  switch (w.kind) {
    case WeightKind::kFp32:
      return plain_linear<WeightKind::kFp32, kFloatPanels>(w, in.values, in.row_stride, out,
                                                           num_tokens, panel, panel_end);
    case WeightKind::kFp16:
      return plain_linear<WeightKind::kFp16, kFloatPanels>(w, in.values, in.row_stride, out,
                                                           num_tokens, panel, panel_end);
    default:
      return plain_linear<WeightKind::kBf16, kFloatPanels>(w, in.values, in.row_stride, out,
                                                           num_tokens, panel, panel_end);
  }
}

}  // namespace
}  // namespace paredown
