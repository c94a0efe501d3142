// Tiles of tokens by panels whose groups have scales, codes one to a byte: of each group a sum, of
// the groups a float total, which waits in memory for the next stretch of columns.
#pragma once

#include "kernels/linear/int_products.h"
#include "kernels/linear/stretch.h"

namespace paredown {
namespace {

// A stretch of some panels, its codes one to a byte.
struct ReadStretch : Stretch {
  CodeSource source;
  const float* scales;  // [groups][panels][16]; null: as the weight has them
};

constexpr int64_t kDecodedPanelBytes = kManyColumns * kLanes;  // from panel to panel
constexpr int64_t kGroupStretchColumns = 512;  // 32 KB of codes, whose scales lie beside them

// Whether of a group only the inputs have a scale and no zero point is a row's own: codes are
// decoded then, also those that are bytes.
inline bool has_input_groups(const LinearView& w) {
  return kReadsBits && w.weight_groups == 1 && w.input_groups > 1 && w.zero_points == nullptr;
}

// What belongs to the tokens of a tile, which may lie on both sides of a multiple of 16.
template <int kTokens>
struct TileInputs {
  const int32_t* corrections[kTokens];
  const float* scales[kTokens];

  TileInputs(const LinearView& w, const InputRows& in, int64_t token) {
    for (int t = 0; t < kTokens; ++t) {
      corrections[t] = in.corrections + input_index(token + t, w.num_groups, 0);
      scales[t] = in.scales + input_index(token + t, w.input_groups, 0);
    }
  }
};

// Adds what the zero points of each weight make of the corrections of a group. Not where sums
// begin: two ways to begin would cost GCC 12 registers.
template <int kTokens, int kPanels>
inline void add_corrections(const LinearView& w, int64_t index, const TileInputs<kTokens>& inputs,
                            int64_t group, I32x16 (&sums)[kTokens][kPanels]) {
  for (int p = 0; p < kPanels; ++p) {
    const I32x16 zero_points = load_u8_as_i32(w.zero_points + index + p * w.weight_groups * kLanes);
    for (int t = 0; t < kTokens; ++t) {
      const I32x16 correct = set_i(inputs.corrections[t][group * kLanes]);
      sums[t][p] = add(sums[t][p], mul(zero_points, correct));
    }
  }
}

// Several groups: float totals wait between stretches. kReads: sums are read as bits.
template <int kDotBits, bool kReads, int kTokens, int kPanels>
__attribute__((noinline)) void group_tile(const LinearView& w, const InputRows& in,
                                          const OutputRows& out, const ReadStretch& stretch,
                                          int64_t token, int64_t panel, float* waiting) {
  if (stretch.is_last) fetch_outputs<kTokens, kPanels>(out, token, panel);
  F32x16 totals[kTokens][kPanels];
  for (int i = 0; i < kTokens * kPanels; ++i) {
    totals[i / kPanels][i % kPanels] = stretch.first == 0 ? zero_f() : load_f(waiting + i * kLanes);
  }
  const TileInputs<kTokens> inputs(w, in, token);
  CodeSource source = stretch.source;
  const float* scales = stretch.scales;
  int64_t group = stretch.first / w.group_size;
  const int64_t end = group + stretch.num_columns / w.group_size;
  const auto* x = static_cast<const int8_t*>(in.codes) + token * in.code_stride + stretch.first;
  for (; group < end; ++group, x += w.group_size) {
    const int64_t index = (panel * w.weight_groups + (w.weight_groups == 1 ? 0 : group)) * kLanes;
    I32x16 sums[kTokens][kPanels];
    for (int t = 0; t < kTokens; ++t) {
      I32x16 begin = set_i(w.zero_points == nullptr ? inputs.corrections[t][group * kLanes] : 0);
      if (kReads && w.zero_points != nullptr) {
        begin = float_bits(set_f(inputs.scales[t][group * kLanes]));
      }
      for (int p = 0; p < kPanels; ++p) sums[t][p] = begin;
    }
    add_products<kDotBits, NearFetch::kNowhere>(PlainCodes<8>{}, source, w.group_size, x,
                                                in.code_stride, sums);
    source.codes += w.group_size * kLanes;
    if (w.zero_points != nullptr) add_corrections(w, index, inputs, group, sums);
    for (int p = 0; p < kPanels; ++p) {
      if constexpr (kReads) {
        const F32x16 scale = load_f(scales + p * kLanes);
        for (int t = 0; t < kTokens; ++t) {
          const F32x16 whole = set_f(inputs.scales[t][group * kLanes]);
          totals[t][p] = fma(sub(bits_as_float(sums[t][p]), whole), scale, totals[t][p]);
        }
      } else {
        const F32x16 scale = load_scales(w, index + p * w.weight_groups * kLanes);
        for (int t = 0; t < kTokens; ++t) {
          const float x_scale = w.input_groups == 1 ? 1.0f : inputs.scales[t][group * kLanes];
          totals[t][p] = add_group(w, totals[t][p], sums[t][p], scale, x_scale);
        }
      }
    }
    if (kReads) scales += kPanels * kLanes;
  }
  if (stretch.is_last) return finish_tile<kTokens, kPanels>(w, in, out, token, panel, totals);
  for (int i = 0; i < kTokens * kPanels; ++i) {
    store_f(waiting + i * kLanes, totals[i / kPanels][i % kPanels]);
  }
}

// Adds the products of a block of decoded codes. Those of a panel follow each other: with those of
// a token together 12 sums reach 0.8 of the peak of AMD Zen 5, so 1.0.
template <int kDotBits, int kTokens, int kPanels>
inline __attribute__((always_inline)) void add_decoded(const uint8_t* codes, int64_t panel_bytes,
                                                       const int8_t* x, int64_t row_stride,
                                                       I32x16 (&sums)[kTokens][kPanels]) {
#if defined(PAREDOWN_HAS_SHORT_SUMS)
  add_block<kDotBits, NearFetch::kNowhere, 1>(PlainCodes<8>{}, codes, {codes, panel_bytes, 0}, x,
                                              row_stride, sums);
#else
  unroll<kQuads>([&](auto quad) {
    I32x16 fours[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      fours[t] = broadcast_codes(x + t * row_stride + 4 * quad.value);
    }
    for (int p = 0; p < kPanels; ++p) {
      const U8x64 panel_codes = load_u8(codes + p * panel_bytes + quad.value * 64);
      for (int t = 0; t < kTokens; ++t) {
        sums[t][p] = dot4<kDotBits>(sums[t][p], panel_codes, fours[t]);
      }
    }
  });
#endif
}

// The same for groups of one block whose zero point lies in the corrections, read as bits.
template <int kDotBits, int kTokens, int kPanels>
__attribute__((noinline)) void block_group_tile(const LinearView& w, const InputRows& in,
                                                const OutputRows& out, const ReadStretch& stretch,
                                                int64_t token, int64_t panel, float* waiting) {
  if (stretch.is_last) fetch_outputs<kTokens, kPanels>(out, token, panel);
  F32x16 totals[kTokens][kPanels];
  for (int i = 0; i < kTokens * kPanels; ++i) {
    totals[i / kPanels][i % kPanels] = stretch.first == 0 ? zero_f() : load_f(waiting + i * kLanes);
  }
  const TileInputs<kTokens> inputs(w, in, token);
  const int64_t panel_bytes = stretch.source.panel_bytes;
  const int64_t row_stride = in.code_stride;
  const uint8_t* codes = stretch.source.codes;
  const float* scales = stretch.scales;
  int64_t group = stretch.first / kBlockColumns;
  const int64_t end = group + stretch.num_columns / kBlockColumns;
  const auto* x = static_cast<const int8_t*>(in.codes) + token * row_stride + stretch.first;
  // A loop that runs at least once: GCC 12 would keep totals in memory, too.
  do {
    I32x16 sums[kTokens][kPanels];
    for (int t = 0; t < kTokens; ++t) {
      const I32x16 begin = set_i(inputs.corrections[t][group * kLanes]);
      for (int p = 0; p < kPanels; ++p) sums[t][p] = begin;
    }
    add_decoded<kDotBits>(codes, panel_bytes, x, row_stride, sums);
    F32x16 whole[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      whole[t] = set_f(inputs.scales[t][group * kLanes]);
    }
    for (int p = 0; p < kPanels; ++p, scales += kLanes) {
      const F32x16 scale = load_f(scales);
      for (int t = 0; t < kTokens; ++t) {
        const F32x16 product = take_off(bits_as_float(sums[t][p]), whole[t]);
        totals[t][p] = add_product(totals[t][p], product, scale);
      }
    }
    codes += kBlockColumns * kLanes;
    x += kBlockColumns;
  } while (++group < end);
  if (stretch.is_last) return finish_tile<kTokens, kPanels>(w, in, out, token, panel, totals);
  for (int i = 0; i < kTokens * kPanels; ++i) {
    store_f(waiting + i * kLanes, totals[i / kPanels][i % kPanels]);
  }
}

// What a tile of has_input_groups reads and adds to, and little else: of more pointers GCC 12 would
// keep some in vector registers, and inputs in memory.
template <int kTokens>
struct InputGroups {
  const uint8_t* codes;  // decoded: panels lie kDecodedPanelBytes apart
  const int8_t* x;
  int64_t row_stride;
  int64_t num_groups;
  int64_t num_blocks;  // of a group
  float* totals;       // [tokens][panels][16]
  struct OfInputs {
    int32_t corrections[kTokens];
    float scales[kTokens];
  } inputs[kGroupStretchColumns / kBlockColumns];
};

template <int kDotBits, int kTokens, int kPanels>
__attribute__((noinline)) void add_input_groups(const InputGroups<kTokens>& groups) {
  F32x16 totals[kTokens][kPanels];
  for (int i = 0; i < kTokens * kPanels; ++i) {
    totals[i / kPanels][i % kPanels] = load_f(groups.totals + i * kLanes);
  }
  const uint8_t* codes = groups.codes;
  const int8_t* x = groups.x;
  const int64_t row_stride = groups.row_stride;
  const auto* inputs = groups.inputs;
  const auto* end = inputs + groups.num_groups;
  do {
    I32x16 sums[kTokens][kPanels];
    for (int t = 0; t < kTokens; ++t) {
      for (int p = 0; p < kPanels; ++p) sums[t][p] = set_i(inputs->corrections[t]);
    }
    int64_t blocks_left = groups.num_blocks;
    do {
      add_decoded<kDotBits>(codes, kDecodedPanelBytes, x, row_stride, sums);
      codes += kBlockColumns * kLanes;
      x += kBlockColumns;
    } while (--blocks_left > 0);
    for (int t = 0; t < kTokens; ++t) {
      const F32x16 scale = set_f(inputs->scales[t]);
      for (int p = 0; p < kPanels; ++p) {
        totals[t][p] = add_product(totals[t][p], to_float(sums[t][p]), scale);
      }
    }
  } while (++inputs < end);
  for (int i = 0; i < kTokens * kPanels; ++i) {
    store_f(groups.totals + i * kLanes, totals[i / kPanels][i % kPanels]);
  }
}

template <int kDotBits, int kTokens, int kPanels>
__attribute__((noinline)) void input_group_tile(const LinearView& w, const InputRows& in,
                                                const OutputRows& out, const ReadStretch& stretch,
                                                int64_t token, int64_t panel, float* waiting) {
  if (stretch.is_last) fetch_outputs<kTokens, kPanels>(out, token, panel);
  if (stretch.first == 0) {
    for (int i = 0; i < kTokens * kPanels; ++i) store_f(waiting + i * kLanes, zero_f());
  }
  const int64_t first = stretch.first / w.group_size;
  InputGroups<kTokens> groups;
  groups.codes = stretch.source.codes;
  groups.x = static_cast<const int8_t*>(in.codes) + token * in.code_stride + stretch.first;
  groups.row_stride = in.code_stride;
  groups.num_groups = stretch.num_columns / w.group_size;
  groups.num_blocks = w.group_size / kBlockColumns;
  groups.totals = waiting;
  const TileInputs<kTokens> inputs(w, in, token);
  for (int64_t i = 0; i < groups.num_groups; ++i) {
    for (int t = 0; t < kTokens; ++t) {
      groups.inputs[i].corrections[t] = inputs.corrections[t][(first + i) * kLanes];
      groups.inputs[i].scales[t] = inputs.scales[t][(first + i) * kLanes];
    }
  }
  add_input_groups<kDotBits, kTokens, kPanels>(groups);
  if (!stretch.is_last) return;
  F32x16 totals[kTokens][kPanels];
  for (int i = 0; i < kTokens * kPanels; ++i) {
    totals[i / kPanels][i % kPanels] = load_f(waiting + i * kLanes);
  }
  finish_tile<kTokens, kPanels>(w, in, out, token, panel, totals);
}

// A tile in the form that its groups have.
template <int kDotBits, int kTokens, int kPanels>
inline void any_group_tile(const LinearView& w, const InputRows& in, const OutputRows& out,
                           const ReadStretch& stretch, int64_t token, int64_t panel,
                           float* waiting) {
  if constexpr (kReadsBits) {
    if (has_input_groups(w)) {
      return input_group_tile<kDotBits, kTokens, kPanels>(w, in, out, stretch, token, panel,
                                                          waiting);
    }
    if (stretch.scales != nullptr) {
      if (w.group_size == kBlockColumns && w.zero_points == nullptr) {
        return block_group_tile<kDotBits, kTokens, kPanels>(w, in, out, stretch, token, panel,
                                                            waiting);
      }
      return group_tile<kDotBits, true, kTokens, kPanels>(w, in, out, stretch, token, panel,
                                                          waiting);
    }
  }
  group_tile<kDotBits, false, kTokens, kPanels>(w, in, out, stretch, token, panel, waiting);
}

}  // namespace
}  // namespace paredown
