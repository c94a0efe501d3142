// Integer weights with groups on AMX tiles: the int32 product of a group of columns is one tile,
// which the vectors scale and add to float rows that stay in registers over the groups.
#pragma once

#include "linear_tiles.h"

namespace paredown {
namespace {

#if defined(PAREDOWN_HAS_TILES)

// Codes below 8 bits minus zero points as signed bytes, which leaves no correction.
template <int kBits>
inline void decode_signed_bits(const LinearView& w, int64_t panel, int64_t first,
                               int64_t num_columns, uint8_t* codes) {
  const uint8_t* block = packed_columns(w, panel, first);
  U8x64 zero_points = set_u8(uint8_t{1} << (kBits - 1));
  for (int64_t k = 0; k < num_columns; k += kBlockColumns) {
    if (w.zero_points != nullptr) {
      const int64_t group = w.weight_groups == 1 ? 0 : (first + k) / w.group_size;
      zero_points = repeat_4(w.zero_points + (panel * w.weight_groups + group) * kLanes);
    }
    unroll<kQuads>([&](auto quad) {
      store_u8(codes + quad.value * 64, sub(quad_codes<kBits, quad.value>(block), zero_points));
    });
    block += kBlockColumns * kLanes / 8 * kBits;
    codes += kBlockColumns * kLanes;
  }
}

__attribute__((noinline)) void decode_signed(const LinearView& w, int64_t panel, int64_t first,
                                             int64_t num_columns, uint8_t* codes) {
  switch (w.kind) {
    case WeightKind::kInt2:
      return decode_signed_bits<2>(w, panel, first, num_columns, codes);
    case WeightKind::kInt3:
      return decode_signed_bits<3>(w, panel, first, num_columns, codes);
    case WeightKind::kInt4:
      return decode_signed_bits<4>(w, panel, first, num_columns, codes);
    case WeightKind::kInt5:
      return decode_signed_bits<5>(w, panel, first, num_columns, codes);
    default:
      return decode_signed_bits<6>(w, panel, first, num_columns, codes);
  }
}

// What one tile product covers: steps of so many columns, so many tokens, so many groups. A store
// of a tile costs the same however few its rows, so that few tokens pair their groups.
struct TileForm {
  int step_columns;
  int num_tokens;
  int num_groups;
};
constexpr TileForm kWholeSteps{64, kLanes, 1};
constexpr TileForm kHalfSteps{32, kLanes, 1};
constexpr TileForm kPairedGroups{64, kPairedTokens, 2};

// Codes of 8 bits are taken as they lie, unsigned, and corrected; others are made signed.
enum class TileCodes { kSigned, kBytes };

// One panel of a stretch of columns against the tokens of a tile.
struct GroupTile {
  int64_t panel;
  int64_t first_column;     // of the stretch
  int64_t product_columns;  // of one tile product
  const uint8_t* codes;     // B tiles from the stretch's first column
  uint8_t* decoded;         // where `codes` are still to be decoded to, or null
  const uint8_t* x;         // A tiles, from the row's first column
  int64_t scale_index;      // of the stretch's first group, weight
  const float* x_scales;    // [groups][16 tokens], input
  const int32_t* x_sums;    // [groups][16 tokens], of the input's codes
};

template <int kC, TileForm kForm, TileCodes kCodes>
inline void group_product(const GroupTile& tile, int64_t index, int32_t* product) {
  int64_t column = index * tile.product_columns;
  const int64_t end = column + tile.product_columns;
  tile_zero<kC>();
  for (; column < end; column += kForm.step_columns) {
    const auto x_column = static_cast<uint64_t>(tile.first_column + column);
    const uint8_t* a = tile.x + x_column / 64 * kTileBytes + x_column % 64;
    const uint8_t* b = tile.codes + column * kLanes;
    constexpr int kA = kForm.step_columns == 32 ? 5 : 4;  // as deep as a step: TileDepth
    constexpr int kB = kA + 2;
    tile_load<kA>(a, 64);
    tile_load<kB>(b, 64);
    if constexpr (kCodes == TileCodes::kBytes) {
      tile_dot_su<kC, kA, kB>();
    } else {
      tile_dot_ss<kC, kA, kB>();
    }
  }
  tile_store<kC>(product, 64);
}

enum class GroupScales { kBoth, kWeight, kInput };

// The rows of a product that belong to one group, scaled and added.
template <GroupScales kScales, TileCodes kCodes, int kTokens>
inline void add_group_product(const LinearView& w, const GroupTile& tile, int64_t group,
                              const int32_t* product, F32x16 (&totals)[kTokens]) {
  F32x16 scale = set_f(1.0f);
  if constexpr (kScales != GroupScales::kInput) {
    scale = load_scales(w, tile.scale_index + group * kLanes);
  }
  const float* x_scales = tile.x_scales + group * kLanes;
  alignas(64) int32_t corrections[kLanes];
  if constexpr (kCodes == TileCodes::kBytes) {
    store_i(corrections, sub(zero_i(), shift_left<7>(load_i(tile.x_sums + group * kLanes))));
  }
  unroll<kTokens>([&](auto t) {
    I32x16 dot = load_i(product + t.value * kLanes);
    if constexpr (kCodes == TileCodes::kBytes) dot = add(dot, set_i(corrections[t.value]));
    F32x16 sum = to_float(dot);
    if constexpr (kScales == GroupScales::kBoth) sum = mul(sum, scale);
    const F32x16 factor = kScales == GroupScales::kWeight ? scale : set_f(x_scales[t.value]);
    totals[t.value] = fma(sum, factor, totals[t.value]);
  });
}

// A tile is not loaded from codes that are still on their way to the cache.
constexpr int64_t kDecodedAhead = 4;

// Products [0, num_products) of the tile, added to sums [tokens][stride]. A product is asked for
// two products before it is needed. Codes are decoded product by product, so that the weight is
// read at an even pace, which the processor's own prefetching follows.
template <GroupScales kScales, TileForm kForm, TileCodes kCodes>
__attribute__((noinline)) void add_group_tiles(const LinearView& w, const GroupTile& tile,
                                               int64_t num_products, float* sums, bool from_zero) {
  constexpr int kTokens = kForm.num_tokens;
  constexpr int64_t kStride = 2 * kLanes;
  alignas(64) int32_t products[4][kLanes * kLanes];
  F32x16 totals[kTokens];
  unroll<kTokens>(
      [&](auto t) { totals[t.value] = from_zero ? zero_f() : load_f(sums + t.value * kStride); });
  auto decode = [&](int64_t index) {
    if (tile.decoded == nullptr || index >= num_products) return;
    const int64_t column = index * tile.product_columns;
    decode_signed(w, tile.panel, tile.first_column + column, tile.product_columns,
                  tile.decoded + column * kLanes);
  };
  auto request = [&](int64_t index) {
    decode(index + kDecodedAhead);
    if (index >= num_products) return;
    if (index % 2 == 0) {
      group_product<0, kForm, kCodes>(tile, index, products[index % 4]);
    } else {
      group_product<1, kForm, kCodes>(tile, index, products[index % 4]);
    }
  };
  for (int64_t index = 0; index < kDecodedAhead; ++index) decode(index);
  request(0);
  request(1);
  for (int64_t index = 0; index < num_products; ++index) {
    request(index + 2);
    unroll<kForm.num_groups>([&](auto g) {
      add_group_product<kScales, kCodes>(w, tile, index * kForm.num_groups + g.value,
                                         products[index % 4] + g.value * kTokens * kLanes, totals);
    });
  }
  unroll<kTokens>([&](auto t) { store_f(sums + t.value * kStride, totals[t.value]); });
}

// A stretch of columns of one panel against all tokens.
template <GroupScales kScales, TileForm kForm, TileCodes kCodes>
inline void pass_tokens(const LinearView& w, const InputRows& in, int64_t panel,
                        const Stretch& stretch, int64_t num_tokens, uint8_t* decoded, float* sums) {
  const int64_t group = stretch.first / w.group_size;
  GroupTile tile{};
  tile.panel = panel;
  tile.first_column = stretch.first;
  tile.product_columns = w.group_size * kForm.num_groups;
  tile.codes = kCodes == TileCodes::kBytes ? packed_columns(w, panel, stretch.first) : decoded;
  tile.decoded = kCodes == TileCodes::kBytes ? nullptr : decoded;
  tile.scale_index = (panel * w.weight_groups + group) * kLanes;
  for (int64_t token = 0; token < num_tokens; token += kLanes, sums += 2 * kLanes * kLanes) {
    tile.x = static_cast<const uint8_t*>(in.codes) + token * in.code_stride;
    tile.x_scales = in.scales + input_index(token, w.input_groups, group);
    tile.x_sums = in.sums + input_index(token, w.num_groups, group);
    add_group_tiles<kScales, kForm, kCodes>(w, tile, stretch.num_columns / tile.product_columns,
                                            sums, stretch.first == 0);
    tile.decoded = nullptr;
  }
}

template <TileForm kForm, TileCodes kCodes, class... Arguments>
inline void pass_scaled(const LinearView& w, Arguments... arguments) {
  if (w.input_groups == 1) {
    pass_tokens<GroupScales::kWeight, kForm, kCodes>(w, arguments...);
  } else if (w.weight_groups == 1) {
    pass_tokens<GroupScales::kInput, kForm, kCodes>(w, arguments...);
  } else {
    pass_tokens<GroupScales::kBoth, kForm, kCodes>(w, arguments...);
  }
}

template <TileCodes kCodes, class... Arguments>
inline void pass_stretch(const LinearView& w, const InputRows& in, Arguments... arguments) {
  if (in.layout == InputLayout::kPairedTiles) {
    pass_scaled<kPairedGroups, kCodes>(w, in, arguments...);
  } else if (w.group_size % 64 == 0) {
    pass_scaled<kWholeSteps, kCodes>(w, in, arguments...);
  } else {
    pass_scaled<kHalfSteps, kCodes>(w, in, arguments...);
  }
}

// The sums of one panel over all columns.
inline void sum_panel(const LinearView& w, const InputRows& in, int64_t num_tokens, int64_t panel,
                      uint8_t* decoded, float* sums) {
  Stretch stretch{0, 0, false};
  for (int64_t first = 0; !stretch.is_last; first += stretch.num_columns) {
    stretch = stretch_at(w, first, kStretchColumns);
    if (w.kind == WeightKind::kInt8) {
      pass_stretch<TileCodes::kBytes>(w, in, panel, stretch, num_tokens, decoded, sums);
    } else {
      pass_stretch<TileCodes::kSigned>(w, in, panel, stretch, num_tokens, decoded, sums);
    }
  }
}

void group_tiles(const LinearView& w, const InputRows& in, const OutputRows& out,
                 int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  auto* decoded = static_cast<uint8_t*>(scratch);
  auto* sums = reinterpret_cast<float*>(decoded + 2 * kLanes * kDecodedColumns * 2);
  const TileScope scope(w.group_size % 64 == 0 || in.layout == InputLayout::kPairedTiles
                            ? TileDepth::kFull
                            : TileDepth::kHalf);
  for (int64_t panel = panel_begin; panel < panel_end; panel += 2) {
    const bool single = panel + 1 == panel_end;
    for (int p = 0; p < (single ? 1 : 2); ++p) {
      sum_panel(w, in, num_tokens, panel + p, decoded, sums + p * kLanes);
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
