// Integer weights with groups on AMX tiles: the int32 product of a group of columns is one tile,
// which the vectors scale and add to 16 float rows that stay in registers over the groups.
#pragma once

#include "linear_tiles.h"

namespace paredown {
namespace {

#if defined(PAREDOWN_HAS_TILES)

// Codes minus zero points as signed bytes, which leaves no correction. Codes of 8 bits with zero
// points of their own do not fit.
inline void decode_signed(const LinearView& w, int64_t panel, int64_t first, int64_t num_columns,
                          uint8_t* codes) {
  decode_codes(w.kind,
               static_cast<const uint8_t*>(w.values) +
                   (panel * w.num_columns + first) / kBlockColumns * block_bytes(w.kind),
               num_columns, codes);
  U8x64 zero_points = set_u8(static_cast<uint8_t>(1 << (weight_bits(w.kind) - 1)));
  for (int64_t k = 0; k < num_columns; k += kBlockColumns) {
    if (w.zero_points != nullptr) {
      const int64_t group = w.weight_groups == 1 ? 0 : (first + k) / w.group_size;
      zero_points = repeat_4(w.zero_points + (panel * w.weight_groups + group) * kLanes);
    }
    for (int quad = 0; quad < kQuads; ++quad, codes += 64) {
      store_u8(codes, sub(load_u8(codes), zero_points));
    }
  }
}

// One panel of decoded columns against 16 tokens.
struct GroupTile {
  const uint8_t* codes;   // B tiles
  const uint8_t* x;       // A tiles, from the row's first column
  int64_t first_column;   // of the decoded ones
  int64_t num_steps;      // column steps of a group
  const float* scales;    // [groups][16 rows], weight
  const float* x_scales;  // [groups][16 tokens], input
};

// Steps of 64 columns, or of 32, whose tiles are half as deep.
template <int kC, bool kWide>
inline void group_product(const GroupTile& tile, int64_t group, int32_t* product) {
  constexpr int64_t kColumns = kWide ? 64 : 32;
  int64_t column = group * tile.num_steps * kColumns;
  tile_zero<kC>();
  for (int64_t step = 0; step < tile.num_steps; ++step, column += kColumns) {
    const int64_t x_column = tile.first_column + column;
    const uint8_t* a = tile.x + x_column / 64 * kTileBytes + x_column % 64;
    if constexpr (kWide) {
      tile_load<4>(a, 64);
      tile_load<6>(tile.codes + column * kLanes, 64);
      tile_dot_ss<kC, 4, 6>();
    } else {
      tile_load<5>(a, 64);
      tile_load<7>(tile.codes + column * kLanes, 64);
      tile_dot_ss<kC, 5, 7>();
    }
  }
  tile_store<kC>(product, 64);
}

enum class GroupScales { kBoth, kWeight, kInput };

template <GroupScales kScales>
inline void add_group_product(const GroupTile& tile, int64_t group, const int32_t* product,
                              F32x16 (&totals)[kLanes]) {
  const F32x16 scale = load_f(tile.scales + group * kLanes);
  const float* x_scales = tile.x_scales + group * kLanes;
  unroll<kLanes>([&](auto t) {
    F32x16 sum = to_float(load_i(product + t.value * kLanes));
    if constexpr (kScales == GroupScales::kBoth) sum = mul(sum, scale);
    const F32x16 factor = kScales == GroupScales::kWeight ? scale : set_f(x_scales[t.value]);
    totals[t.value] = fma(sum, factor, totals[t.value]);
  });
}

// Groups [0, num_groups) of the tile, added to sums [16 tokens][stride]. The product of a group is
// asked for two groups before it is needed.
template <GroupScales kScales, bool kWide>
__attribute__((noinline)) void add_group_tiles(const GroupTile& tile, int64_t num_groups,
                                               float* sums, int64_t stride, bool from_zero) {
  alignas(64) int32_t products[4][kLanes * kLanes];
  F32x16 totals[kLanes];
  unroll<kLanes>(
      [&](auto t) { totals[t.value] = from_zero ? zero_f() : load_f(sums + t.value * stride); });
  auto request = [&](int64_t group) {
    if (group >= num_groups) return;
    if (group % 2 == 0) {
      group_product<0, kWide>(tile, group, products[group % 4]);
    } else {
      group_product<1, kWide>(tile, group, products[group % 4]);
    }
  };
  request(0);
  request(1);
  for (int64_t group = 0; group < num_groups; ++group) {
    request(group + 2);
    add_group_product<kScales>(tile, group, products[group % 4], totals);
  }
  unroll<kLanes>([&](auto t) { store_f(sums + t.value * stride, totals[t.value]); });
}

template <GroupScales kScales>
inline void pass_tokens(const LinearView& w, const InputRows& in, GroupTile tile, int64_t first,
                        int64_t columns, int64_t num_tokens, float* sums) {
  const int64_t num_groups = columns / w.group_size;
  const bool wide = w.group_size % 64 == 0;
  tile.num_steps = w.group_size / (wide ? 64 : 32);
  for (int64_t token = 0; token < num_tokens; token += kLanes) {
    tile.x = static_cast<const uint8_t*>(in.codes) + token * in.code_stride;
    tile.x_scales = in.scales + input_index(token, w.num_groups, first / w.group_size);
    float* totals = sums + token * 2 * kLanes;
    if (wide) {
      add_group_tiles<kScales, true>(tile, num_groups, totals, 2 * kLanes, first == 0);
    } else {
      add_group_tiles<kScales, false>(tile, num_groups, totals, 2 * kLanes, first == 0);
    }
  }
}

// The weight scales of the groups of a stretch as floats.
inline void unpack_scales(const LinearView& w, int64_t panel, int64_t group, int64_t num_groups,
                          float* scales) {
  if (w.weight_groups == 1) return;
  for (int64_t g = 0; g < num_groups; ++g) {
    store_f(scales + g * kLanes, load_scales(w, (panel * w.weight_groups + group + g) * kLanes));
  }
}

void group_tiles(const LinearView& w, const InputRows& in, const OutputRows& out,
                 int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  auto* decoded = static_cast<uint8_t*>(scratch);
  auto* scales = reinterpret_cast<float*>(decoded + kLanes * kDecodedColumns);
  auto* sums = reinterpret_cast<float*>(decoded + 2 * kLanes * kDecodedColumns * 2);
  const TileScope scope(w.group_size % 64 == 0 ? TileDepth::kFull : TileDepth::kHalf);
  for (int64_t panel = panel_begin; panel < panel_end; panel += 2) {
    const bool single = panel + 1 == panel_end;
    for (int p = 0; p < (single ? 1 : 2); ++p) {
      Stretch stretch{0, 0, false};
      for (int64_t first = 0; !stretch.is_last; first += stretch.num_columns) {
        stretch = stretch_at(w, first, kStretchColumns);
        const int64_t columns = stretch.num_columns;
        decode_signed(w, panel + p, first, columns, decoded);
        unpack_scales(w, panel + p, first / w.group_size, columns / w.group_size, scales);
        GroupTile tile{decoded, nullptr, first, 0, scales, nullptr};
        float* totals = sums + p * kLanes;
        if (w.input_groups == 1) {
          pass_tokens<GroupScales::kWeight>(w, in, tile, first, columns, num_tokens, totals);
        } else if (w.weight_groups == 1) {
          pass_tokens<GroupScales::kInput>(w, in, tile, first, columns, num_tokens, totals);
        } else {
          pass_tokens<GroupScales::kBoth>(w, in, tile, first, columns, num_tokens, totals);
        }
      }
    }
    if (single) {
      finish_pair<1>(w, in, out, num_tokens, panel, sums);
    } else {
      finish_pair<2>(w, in, out, num_tokens, panel, sums);
    }
  }
}

#endif

}  // namespace
}  // namespace paredown
