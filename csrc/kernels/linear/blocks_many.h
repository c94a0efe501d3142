// Weights in blocks, several tokens: a stretch of columns of some panels is decoded once, codes one
// to a byte and scales to integers, and all tokens pass over it. What is done with it is the same
// for kinds whose products and groups are alike.
#pragma once

#include "kernels/linear/blocks_one.h"

namespace paredown {
namespace {

// A super-block or two: what is decoded of four panels stays near.
constexpr int64_t kBlockStretch = 512;
constexpr int64_t kStretchGroups = kBlockStretch / 16;
constexpr int64_t kStretchMinima = kBlockStretch / 256 * 4;  // quads
constexpr int64_t kStretchBlocks = kBlockStretch / kBlockColumns;

// A panel's stretch, decoded.
struct DecodedPanel {
  uint8_t codes[kBlockStretch * kLanes];
  int32_t scales[kStretchGroups * kLanes];
  uint8_t minima[kStretchMinima * 64];
  float halves[kStretchBlocks][2][kLanes];
};
static_assert(sizeof(DecodedPanel) % 64 == 0);
static_assert(kManyPanels * sizeof(DecodedPanel) <= 8 * kManyColumns * kLanes);

template <WeightKind kKind>
__attribute__((noinline)) void decode_blocks(const uint8_t* block, int64_t num_blocks,
                                             DecodedPanel& to) {
  constexpr BlockForm kForm = block_form(kKind);
  constexpr int kNum = num_factor_quads(kForm);
  uint8_t* codes = to.codes;
  int32_t* scales = to.scales;
  uint8_t* minima = to.minima;
  for (int64_t index = 0; index < num_blocks; ++index, block += kForm.bytes()) {
    const uint8_t* run = block;
    for (int64_t column = 0; column < kForm.columns; column += kBlockColumns) {
      unroll<kQuads>([&](auto quad) {
        store_u8(codes + quad.value * 64, block_quad<kKind, quad.value>(run));
      });
      run += kForm.run_bytes();
      codes += kBlockColumns * kLanes;
    }
    if constexpr (kForm.factors != Factors::kNone) {
      unroll<kNum>([&](auto quad) {
        const U8x64 four = factor_quad<kKind, quad.value>(block);
        unroll<4>([&](auto place) {
          store_i(scales + (4 * quad.value + place.value) * kLanes,
                  signed_byte_of<place.value>(four));
        });
        if constexpr (kForm.has_minima) {
          store_u8(minima + quad.value * 64, factor_quad<kKind, kNum + quad.value>(block));
        }
      });
    }
    scales += kForm.num_groups() * kLanes;
    minima += kNum * 64;
    store_f(to.halves[index][0], load_half<kKind>(block, 0));
    if constexpr (kForm.has_minima) store_f(to.halves[index][1], load_half<kKind>(block, 1));
  }
}

// A tile and where its totals wait, [tokens][panels][16].
struct BlockTile {
  const DecodedPanel* panels;
  int64_t first_block;
  int64_t num_blocks;
  int64_t token;
  int64_t panel;
  bool is_last;
  float* totals;
};

// What of a kind its tiles depend on.
struct TileForm {
  int dot_bits;
  int group_quads;
  int num_groups;
  bool is_short;
  bool has_minima;

