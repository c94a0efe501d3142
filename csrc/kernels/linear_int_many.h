// Integer weights for many tokens on vectors: a stretch of columns of some panels is decoded once
// and stays in the caches while all tokens pass over it; their sums wait in memory for the next.
#pragma once

#include <bit>

#include "linear_int.h"
#include "next_input.h"
#include "stretch.h"

namespace paredown {
namespace {

// Columns of a stretch. Four panels take 24 products for four loads of codes, which the second
// cache gives without delay: codes that lie in the weight are whole rows then, decoded ones as many
// as there is room for. What begins and ends a stretch costs more than loads from the first cache
// save.
constexpr int64_t kStretchColumns = 512;
constexpr int64_t kGroupStretchColumns = 512;  // 32 KB of codes, whose scales lie beside them
// Up to so many tokens codes just decoded are read so few times that the first cache must have
// them.
constexpr int64_t kFewReadings = 64;
inline int64_t stretch_columns(const LinearView& w, int64_t num_tokens) {
  const bool few = num_tokens <= kFewReadings;
  if (w.num_groups > 1) return few ? 1024 / kManyPanels : kGroupStretchColumns;
  if (kManyPanels < 4) return kStretchColumns;
  if (weight_bits(w.kind) == 8) return w.num_columns;
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

// A stretch of some panels, its codes one to a byte.
struct ReadStretch : Stretch {
  CodeSource source;
  const float* scales;  // [groups][panels][16]; null: as the weight has them
};

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
    uint8_t* target = decoded + p * kManyColumns * kLanes;
    if (w.num_steps > 0) {
      decode_stepped(w, panel + p, stretch.first, stretch.num_columns, target);
    } else {
      decode_codes(w.kind, codes + p * panel_bytes, stretch.num_columns, target);
    }
  }
  return {decoded, kManyColumns * kLanes, 0};
}

// Whether sums of the groups may be read as the bits of floats (SumBits).
inline bool may_read_bits(const LinearView& w) {
  const int64_t largest = w.group_size * ((int64_t{128} << weight_bits(w.kind)) - 128);
  return kReadsBits && has_power_scales(w) && largest < int64_t{1} << 22;
}

// 1.5 * 2^23 times the scale of a group of inputs, a power of two. Its last bit counts that scale:
// its bits and a sum added to them are the bits of this and the sum times the scale, as long as
// sums stay below 2^22; taking it off leaves that product. Of a scale that is not a number it is
// none either.
inline I32x16 sum_bits(const float* x_scale) {
  constexpr int32_t kWhole = 0x4B400000 - 0x3F800000;
  const I32x16 power =
      min(float_bits(set_f(*x_scale)), set_i(std::bit_cast<int32_t>(2 * kMaxPower)));
  return add(power, set_i(kWhole));
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
template <bool kSmall, int kTokens, int kPanels>
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
  add_products<kSmall, false>(PlainCodes<8>{}, stretch.source, stretch.num_columns, x,
                              in.code_stride, sums);
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

// Several groups: float totals wait between stretches. kBits: sums are read as bits.
template <bool kSmall, bool kBits, int kTokens, int kPanels>
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
      if constexpr (kBits) begin = add(begin, sum_bits(inputs.scales[t] + group * kLanes));
      for (int p = 0; p < kPanels; ++p) sums[t][p] = begin;
    }
    add_products<kSmall, false>(PlainCodes<8>{}, source, w.group_size, x, in.code_stride, sums);
    source.codes += w.group_size * kLanes;
    if (w.zero_points != nullptr) add_corrections(w, index, inputs, group, sums);
    for (int p = 0; p < kPanels; ++p) {
      if constexpr (kBits) {
        const F32x16 scale = load_f(scales + p * kLanes);
        for (int t = 0; t < kTokens; ++t) {
          const F32x16 whole = bits_as_float(sum_bits(inputs.scales[t] + group * kLanes));
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
    if (kBits) scales += kPanels * kLanes;
  }
  if (stretch.is_last) return finish_tile<kTokens, kPanels>(w, in, out, token, panel, totals);
  for (int i = 0; i < kTokens * kPanels; ++i) {
    store_f(waiting + i * kLanes, totals[i / kPanels][i % kPanels]);
  }
}

// The same for groups of one block whose zero point lies in the corrections, read as bits. The
// products of a panel follow each other: with those of a token together 12 sums reach 0.8 of the
// peak of AMD Zen 5, so 1.0.
template <int kTokens, int kPanels>
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
      const I32x16 begin = add(set_i(inputs.corrections[t][group * kLanes]),
                               sum_bits(inputs.scales[t] + group * kLanes));
      for (int p = 0; p < kPanels; ++p) sums[t][p] = begin;
    }
    unroll<kQuads>([&](auto quad) {
      I32x16 fours[kTokens];
      for (int t = 0; t < kTokens; ++t) {
        fours[t] = broadcast_codes(x + t * row_stride + 4 * quad.value);
      }
      for (int p = 0; p < kPanels; ++p) {
        const U8x64 panel_codes = load_u8(codes + p * panel_bytes + quad.value * 64);
        for (int t = 0; t < kTokens; ++t) sums[t][p] = dot4<8>(sums[t][p], panel_codes, fours[t]);
      }
    });
    F32x16 whole[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      whole[t] = bits_as_float(sum_bits(inputs.scales[t] + group * kLanes));
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

// All tokens through a stretch of kPanels panels.
template <bool kSmall, int kPanels>
inline void stretch_tiles(const LinearView& w, const InputRows& in, const OutputRows& out,
                          const ReadStretch& stretch, int64_t num_tokens, int64_t panel,
                          float* carry) {
  auto waiting = [&](int64_t token) { return carry + token * kPanels * kLanes; };
  if (w.num_groups == 1) {
    NextStretch<kPanels> next(w, panel, stretch, num_tokens / kIntTokens + 1);
    return token_tiles<kIntTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
      next.fetch_share();
      row_tile<kSmall, tokens.value, kPanels>(w, in, out, stretch, token, panel, waiting(token));
    });
  }
  NextStretch<kPanels> next(w, panel, stretch, num_tokens / kManyGroupTokens + 1);
  token_tiles<kManyGroupTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
    constexpr int kTokens = tokens.value;
    next.fetch_share();
    const bool by_blocks = w.group_size == kBlockColumns && w.zero_points == nullptr;
    if (kReadsBits && stretch.scales != nullptr && by_blocks) {
      block_group_tile<kTokens, kPanels>(w, in, out, stretch, token, panel, waiting(token));
    } else if (kReadsBits && stretch.scales != nullptr) {
      group_tile<kSmall, kReadsBits, kTokens, kPanels>(w, in, out, stretch, token, panel,
                                                       waiting(token));
    } else {
      group_tile<kSmall, false, kTokens, kPanels>(w, in, out, stretch, token, panel,
                                                  waiting(token));
    }
  });
}

template <bool kSmall, int kPanels = kManyPanels>
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
      stretch_tiles<kSmall, kPanels>(w, in, rows, {stretch, source, reads_bits ? scales : nullptr},
                                     num_tokens, panel, carry);
    }
    finished.end(panel + kPanels);
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
