// Integer weights for some tens of tokens on vectors: tiles of tokens pass one after the other over
// a stretch of two panels. The first decodes the codes in registers and leaves them to the others,
// who find them in the second cache; all fetch the panels that come next.
#pragma once

#include "kernels/linear/int_many.h"

namespace paredown {
namespace {

#if defined(PAREDOWN_SHARES_CODES)

constexpr int kSharedPanels = 2;
// Tokens of a tile: sums of whole rows, or sums and totals of groups, and two registers of codes.
constexpr int kSharedRowTokens = 8;
constexpr int kSharedGroupTokens = 6;
constexpr int64_t kSharedColumns = kManyColumns;
constexpr int64_t kSharedPanelBytes = kSharedColumns * kLanes;  // of decoded codes

// Codes that lie one to a byte.
struct ByteCodes {
  static constexpr int kBits = 8;
  const uint8_t* codes;
  int64_t panel_bytes;

  template <int kQuad>
  U8x64 quad(int panel) const {
    return load_u8(codes + panel * panel_bytes + kQuad * 64);
  }
  ByteCodes at(int64_t column) const { return {codes + column * kLanes, panel_bytes}; }
};

// Codes of four bits, decoded to `decoded` on the way.
struct NibbleCodes {
  static constexpr int kBits = 4;
  const uint8_t* codes;
  int64_t panel_bytes;
  uint8_t* decoded;

  template <int kQuad>
  U8x64 quad(int panel) const {
    const U8x64 made = quad_codes<4, kQuad>(codes + panel * panel_bytes);
    store_u8(decoded + panel * kSharedPanelBytes + kQuad * 64, made);
    return made;
  }
  NibbleCodes at(int64_t column) const {
    return {codes + column * kLanes / 2, panel_bytes, decoded + column * kLanes};
  }
};

// The same with steps, which are those of the block that `at` was called for.
struct StepCodes {
  static constexpr int kBits = 4;
  NibbleCodes nibbles;
  const LinearView* w;
  int64_t panel;
  int64_t first;  // column of the stretch
  StepBytes steps[kSharedPanels];

  template <int kQuad>
  U8x64 quad(int p) const {
    const U8x64 made = stepped_quad<kQuad>(nibbles.codes + p * nibbles.panel_bytes, steps[p]);
    store_u8(nibbles.decoded + p * kSharedPanelBytes + kQuad * 64, made);
    return made;
  }
  StepCodes at(int64_t column) const {
    StepCodes block{nibbles.at(column), w, panel, first, {}};
    const int64_t step = panel * w->num_steps + (first + column) / w->step_size;
    for (int p = 0; p < kSharedPanels; ++p) {
      block.steps[p] = load_steps(*w, (step + p * w->num_steps) * kLanes);
    }
    return block;
  }
};

// The lines that follow a stretch, one of each panel at a time.
struct FollowingLines {
  const uint8_t* next;
  int64_t panel_bytes;
  bool dense;  // few tiles share them: twice as many each