  constexpr int columns() const { return 4 * group_quads * num_groups; }
};
constexpr TileForm tile_form(WeightKind kind) {
  const BlockForm& form = block_form(kind);
  return {dot_bits(form.product_bits), group_quads(form), form.num_groups(), form.is_short(),
          form.has_minima};
}

// Adds the groups of block `index` to `products`.
template <TileForm kForm, int kTokens, int kPanels>
inline __attribute__((always_inline)) void add_block_groups(
    const BlockTile& tile, int64_t index, const int8_t* x, int64_t row_stride,
    const int32_t* const (&corrections)[kTokens], I32x16 (&products)[kTokens][kPanels]) {
  const uint8_t* codes = tile.panels->codes + index * kForm.columns() * kLanes;
  const int32_t* scales = tile.panels->scales + index * kForm.num_groups * kLanes;
  constexpr int64_t kFromPanel = sizeof(DecodedPanel);
  int64_t group = 0;
  do {
    I32x16 sums[kTokens][kPanels];
    for (int t = 0; t < kTokens; ++t) {
      const I32x16 begin = kForm.has_minima ? zero_i() : set_i(corrections[t][group * kLanes]);
      for (int p = 0; p < kPanels; ++p) sums[t][p] = begin;
    }
    auto read = [&](auto quad, int p) __attribute__((always_inline)) {
      return load_u8(codes + p * kFromPanel + quad.value * 64);
    };
    add_quads<kForm.dot_bits, kForm.group_quads>(read, x, row_stride, sums);
    for (int p = 0; p < kPanels; ++p) {
      if constexpr (kForm.is_short) {
        for (int t = 0; t < kTokens; ++t) products[t][p] = sums[t][p];
      } else {
        const I32x16 scale =
            load_i(reinterpret_cast<const uint8_t*>(scales) + p * kFromPanel + group * 64);
        for (int t = 0; t < kTokens; ++t) {
          products[t][p] = add(products[t][p], mul(sums[t][p], scale));
        }
      }
    }
    codes += kForm.group_quads * 64;
    x += kForm.group_quads * 4;
  } while (++group < kForm.num_groups);
}

template <TileForm kForm>
inline I32x16 tile_minima(const DecodedPanel& panel, int64_t index, const int32_t* corrections) {
  if constexpr (kForm.is_short) return set_i(*corrections);
  constexpr int kNum = kForm.num_groups / 4;
  const uint8_t* minima = panel.minima + index * kNum * 64;
  I32x16 sum = zero_i();
  for (int i = 0; i < kNum; ++i) {
    sum = add_minima(sum, load_u8(minima + i * 64), corrections + i * kLanes);
  }
  sum = shift_left<6>(sum);
  for (int i = 0; i < kNum; ++i) {
    sum = add_minima(sum, load_u8(minima + i * 64), corrections + (kNum + i) * kLanes);
  }
  return sum;
}

template <TileForm kForm, int kTokens, int kPanels>
__attribute__((noinline)) void block_tile(const LinearView& w, const InputRows& in,
                                          const OutputRows& out, const BlockTile& tile) {
  if (tile.is_last) fetch_outputs<kTokens, kPanels>(out, tile.token, tile.panel);
  const int32_t* corrections[kTokens];
  const float* x_scales[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    const int64_t token = tile.token + t;
    corrections[t] =
        in.corrections + input_index(token, w.num_groups, tile.first_block * kForm.num_groups);
    x_scales[t] = in.scales + input_index(token, w.input_groups, tile.first_block);
  }
  F32x16 totals[kTokens][kPanels];
  for (int i = 0; i < kTokens * kPanels; ++i) {
    totals[i / kPanels][i % kPanels] =
        tile.first_block == 0 ? zero_f() : load_f(tile.totals + i * kLanes);
  }
  const int64_t row_stride = in.code_stride;
  const auto* x = static_cast<const int8_t*>(in.codes) + tile.token * row_stride +
                  tile.first_block * kForm.columns();
  int64_t index = 0;
  do {
    I32x16 products[kTokens][kPanels];
    for (int i = 0; i < kTokens * kPanels; ++i) products[i / kPanels][i % kPanels] = zero_i();
    add_block_groups<kForm>(tile, index, x, row_stride, corrections, products);
    for (int p = 0; p < kPanels; ++p) {
      const DecodedPanel& panel = tile.panels[p];
      const F32x16 d = load_f(panel.halves[index][0]);
      const F32x16 e = kForm.has_minima ? load_f(panel.halves[index][1]) : d;
      for (int t = 0; t < kTokens; ++t) {
        I32x16 minima = products[t][p];
        if constexpr (kForm.has_minima) minima = tile_minima<kForm>(panel, index, corrections[t]);
        totals[t][p] = add_block_sum<kForm.is_short, kForm.has_minima>(
            totals[t][p], d, products[t][p], e, minima, *x_scales[t]);
      }
    }
    x += kForm.columns();
    for (int t = 0; t < kTokens; ++t) {
      corrections[t] += kForm.num_groups * kLanes;
      x_scales[t] += kLanes;
    }
  } while (++index < tile.num_blocks);
  if (tile.is_last) return finish_rows<kTokens, kPanels>(w, out, tile.token, tile.panel, totals);
  for (int i = 0; i < kTokens * kPanels; ++i) {
    store_f(tile.totals + i * kLanes, totals[i / kPanels][i % kPanels]);
  }
}

template <WeightKind kKind, int kPanels>
void blocks_many(const LinearView& w, const InputRows& in, const OutputRows& out,
                 int64_t num_tokens, int64_t panel, int64_t panel_end, void* scratch) {
  constexpr BlockForm kForm = block_form(kKind);
  auto* decoded = static_cast<DecodedPanel*>(scratch);
  auto* waiting = reinterpret_cast<float*>(static_cast<uint8_t*>(scratch) +
                                           8 * kManyColumns * kLanes + kScaleFloats * 4);
  const int64_t panel_bytes = w.input_groups * kForm.bytes();
  constexpr int64_t kTogether = kBlockStretch / kForm.columns;
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    const auto* blocks = static_cast<const uint8_t*>(w.values) + panel * panel_bytes;
    for (int64_t first = 0; first < w.input_groups; first += kTogether) {
      const int64_t left = w.input_groups - first;
      const int64_t num_blocks = left < kTogether ? left : kTogether;
      for (int p = 0; p < kPanels; ++p) {
        decode_blocks<kKind>(blocks + p * panel_bytes + first * kForm.bytes(), num_blocks,
                             decoded[p]);
      }
      token_tiles<kManyGroupTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
        block_tile<tile_form(kKind), tokens.value, kPanels>(
            w, in, out,
            {decoded, first, num_blocks, token, panel, left <= kTogether,
             waiting + token * kPanels * kLanes});
      });
    }
  }
  if constexpr (kPanels > 1) {
    blocks_many<kKind, kPanels / 2>(w, in, out, num_tokens, panel, panel_end, scratch);
  }
}

void block_tokens(const LinearView& w, const InputRows& in, const OutputRows& out,
                  int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  with_block_kind(w.kind, [&](auto kind) {
    blocks_many<kind.value, kManyPanels>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  });
}

}  // namespace
}  // namespace paredown
