// Codes times fp32 inputs, at the pace of floats: few tokens decode in registers, for more a
// stretch of columns is decoded once and stays in the second cache. The bits are those of
// `coded_linear`: the sum of each group is made column by column, then multiplied with its scale.
#pragma once

#include "kernels/linear/float.h"
#include "kernels/linear/stretch.h"

namespace paredown {
namespace {

// Of a stretch: of four panels 256 KB.
constexpr int64_t kFloatColumns = 1024;
constexpr int kFewCodedTokens = 4;
constexpr int kFewCodedPanels = 4;  // one sum a panel waits for its own last product
static_assert(kFloatPanels * kFloatColumns * 4 <= 8 * kManyColumns);

inline int64_t weight_group(const LinearView& w, int64_t group) {
  return w.weight_groups == 1 ? 0 : group;
}

// totals += sum * scale, of a group.
template <int kTokens, int kPanels>
inline void scale_sums(const LinearView& w, int64_t panel, int64_t group,
                       const F32x16 (&sums)[kTokens][kPanels], F32x16 (&totals)[kTokens][kPanels]) {
  for (int p = 0; p < kPanels; ++p) {
    const int64_t index = ((panel + p) * w.weight_groups + weight_group(w, group)) * kLanes;
    const F32x16 scale = w.scales == nullptr ? set_f(1.0f) : load_scales(w, index);
    for (int t = 0; t < kTokens; ++t) totals[t][p] = fma(sums[t][p], scale, totals[t][p]);
  }
}

template <int kTokens, int kPanels>
inline void set_zero(F32x16 (&sums)[kTokens][kPanels]) {
  for (auto& row : sums) {
    for (F32x16& sum : row) sum = zero_f();
  }
}

// A block of kPanels panels, decoded in registers, times 32 columns of the inputs.
template <int kBits, int kTokens, int kPanels>
inline __attribute__((always_inline)) void add_block(const uint8_t* block, int64_t panel_bytes,
                                                     const F32x16 (&zero_points)[kPanels],
                                                     const float* x, int64_t row_stride,
                                                     F32x16 (&sums)[kTokens][kPanels]) {
  unroll<kQuads>([&](auto quad) {
    U8x64 codes[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      codes[p] = quad_codes<kBits, quad.value>(block + p * panel_bytes);
    }
    unroll<4>([&](auto column) {
      F32x16 weights[kPanels];
      for (int p = 0; p < kPanels; ++p) {
        weights[p] = sub(to_float(byte_of<column.value>(codes[p])), zero_points[p]);
      }
      for (int t = 0; t < kTokens; ++t) {
        const F32x16 value = set_f(x[t * row_stride + quad.value * 4 + column.value]);
        for (int p = 0; p < kPanels; ++p) sums[t][p] = fma(weights[p], value, sums[t][p]);
      }
    });
  });
}

template <int kBits, int kTokens, int kPanels>
__attribute__((noinline)) void few_coded_tile(const LinearView& w, const InputRows& in,
                                              const OutputRows& out, int64_t token, int64_t panel) {
  constexpr int64_t kBytes = kBlockColumns * kLanes / 8 * kBits;
  const int64_t panel_bytes = w.num_columns / kBlockColumns * kBytes;
  const uint8_t* block = packed_columns(w, panel, 0);
  const float* x = in.values + token * in.row_stride;
  F32x16 totals[kTokens][kPanels];
  set_zero(totals);
  for (int64_t group = 0; group < w.num_groups; ++group) {
    F32x16 zero_points[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      const int64_t index = (panel + p) * w.weight_groups + weight_group(w, group);
      zero_points[p] = zero_points_of(w, index * kLanes);
    }
    F32x16 sums[kTokens][kPanels];
    set_zero(sums);
    for (int64_t k = 0; k < w.group_size; k += kBlockColumns, block += kBytes, x += kBlockColumns) {
      add_block<kBits>(block, panel_bytes, zero_points, x, in.row_stride, sums);
    }
    scale_sums(w, panel, group, sums, totals);
  }
  finish_rows<kTokens, kPanels>(w, out, token, panel, totals);
}

template <int kBits, int kPanels>
void few_coded(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
               int64_t panel, int64_t panel_end) {
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    token_tiles<kFewCodedTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
      few_coded_tile<kBits, tokens.value, kPanels>(w, in, out, token, panel);
    });
  }
  if constexpr (kPanels > 1) {
    few_coded<kBits, kPanels / 2>(w, in, out, num_tokens, panel, panel_end);
  }
}

