// Linear layers. Lanes are output rows, so every output is summed over its columns in one fixed
// order, whatever the number of tokens, the tile or the thread.
#pragma once

#include <cstring>

#include "math.h"

namespace paredown {
namespace {

inline void finish(const LinearView& w, const OutputRows& out, int64_t token, int64_t panel,
                   F32x16 sum) {
  if (w.bias != nullptr) sum = add(sum, load_f(w.bias + panel * kLanes));
  float* target = out.values + token * out.row_stride + panel * kLanes;
  const int64_t num_left = w.num_rows - panel * kLanes;
  if (num_left >= kLanes) {
    store_f(target, out.accumulate ? add(load_f(target), sum) : sum);
    return;
  }
  float lanes[kLanes];
  store_f(lanes, sum);
  for (int64_t i = 0; i < num_left; ++i) {
    target[i] = out.accumulate ? target[i] + lanes[i] : lanes[i];
  }
}

template <WeightKind kKind, int kTokens, int kPanels>
void float_tile(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t token,
                int64_t panel) {
  F32x16 sums[kTokens][kPanels];
  for (auto& row : sums) {
    for (F32x16& sum : row) sum = zero_f();
  }
  const int64_t num_columns = w.num_columns;
  const float* x = in.values + token * in.row_stride;
  for (int64_t k = 0; k < num_columns; ++k) {
    F32x16 weights[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      const int64_t offset = ((panel + p) * num_columns + k) * kLanes;
      if constexpr (kKind == WeightKind::kFp32) {
        weights[p] = load_f(static_cast<const float*>(w.values) + offset);
      } else {
        weights[p] = load_fp16(static_cast<const uint16_t*>(w.values) + offset);
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      const F32x16 value = set_f(x[t * in.row_stride + k]);
      for (int p = 0; p < kPanels; ++p) sums[t][p] = fma(weights[p], value, sums[t][p]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int p = 0; p < kPanels; ++p) finish(w, out, token + t, panel + p, sums[t][p]);
  }
}

// bf16 weights keep the full activation: where the processor multiplies bf16 pairs, x goes in as
// the sum of two bf16 numbers (16 bits of mantissa), elsewhere as float.
template <int kTokens, int kPanels>
void bf16_tile(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t token,
               int64_t panel) {
  F32x16 sums[kTokens][kPanels];
  for (auto& row : sums) {
    for (F32x16& sum : row) sum = zero_f();
  }
  const int64_t num_pairs = w.num_columns / 2;
  const auto* values = static_cast<const uint32_t*>(w.values);
  const float* x = in.values + token * in.row_stride;
  const uint32_t* pairs = in.pairs + token * in.row_stride;
  for (int64_t k = 0; k < num_pairs; ++k) {
    I32x16 weights[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      weights[p] = load_i(values + ((panel + p) * num_pairs + k) * kLanes);
    }
    for (int t = 0; t < kTokens; ++t) {
      if constexpr (kHasBf16Dot) {
        const uint32_t* pair = pairs + t * in.row_stride + 2 * k;
        for (int p = 0; p < kPanels; ++p) {
          sums[t][p] = dot_bf16(sums[t][p], weights[p], pair[0]);
          sums[t][p] = dot_bf16(sums[t][p], weights[p], pair[1]);
        }
      } else {
        const float* value = x + t * in.row_stride + 2 * k;
        for (int p = 0; p < kPanels; ++p) {
          sums[t][p] = fma(even_bf16(weights[p]), set_f(value[0]), sums[t][p]);
          sums[t][p] = fma(odd_bf16(weights[p]), set_f(value[1]), sums[t][p]);
        }
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int p = 0; p < kPanels; ++p) finish(w, out, token + t, panel + p, sums[t][p]);
  }
}

inline F32x16 load_scales(const LinearView& w, int64_t index) {
  if (w.scale_kind == ScaleKind::kFp32) {
    return load_f(static_cast<const float*>(w.scales) + index);
  }
  return load_bf16(static_cast<const uint16_t*>(w.scales) + index);
}

inline I32x16 broadcast_codes(const int8_t* codes) {
  int32_t four;
  std::memcpy(&four, codes, sizeof(four));
  return set_i(four);
}

// The products of one group of columns, added to `sums`: codes times codes, exact in int32.
template <int kBits, int kTokens, int kPanels>
inline void int_group(const LinearView& w, const InputRows& in, int64_t token, int64_t panel,
                      int64_t group, I32x16 (&sums)[kTokens][kPanels]) {
  constexpr int64_t kColumns = kBits == 4 ? 8 : 4;  // columns per 64 bytes of a panel
  const int64_t panel_bytes = w.num_columns * kLanes * kBits / 8;
  const int64_t first = group * w.group_size;
  const uint8_t* values =
      static_cast<const uint8_t*>(w.values) + panel * panel_bytes + first / kColumns * 64;
  const int8_t* codes = in.codes + token * in.code_stride + first;
  for (int64_t k = 0; k < w.group_size; k += kColumns, values += 64) {
    for (int p = 0; p < kPanels; ++p) {
      const U8x64 raw = load_u8(values + p * panel_bytes);
      const U8x64 low = kBits == 4 ? low_nibbles(raw) : raw;
      for (int t = 0; t < kTokens; ++t) {
        const int8_t* x = codes + t * in.code_stride + k;
        sums[t][p] = dot4<kBits>(sums[t][p], low, broadcast_codes(x));
        if constexpr (kBits == 4) {
          sums[t][p] = dot4<kBits>(sums[t][p], high_nibbles(raw), broadcast_codes(x + 4));
        }
      }
    }
  }
}

// y = sum over groups of x_scale * w_scale * (sum of w_code * x_code - zero_point * sum of x_code)
template <int kBits, int kTokens, int kPanels>
void int_tile(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t token,
              int64_t panel) {
  F32x16 totals[kTokens][kPanels];
  for (auto& row : totals) {
    for (F32x16& total : row) total = zero_f();
  }
  const bool per_row_scale = w.weight_groups == 1;
  for (int64_t group = 0; group < w.num_groups; ++group) {
    const int64_t weight_group = per_row_scale ? 0 : group;
    I32x16 sums[kTokens][kPanels];
    for (int p = 0; p < kPanels; ++p) {
      const int64_t index = ((panel + p) * w.weight_groups + weight_group) * kLanes;
      for (int t = 0; t < kTokens; ++t) {
        const int32_t code_sum = in.sums[(token + t) * in.group_stride + group];
        sums[t][p] = w.zero_points == nullptr
                         ? set_i(-code_sum * (1 << (kBits - 1)))
                         : mul(load_u8_as_i32(w.zero_points + index), set_i(-code_sum));
      }
    }
    int_group<kBits, kTokens, kPanels>(w, in, token, panel, group, sums);
    for (int p = 0; p < kPanels; ++p) {
      const F32x16 scale = per_row_scale
                               ? set_f(1.0f)
                               : load_scales(w, ((panel + p) * w.weight_groups + group) * kLanes);
      for (int t = 0; t < kTokens; ++t) {
        const F32x16 x_scale = set_f(in.scales[(token + t) * in.group_stride + group]);
        const F32x16 product = to_float(sums[t][p]);
        totals[t][p] = fma(per_row_scale ? product : mul(product, scale), x_scale, totals[t][p]);
      }
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    const F32x16 scale = per_row_scale ? load_scales(w, (panel + p) * kLanes) : set_f(1.0f);
    for (int t = 0; t < kTokens; ++t) {
      const F32x16 total = per_row_scale ? mul(totals[t][p], scale) : totals[t][p];
      finish(w, out, token + t, panel + p, total);
    }
  }
}

template <WeightKind kKind, int kTokens, int kPanels>
void tile(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t token,
          int64_t panel) {
  if constexpr (kKind == WeightKind::kInt4) {
    int_tile<4, kTokens, kPanels>(w, in, out, token, panel);
  } else if constexpr (kKind == WeightKind::kInt8) {
    int_tile<8, kTokens, kPanels>(w, in, out, token, panel);
  } else if constexpr (kKind == WeightKind::kBf16) {
    bf16_tile<kTokens, kPanels>(w, in, out, token, panel);
  } else {
    float_tile<kKind, kTokens, kPanels>(w, in, out, token, panel);
  }
}

// The last few tokens of a column of tiles: as many as are left, at most kTokens.
template <WeightKind kKind, int kTokens, int kPanels>
void tile_of(int64_t num_tokens, const LinearView& w, const InputRows& in, const OutputRows& out,
             int64_t token, int64_t panel) {
  if constexpr (kTokens > 1) {
    if (num_tokens < kTokens) {
      return tile_of<kKind, kTokens - 1, kPanels>(num_tokens, w, in, out, token, panel);
    }
  }
  tile<kKind, kTokens, kPanels>(w, in, out, token, panel);
}

template <WeightKind kKind, int kTokens, int kPanels>
void linear_with(const LinearView& w, const InputRows& in, const OutputRows& out,
                 int64_t num_tokens, int64_t panel_begin, int64_t panel_end) {
  int64_t panel = panel_begin;
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    for (int64_t token = 0; token < num_tokens; token += kTokens) {
      tile_of<kKind, kTokens, kPanels>(num_tokens - token, w, in, out, token, panel);
    }
  }
  if constexpr (kPanels > 1) {
    linear_with<kKind, kTokens, 1>(w, in, out, num_tokens, panel, panel_end);
  }
}

void linear(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
            int64_t panel_begin, int64_t panel_end) {
  switch (w.kind) {
    case WeightKind::kFp32:
      return linear_with<WeightKind::kFp32, kFloatTokens, kFloatPanels>(w, in, out, num_tokens,
                                                                        panel_begin, panel_end);
    case WeightKind::kFp16:
      return linear_with<WeightKind::kFp16, kFloatTokens, kFloatPanels>(w, in, out, num_tokens,
                                                                        panel_begin, panel_end);
    case WeightKind::kBf16:
      return linear_with<WeightKind::kBf16, kFloatTokens, kFloatPanels>(w, in, out, num_tokens,
                                                                        panel_begin, panel_end);
    case WeightKind::kInt8:
      return linear_with<WeightKind::kInt8, kIntTokens, kIntPanels>(w, in, out, num_tokens,
                                                                    panel_begin, panel_end);
    case WeightKind::kInt4:
      return linear_with<WeightKind::kInt4, kIntTokens, kIntPanels>(w, in, out, num_tokens,
                                                                    panel_begin, panel_end);
  }
}

// Symmetric int8 per row and group: code = round(x * 127 / max|x|).
inline void quantize_group(const float* x, int64_t size, int8_t* codes, float* scale,
                           int32_t* sum) {
  F32x16 largest = zero_f();
  for (int64_t i = 0; i < size; i += kLanes) largest = max(largest, abs(load_f(x + i)));
  const float limit = max_lanes(largest);
  *scale = limit / 127.0f;
  const F32x16 inverse = set_f(limit > 0.0f ? 127.0f / limit : 0.0f);
  I32x16 total = zero_i();
  for (int64_t i = 0; i < size; i += kLanes) {
    const I32x16 code = to_int(mul(load_f(x + i), inverse));
    total = add(total, code);
    store_i8(codes + i, code);
  }
  *sum = sum_lanes(total);
}

inline void split_bf16(const float* x, int64_t size, uint32_t* pairs) {
  uint16_t high[kLanes];
  uint16_t low[kLanes];
  for (int64_t i = 0; i < size; i += kLanes) {
    const F32x16 value = load_f(x + i);
    store_bf16(high, value);
    store_bf16(low, sub(value, load_bf16(high)));
    for (int j = 0; j < kLanes; j += 2) {
      std::memcpy(pairs + i + j, high + j, sizeof(uint32_t));
      std::memcpy(pairs + i + j + 1, low + j, sizeof(uint32_t));
    }
  }
}

void prepare(const LinearView& w, const InputRows& in, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* x = in.values + row * in.row_stride;
    if (w.kind == WeightKind::kInt8 || w.kind == WeightKind::kInt4) {
      for (int64_t group = 0; group < w.num_groups; ++group) {
        const int64_t first = group * w.group_size;
        quantize_group(x + first, w.group_size, in.codes + row * in.code_stride + first,
                       in.scales + row * in.group_stride + group,
                       in.sums + row * in.group_stride + group);
      }
    } else if (w.kind == WeightKind::kBf16 && kHasBf16Dot) {
      split_bf16(x, w.num_columns, in.pairs + row * in.row_stride);
    }
  }
}

}  // namespace
}  // namespace paredown