  void fetch() {
    for (int p = 0; p < kSharedPanels; ++p) __builtin_prefetch(next + p * panel_bytes, 0, 3);
    next += 64;
  }
};

// A tile of tokens in a stretch of panels.
struct SharedTile {
  Stretch stretch;
  int64_t token;
  int64_t panel;
  float* waiting;  // sums between stretches: [tokens][kSharedPanels][16]
};

// Adds the products of columns [begin, end), counted from the first of the codes on, which is
// column `first` of the inputs at `x`.
template <int kTokens, class Codes>
inline __attribute__((always_inline)) void add_shared(const Codes& codes, int64_t begin,
                                                      int64_t end, int64_t first, const uint8_t* x,
                                                      FollowingLines& following,
                                                      I32x16 (&sums)[kTokens][kSharedPanels]) {
  for (int64_t k = begin; k < end; k += kBlockColumns) {
    const Codes block = codes.at(k);
    const uint8_t* inputs = x + (first + k) / 64 * 64 * kLanes + (first + k) % 64;
    unroll<kQuads>([&](auto quad) {
      if constexpr (Codes::kBits == 8) {
        if constexpr (quad.value % 4 == 0) following.fetch();
        if constexpr (quad.value % 4 == 2) {
          if (following.dense) following.fetch();
        }
      }
      U8x64 read[kSharedPanels];
      for (int p = 0; p < kSharedPanels; ++p) read[p] = block.template quad<quad.value>(p);
      for (int t = 0; t < kTokens; ++t) {
        const auto* four = reinterpret_cast<const int8_t*>(inputs + t * 64 + 4 * quad.value);
        const I32x16 all = broadcast_codes(four);
        for (int p = 0; p < kSharedPanels; ++p) sums[t][p] = dot4<8>(sums[t][p], read[p], all);
      }
    });
  }
}

// One group over the whole row: int32 sums wait between stretches.
template <int kTokens, class Codes>
__attribute__((noinline)) void shared_row_tile(const LinearView& w, const InputRows& in,
                                               const OutputRows& out, const SharedTile& tile,
                                               const Codes& codes, FollowingLines& lines) {
  FollowingLines following = lines;
  const Stretch stretch = tile.stretch;
  if (stretch.is_last) fetch_outputs<kTokens, kSharedPanels>(out, tile.token, tile.panel);
  I32x16 sums[kTokens][kSharedPanels];
  const int32_t* corrections = in.corrections + input_index(tile.token, 1, 0);
  for (int i = 0; i < kTokens * kSharedPanels; ++i) {
    const int t = i / kSharedPanels;
    const int p = i % kSharedPanels;
    sums[t][p] = stretch.first == 0 ? correction(w, (tile.panel + p) * kLanes, corrections + t)
                                    : load_i(tile.waiting + i * kLanes);
  }
  add_shared<kTokens>(codes, 0, stretch.num_columns, stretch.first, code_row(in, tile.token),
                      following, sums);
  lines = following;
  if (!stretch.is_last) {
    for (int i = 0; i < kTokens * kSharedPanels; ++i) {
      store_i(tile.waiting + i * kLanes, sums[i / kSharedPanels][i % kSharedPanels]);
    }
    return;
  }
  F32x16 totals[kTokens][kSharedPanels];
  for (int i = 0; i < kTokens * kSharedPanels; ++i) {
    totals[i / kSharedPanels][i % kSharedPanels] =
        to_float(sums[i / kSharedPanels][i % kSharedPanels]);
  }
  finish_tile<kTokens, kSharedPanels>(w, in, out, tile.token, tile.panel, totals);
}

// What belongs to a group of a tile's tokens and panels.
struct SharedGroup {
  const int32_t* corrections;
  const float* x_scales;
  int64_t index;  // of the weights' scales and zero points
};

enum class SharedKind { kRow, kGroups, kGroupsWithScales };

// Adds the sums of a group, scaled, to the totals.
template <SharedKind kKind, int kTokens>
inline void add_shared_group(const LinearView& w, SharedGroup group,
                             I32x16 (&sums)[kTokens][kSharedPanels],
                             F32x16 (&totals)[kTokens][kSharedPanels]) {
  for (int p = 0; p < kSharedPanels; ++p) {
    const int64_t index = group.index + p * w.weight_groups * kLanes;
    if (w.zero_points != nullptr) {
      const I32x16 zero_points = load_u8_as_i32(w.zero_points + index);
      for (int t = 0; t < kTokens; ++t) {
        sums[t][p] = add(sums[t][p], mul(zero_points, set_i(group.corrections[t])));
      }
    }
    if constexpr (kKind == SharedKind::kGroups) {
      for (int t = 0; t < kTokens; ++t) {
        totals[t][p] = fma(to_float(sums[t][p]), set_f(group.x_scales[t]), totals[t][p]);
      }
      continue;
    }
    const F32x16 scale = load_scales(w, index);
    for (int t = 0; t < kTokens; ++t) {
      const F32x16 whole = set_f(group.x_scales[t]);
      totals[t][p] = fma(sub(bits_as_float(sums[t][p]), whole), scale, totals[t][p]);
    }
  }
}

// Several groups, each with a scale of its inputs and, but for kGroups, one of its weights, whose
// sums are read as bits. Float totals wait between stretches.
template <SharedKind kKind, int kTokens, class Codes>
__attribute__((noinline)) void shared_group_tile(const LinearView& w, const InputRows& in,
                                                 const OutputRows& out, const SharedTile& tile,
                                                 const Codes& codes, FollowingLines& lines) {
  FollowingLines following = lines;
  const Stretch stretch = tile.stretch;
  if (stretch.is_last) fetch_outputs<kTokens, kSharedPanels>(out, tile.token, tile.panel);
  F32x16 totals[kTokens][kSharedPanels];
  for (int i = 0; i < kTokens * kSharedPanels; ++i) {
    totals[i / kSharedPanels][i % kSharedPanels] =
        stretch.first == 0 ? zero_f() : load_f(tile.waiting + i * kLanes);
  }
  const uint8_t* x = code_row(in, tile.token);
  const int64_t size = w.group_size;
  const int64_t number = input_index(tile.token, w.num_groups, stretch.first / size);
  SharedGroup group{in.corrections + number, in.scales + number,
                    tile.panel * w.weight_groups * kLanes};
  constexpr bool kWeightScales = kKind != SharedKind::kGroups;
  if (kWeightScales) group.index += stretch.first / size * kLanes;
  for (int64_t k = 0; k < stretch.num_columns; k += size) {
    I32x16 sums[kTokens][kSharedPanels];
    for (int t = 0; t < kTokens; ++t) {
      I32x16 begin = set_i(w.zero_points == nullptr ? group.corrections[t] : 0);
      if (kWeightScales && w.zero_points != nullptr) begin = float_bits(set_f(group.x_scales[t]));
      for (int p = 0; p < kSharedPanels; ++p) sums[t][p] = begin;
    }
    add_shared<kTokens>(codes, k, k + size, stretch.first, x, following, sums);
    add_shared_group<kKind>(w, group, sums, totals);
    group.corrections += kLanes;
    group.x_scales += kLanes;
    if (kWeightScales) group.index += kLanes;
  }
  lines = following;
  if (stretch.is_last) {
    return finish_tile<kTokens, kSharedPanels>(w, in, out, tile.token, tile.panel, totals);
  }
  for (int i = 0; i < kTokens * kSharedPanels; ++i) {
    store_f(tile.waiting + i * kLanes, totals[i / kSharedPanels][i % kSharedPanels]);
  }
}

template <SharedKind kKind, int kTokens, class Codes>
inline void shared_tile(const LinearView& w, const InputRows& in, const OutputRows& out,
                        const SharedTile& tile, const Codes& codes, FollowingLines& lines) {
  if constexpr (kKind == SharedKind::kRow) {
    shared_row_tile<kTokens>(w, in, out, tile, codes, lines);
  } else {
    shared_group_tile<kKind, kTokens>(w, in, out, tile, codes, lines);
  }
}

// The tiles of a stretch: `first_codes` are those that the first one decodes for the others.
template <SharedKind kKind, class FirstCodes>
inline void shared_stretch(const LinearView& w, const InputRows& in, const OutputRows& out,
                           SharedTile tile, int64_t num_tokens, const FirstCodes& first_codes,
                           ByteCodes codes, FollowingLines lines) {
  constexpr int kTokens = kKind == SharedKind::kRow ? kSharedRowTokens : kSharedGroupTokens;
  float* waiting = tile.waiting;
  even_tiles<kTokens>(num_tokens, [&](auto tokens, int64_t token) {
    tile.token = token;
    tile.waiting = waiting + token * kSharedPanels * kLanes;
    // The first of several tiles has more than a quarter of 16 tokens.
    if constexpr (FirstCodes::kBits < 8 && tokens.value > kLanes / 4) {
      if (token == 0) {
        return shared_tile<kKind, tokens.value>(w, in, out, tile, first_codes, lines);
      }
    }
    shared_tile<kKind, tokens.value>(w, in, out, tile, codes, lines);
  });
}

template <SharedKind kKind, int kBits, bool kStepped>
void int_shared(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
                int64_t panel, int64_t panel_end, void* scratch) {
  auto* decoded = static_cast<uint8_t*>(scratch);
  auto* waiting = reinterpret_cast<float*>(decoded + kSharedPanels * kSharedPanelBytes);
  constexpr int64_t kColumnBytes = kLanes * kBits / 8;
  const int64_t panel_bytes = w.num_columns * kColumnBytes;
  const bool dense = num_tokens <= kLanes;
  for (; panel + kSharedPanels <= panel_end; panel += kSharedPanels) {
    const auto* row = static_cast<const uint8_t*>(w.values) + panel * panel_bytes;
    Stretch stretch{0, 0, false};
    for (int64_t first = 0; !stretch.is_last; first += stretch.num_columns) {
      stretch = stretch_at(w, first, kSharedColumns);
      const uint8_t* codes = row + first * kColumnBytes;
      const uint8_t* next = stretch.is_last ? row + kSharedPanels * panel_bytes
                                            : codes + stretch.num_columns * kColumnBytes;
      const FollowingLines lines{next, panel_bytes, dense};
      const SharedTile tile{stretch, 0, panel, waiting};
      const NibbleCodes nibbles{codes, panel_bytes, decoded};
      if constexpr (kBits == 8) {
        const ByteCodes bytes{codes, panel_bytes};
        shared_stretch<kKind>(w, in, out, tile, num_tokens, bytes, bytes, lines);
      } else if constexpr (kStepped) {
        shared_stretch<kKind>(w, in, out, tile, num_tokens,
                              StepCodes{nibbles, &w, panel, first, {}},
                              ByteCodes{decoded, kSharedPanelBytes}, lines);
      } else {
        shared_stretch<kKind>(w, in, out, tile, num_tokens, nibbles,
                              ByteCodes{decoded, kSharedPanelBytes}, lines);
      }
    }
  }
}

void shared_rows(const LinearView& w, const InputRows& in, const OutputRows& out,
                 int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  if (w.num_steps > 0) {
    return int_shared<SharedKind::kRow, 4, true>(w, in, out, num_tokens, panel_begin, panel_end,
                                                 scratch);
  }
  int_shared<SharedKind::kRow, 8, false>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
}

template <int kBits>
inline void shared_groups_of(const LinearView& w, const InputRows& in, const OutputRows& out,
                             int64_t num_tokens, int64_t panel_begin, int64_t panel_end,
                             void* scratch) {
  if (w.weight_groups == 1) {
    return int_shared<SharedKind::kGroups, kBits, false>(w, in, out, num_tokens, panel_begin,
                                                         panel_end, scratch);
  }
  int_shared<SharedKind::kGroupsWithScales, kBits, false>(w, in, out, num_tokens, panel_begin,
                                                          panel_end, scratch);
}

void shared_groups(const LinearView& w, const InputRows& in, const OutputRows& out,
                   int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  if (w.kind == WeightKind::kInt8) {
    return shared_groups_of<8>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  }
  shared_groups_of<4>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
}

#endif

}  // namespace
}  // namespace paredown