template <int kBits>
void few_coded_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                      int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void*) {
  few_coded<kBits, kFewCodedPanels>(w, in, out, num_tokens, panel_begin, panel_end);
}

// A stretch of kPanels panels as floats, [kPanels][kFloatColumns][16 rows].
template <int kPanels>
inline void decode_stretch(const LinearView& w, int64_t panel, const Stretch& stretch,
                           float* columns) {
  for (int p = 0; p < kPanels; ++p) {
    const uint8_t* block = packed_columns(w, panel + p, stretch.first);
    float* target = columns + p * kFloatColumns * kLanes;
    for (int64_t k = 0; k < stretch.num_columns; k += kBlockColumns) {
      const int64_t group = weight_group(w, (stretch.first + k) / w.group_size);
      const int64_t index = ((panel + p) * w.weight_groups + group) * kLanes;
      decode_floats(w.kind, block, zero_points_of(w, index), target);
      block += block_bytes(w.kind);
      target += kBlockColumns * kLanes;
    }
  }
}

// Sums of the one group that there is wait between stretches, and totals of several.
template <int kTokens, int kPanels>
inline void stretch_tile(const LinearView& w, const InputRows& in, const OutputRows& out,
                         const Stretch& stretch, const float* columns, int64_t token, int64_t panel,
                         float* waiting) {
  constexpr int64_t kPanelBytes = kFloatColumns * kLanes * 4;
  const auto* values = reinterpret_cast<const uint8_t*>(columns);
  const float* x = in.values + token * in.row_stride + stretch.first;
  const bool one_group = w.num_groups == 1;
  F32x16 totals[kTokens][kPanels];
  for (int i = 0; i < kTokens * kPanels; ++i) {
    totals[i / kPanels][i % kPanels] = stretch.first == 0 ? zero_f() : load_f(waiting + i * kLanes);
  }
  if (one_group) {
    add_plain<WeightKind::kFp32>(values, kPanelBytes, stretch.num_columns, x, in.row_stride,
                                 totals);
  }
  for (int64_t k = 0; k < stretch.num_columns && !one_group; k += w.group_size) {
    F32x16 sums[kTokens][kPanels];
    set_zero(sums);
    add_plain<WeightKind::kFp32>(values + k * kLanes * 4, kPanelBytes, w.group_size, x + k,
                                 in.row_stride, sums);
    scale_sums(w, panel, (stretch.first + k) / w.group_size, sums, totals);
  }
  if (!stretch.is_last) {
    for (int i = 0; i < kTokens * kPanels; ++i) {
      store_f(waiting + i * kLanes, totals[i / kPanels][i % kPanels]);
    }
    return;
  }
  if (!one_group) return finish_rows<kTokens, kPanels>(w, out, token, panel, totals);
  F32x16 scaled[kTokens][kPanels];
  set_zero(scaled);
  scale_sums(w, panel, 0, totals, scaled);
  finish_rows<kTokens, kPanels>(w, out, token, panel, scaled);
}

template <int kPanels>
void many_coded(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
                int64_t panel, int64_t panel_end, float* columns) {
  float* carry = columns + kFloatPanels * kFloatColumns * kLanes;
  const int64_t groups = w.num_groups == 1 ? kBlockColumns : w.group_size;
  const int64_t limit = kFloatColumns / groups * groups;
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    for (int64_t first = 0; first < w.num_columns; first += limit) {
      const bool is_last = first + limit >= w.num_columns;
      const Stretch stretch{first, is_last ? w.num_columns - first : limit, is_last};
      decode_stretch<kPanels>(w, panel, stretch, columns);
      token_tiles<kFloatTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
        stretch_tile<tokens.value, kPanels>(w, in, out, stretch, columns, token, panel,
                                            carry + token * kPanels * kLanes);
      });
    }
  }
  if constexpr (kPanels > 1) {
    many_coded<kPanels / 2>(w, in, out, num_tokens, panel, panel_end, columns);
  }
}

void many_coded_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                       int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  many_coded<kFloatPanels>(w, in, out, num_tokens, panel_begin, panel_end,
                           static_cast<float*>(scratch));
}

}  // namespace
}  // namespace paredown
