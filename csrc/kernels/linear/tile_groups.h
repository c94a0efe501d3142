// Integer weights with groups on AMX tiles: the int32 product of a group of columns is one tile,
// which the vectors scale and add to float rows that stay in registers over the groups.
#pragma once

#include "kernels/linear/tiles.h"

namespace paredown {
namespace {

#if defined(PAREDOWN_HAS_TILES)

// From a place in a panel to the same place two panels on, which is fetched meanwhile.
inline int64_t panels_ahead(const LinearView& w) {
  return 2 * (w.num_columns / kBlockColumns) * block_bytes(w.kind);
}

// Codes below 8 bits minus zero points as signed bytes, which leaves no correction.
template <int kBits>
inline void decode_signed_bits(const LinearView& w, int64_t panel, int64_t first,
                               int64_t num_columns, uint8_t* codes) {
  constexpr int64_t kBytes = kBlockColumns * kLanes / 8 * kBits;
  const uint8_t* block = packed_columns(w, panel, first);
  const int64_t ahead = panels_ahead(w);
  U8x64 zero_points = set_u8(uint8_t{1} << (kBits - 1));
  for (int64_t k = 0; k < num_columns; k += kBlockColumns) {
    if (w.zero_points != nullptr) {
      const int64_t group = w.weight_groups == 1 ? 0 : (first + k) / w.group_size;
      zero_points = repeat_4(w.zero_points + (panel * w.weight_groups + group) * kLanes);
    }
    unroll<kQuads>([&](auto quad) {
      store_u8(codes + quad.value * 64, sub(quad_codes<kBits, quad.value>(block), zero_points));
    });
    for (int64_t line = 0; line < kBytes; line += 64) {
      __builtin_prefetch(block + ahead + line, 0, 2);
    }
    block += kBytes;
    codes += kBlockColumns * kLanes;
  }
}

// The same of bitmaps.
inline void expand_signed(const LinearView& w, int64_t panel, int64_t first, int64_t num_columns,
                          uint8_t* codes) {
  expand_codes(w, panel, first, num_columns, codes);
  for (int64_t i = 0; i < num_columns * kLanes; i += 64) {
    store_u8(codes + i, sub(load_u8(codes + i), set_u8(kZeroCode)));
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
    case WeightKind::kInt8Bitmap:
      return expand_signed(w, panel, first, num_columns, codes);
    default:
      return decode_signed_bits<6>(w, panel, first, num_columns, codes);
  }
}

// Dense codes of 8 bits are taken as they lie, unsigned, and corrected; others are made signed.
enum class TileCodes { kSigned, kBytes };

// One panel of a stretch of columns against the tokens of a tile.
struct GroupTile {
  int64_t panel;
  int64_t first_column;        // of the stretch
  const uint8_t* codes;        // B tiles from the stretch's first column
  int64_t ahead;               // codes of 8 bits: bytes from a B tile to one to fetch, or 0
  uint8_t* decoded;            // where `codes` are still to be decoded to, or null
  const uint8_t* x;            // A tiles, from the row's first column
  int64_t scale_index;         // of the stretch's first group, weight
  const float* x_scales;       // [groups][16 tokens], input
  const int32_t* corrections;  // [groups][16 tokens], of codes of 8 bits
};

template <int kC, int kStep, TileCodes kCodes>
inline void group_product(const GroupTile& tile, int64_t group_size, int64_t index,
                          int32_t* product) {
  int64_t column = index * group_size;
  const int64_t end = column + group_size;
  tile_zero<kC>();
  for (; column < end; column += kStep) {
    const auto x_column = static_cast<uint64_t>(tile.first_column + column);
    const uint8_t* a = tile.x + x_column / 64 * kTileBytes + x_column % 64;
    const uint8_t* b = tile.codes + column * kLanes;
    constexpr int kA = kStep == 32 ? 5 : 4;  // as deep as a step: TileDepth
    constexpr int kB = kA + 2;
    tile_load<kA>(a, 64);
    tile_load<kB>(b, 64);
    if constexpr (kCodes == TileCodes::kBytes) {
      for (int64_t line = 0; tile.ahead > 0 && line < kStep * kLanes; line += 64) {
        __builtin_prefetch(b + tile.ahead + line, 0, 2);
      }
      tile_dot_su<kC, kA, kB>();
    } else {
      tile_dot_ss<kC, kA, kB>();
    }
  }
  tile_store<kC>(product, 64);
}

enum class GroupScales { kBoth, kWeight, kInput };

// The rows of a product that belong to one group, scaled and added.
template <GroupScales kScales, TileCodes kCodes>
inline void add_group_product(const LinearView& w, const GroupTile& tile, int64_t group,
                              const int32_t* product, F32x16 (&totals)[kLanes]) {
  F32x16 scale = set_f(1.0f);
  if constexpr (kScales != GroupScales::kInput) {
    scale = load_scales(w, tile.scale_index + group * kLanes);
  }
  const float* x_scales = tile.x_scales + group * kLanes;
  const int32_t* corrections = tile.corrections + group * kLanes;
  unroll<kLanes>([&](auto t) {
    I32x16 dot = load_i(product + t.value * kLanes);
    if constexpr (kCodes == TileCodes::kBytes) dot = add(dot, set_i(corrections[t.value]));
    F32x16 sum = to_float(dot);
    if constexpr (kScales == GroupScales::kBoth) sum = mul(sum, set_f(x_scales[t.value]));
    const F32x16 factor = kScales == GroupScales::kInput ? set_f(x_scales[t.value]) : scale;
    totals[t.value] = fma(sum, factor, totals[t.value]);
  });
}

// A tile is not loaded from codes that are still on their way to the cache.
constexpr int64_t kDecodedAhead = 4;

// Products [0, num_products) of the tile, added to sums [tokens][stride]. A product is asked for
// two products before it is needed. Codes are decoded product by product, so that the weight is
// read at an even pace, which the processor's own prefetching follows.
template <GroupScales kScales, int kStep, TileCodes kCodes>
__attribute__((noinline)) void add_group_tiles(const LinearView& w, const GroupTile& tile,
                                               int64_t num_products, float* sums, int64_t stride,
                                               bool from_zero) {
  alignas(64) int32_t products[4][kLanes * kLanes];
  F32x16 totals[kLanes];
  unroll<kLanes>(
      [&](auto t) { totals[t.value] = from_zero ? zero_f() : load_f(sums + t.value * stride); });
  auto decode = [&](int64_t index) {
    if (tile.decoded == nullptr || index >= num_products) return;
    const int64_t column = index * w.group_size;
    decode_signed(w, tile.panel, tile.first_column + column, w.group_size,
                  tile.decoded + column * kLanes);
  };
  auto request = [&](int64_t index) {
    decode(index + kDecodedAhead);
    if (index >= num_products) return;
    if (index % 2 == 0) {
      group_product<0, kStep, kCodes>(tile, w.group_size, index, products[index % 4]);
    } else {
      group_product<1, kStep, kCodes>(tile, w.group_size, index, products[index % 4]);
    }
  };
  for (int64_t index = 0; index < kDecodedAhead; ++index) decode(index);
  request(0);
  request(1);
  for (int64_t index = 0; index < num_products; ++index) {
    request(index + 2);
    add_group_product<kScales, kCodes>(w, tile, index, products[index % 4], totals);
  }
  unroll<kLanes>([&](auto t) { store_f(sums + t.value * stride, totals[t.value]); });
}

// Panels [first, last) whose codes are decoded side by side, and where their sums wait: [tokens]
// [stride], 16 of each panel.
struct PanelGroup {
  int64_t first;
  int64_t last;
  uint8_t* decoded;
  float* sums;
  int64_t stride;
};

// A stretch of columns of some panels against all tokens.
template <GroupScales kScales, int kStep, TileCodes kCodes>
inline void pass_tokens(const LinearView& w, const InputRows& in, const PanelGroup& panels,
                        const Stretch& stretch, int64_t num_tokens) {
  const int64_t group = stretch.first / w.group_size;
  GroupTile tile{};
  tile.first_column = stretch.first;
  for (int64_t token = 0; token < num_tokens; token += kLanes) {
    tile.x = static_cast<const uint8_t*>(in.codes) + token * in.code_stride;
    tile.x_scales = in.scales + input_index(token, w.input_groups, group);
    tile.corrections = in.corrections + input_index(token, w.num_groups, group);
    tile.ahead = token == 0 ? panels_ahead(w) : 0;
    for (tile.panel = panels.first; tile.panel < panels.last; ++tile.panel) {
      const int64_t index = tile.panel - panels.first;
      uint8_t* decoded = panels.decoded + index * kLanes * kDecodedColumns;
      const bool bytes = kCodes == TileCodes::kBytes;
      tile.codes = bytes ? packed_columns(w, tile.panel, stretch.first) : decoded;
      tile.decoded = bytes || token > 0 ? nullptr : decoded;
      tile.scale_index = (tile.panel * w.weight_groups + group) * kLanes;
      add_group_tiles<kScales, kStep, kCodes>(w, tile, stretch.num_columns / w.group_size,
                                              panels.sums + token * panels.stride + index * kLanes,
                                              panels.stride, stretch.first == 0);
    }
  }
}

template <int kStep, TileCodes kCodes, class... Arguments>
inline void pass_scaled(const LinearView& w, const Arguments&... arguments) {
  if (w.input_groups == 1) {
    pass_tokens<GroupScales::kWeight, kStep, kCodes>(w, arguments...);
  } else if (w.weight_groups == 1) {
    pass_tokens<GroupScales::kInput, kStep, kCodes>(w, arguments...);
  } else {
    pass_tokens<GroupScales::kBoth, kStep, kCodes>(w, arguments...);
  }
}

template <TileCodes kCodes, class... Arguments>
inline void pass_stretch(const LinearView& w, const InputRows& in, const Arguments&... arguments) {
  if (w.group_size % 64 == 0) {
    pass_scaled<64, kCodes>(w, in, arguments...);
  } else {
    pass_scaled<32, kCodes>(w, in, arguments...);
  }
}

void group_tiles_of(const LinearView& w, const InputRows& in, const OutputRows& out,
                    int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  auto* decoded = static_cast<uint8_t*>(scratch);
  auto* sums = reinterpret_cast<float*>(decoded + 2 * kLanes * kDecodedColumns * 2);
  const int64_t padded = (num_tokens + kLanes - 1) / kLanes * kLanes;
  // Few tokens: a stretch of all of them stays in the first cache and serves many panels. Many: 16
  // of them serve two.
  const bool few = padded * 4 <= kMinSums;
  const int64_t block = few ? kMinSums / padded / 2 * 2 : 2;
  const int64_t together = few ? 1 : 2;
  const TileScope scope(w.group_size % 64 == 0 ? TileDepth::kFull : TileDepth::kHalf);
  for (int64_t first = panel_begin; first < panel_end; first += block) {
    const int64_t last = first + block < panel_end ? first + block : panel_end;
    Stretch stretch{0, 0, false};
    for (int64_t column = 0; !stretch.is_last; column += stretch.num_columns) {
      stretch = stretch_at(w, column, kStretchColumns);
      for (int64_t panel = first; panel < last; panel += together) {
        const PanelGroup panels{panel, panel + together < last ? panel + together : last, decoded,
                                sums + (panel - first) * kLanes, block * kLanes};
        if (w.kind == WeightKind::kInt8) {
          pass_stretch<TileCodes::kBytes>(w, in, panels, stretch, num_tokens);
        } else {
          pass_stretch<TileCodes::kSigned>(w, in, panels, stretch, num_tokens);
        }
      }
    }
    for (int64_t panel = first; panel < last; panel += 2) {
      const float* pair_sums = sums + (panel - first) * kLanes;
      if (panel + 1 == last) {
        finish_pair<1>(w, in, out, num_tokens, panel, pair_sums, block * kLanes);
      } else {
        finish_pair<2>(w, in, out, num_tokens, panel, pair_sums, block * kLanes);
      }
    }
  }
}

void group_tiles(const LinearView& w, const InputRows& in, const OutputRows& out,
                 int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  token_blocks(w, in, out, num_tokens,
               [&](const InputRows& rows, const OutputRows& outputs, int64_t count) {
                 group_tiles_of(w, rows, outputs, count, panel_begin, panel_end, scratch);
               });
}

#endif

}  // namespace
}  // namespace paredown
