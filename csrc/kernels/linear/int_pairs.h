// Codes of up to four bits for some tens of tokens and more, whose groups have scales of inputs and
// of weights: Winograd's inner product (S. Winograd, "A New Algorithm for Inner Product", IEEE
// Transactions on Computers C-17, 1968). Of two columns a and b
//   x_a w_a + x_b w_b = (x_a + w_b) (x_b + w_a) - x_a x_b - w_a w_b,
// one product for two columns; what is taken off is found once for each token and once for each
// weight. Where additions have ports of their own, sums are made faster than products alone can be.
// Sums stay whole numbers, so the bits are those of the other forms.
#pragma once

#include "kernels/linear/int_many.h"

namespace paredown {
namespace {

#if defined(PAREDOWN_PAIRS_PRODUCTS)

// Columns of an even quad are a, those of the odd one after it b; x_a + w_b is unsigned, 128 more.
constexpr int kPairPanels = 2;
constexpr int kPairTokens = 6;  // whose sums and totals fill 24 registers, weights and inputs 8
// Codes of a stretch, 16 KB, stay in the first cache beside inputs: 768 and 1,024 columns are
// slower.
constexpr int64_t kPairColumns = 512;
// Measured on AMD Zen 5, weights from memory: fewer tokens are faster where codes are shared.
constexpr int64_t kMinPairTokens = 17;
// Of a code: its sum with an input up to kLargestPowerCode fits a byte.
constexpr int kPairBits = 4;

// What belongs to a group of a panel.
struct PairGroup {
  float scales[kLanes];
  int32_t begins[kLanes];  // minus (w_b + 128) w_a over the group
};

// The codes of a quad of columns as signed numbers, kMore added modulo 256.
template <int kBits, int kQuad, int kMore>
inline U8x64 centered_codes(const uint8_t* block) {
  if constexpr (kBits == 4) {
    return centered_nibbles<kQuad % 2 * 4, kMore>(load_u8(block + kQuad / 2 * 64));
  }
  return sub(quad_codes<kBits, kQuad>(block), set_u8((1 << (kBits - 1)) + kMore));
}

// A stretch of two panels: its codes one to a byte, panels kPairPanelBytes apart, those of odd
// quads 128 more, and its groups side by side.
constexpr int64_t kPairPanelBytes = kDecodedColumns * kLanes;
constexpr int64_t kMaxPairGroups = kPairPanels * kPairColumns / kBlockColumns;
static_assert(kPairPanels * kPairPanelBytes + kMaxPairGroups * int64_t{sizeof(PairGroup)} <=
              kManyPanels * kLanes * kManyColumns);

// Totals before the first stretch.
alignas(64) constexpr float kNoTotals[kPairTokens * kPairPanels * kLanes] = {};
constexpr int64_t kPieceBytes = 64 * kLanes;  // of 64 columns of 16 tokens

// A stretch of two panels, and where the inputs of its first column lie from those of the row's.
struct PairStretch {
  uint8_t* codes;
  PairGroup* groups;
  int64_t num_groups;
  int64_t num_blocks;  // of a group
  int64_t x_offset;
  int64_t x_step;  // to the second block, from which it is kPieceBytes - x_step to the third
  int64_t first_group;
  // What the first tile makes codes and groups of.
  const LinearView* w;
  int64_t panel;
};

// The input rows of a tile in a stretch.
struct PairInputs {
  const uint8_t* x;
  int64_t next;  // from them to those of the next tile, which are fetched meanwhile
  const int32_t* begins;
  const float* wholes;
};

// Codes of a stretch that lie in a byte each.
struct DecodedPairs {
  static constexpr bool kDecodes = false;
  const uint8_t* codes;

  explicit DecodedPairs(const PairStretch& stretch) : codes(stretch.codes) {}
  template <int kPair>
  void read(int panel, U8x64& even, U8x64& odd) const {
    even = load_u8(codes + panel * kPairPanelBytes + kPair * 128);
    odd = load_u8(codes + panel * kPairPanelBytes + kPair * 128 + 64);
  }
  void next_block() { codes += kBlockColumns * kLanes; }
};

// Those that lie in the weight: decoded on the way, for the tiles that follow.
template <int kBits>
struct PackedPairs {
  static constexpr bool kDecodes = true;
  const uint8_t* block;
  int64_t panel_bytes;
  uint8_t* decoded;
  const LinearView* w;
  int64_t scale_index;

  explicit PackedPairs(const PairStretch& stretch)
      : block(
            packed_columns(*stretch.w, stretch.panel, stretch.first_group * stretch.w->group_size)),
        panel_bytes(stretch.w->num_columns * kLanes * kBits / 8),
        decoded(stretch.codes),
        w(stretch.w),
        scale_index((stretch.panel * w->weight_groups + stretch.first_group) * kLanes) {}
  template <int kPair>
  void read(int panel, U8x64& even, U8x64& odd) const {
    even = centered_codes<kBits, 2 * kPair, 0>(block + panel * panel_bytes);
    odd = centered_codes<kBits, 2 * kPair + 1, 128>(block + panel * panel_bytes);
    store_u8(decoded + panel * kPairPanelBytes + kPair * 128, even);
    store_u8(decoded + panel * kPairPanelBytes + kPair * 128 + 64, odd);
  }
  void next_block() {
    block += kBlockColumns * kLanes * kBits / 8;
    decoded += kBlockColumns * kLanes;
  }
  // products: what sums have too much of the weights alone.
  void end_group(PairGroup* group, const I32x16 (&products)[kPairPanels]) {
    for (int p = 0; p < kPairPanels; ++p) {
      store_i(group[p].begins, take_off(zero_i(), products[p]));
      store_f(group[p].scales, load_scales(*w, scale_index + p * w->weight_groups * kLanes));
    }
    scale_index += kLanes;
  }
};

// Adds the groups of a stretch to the totals at `before`, [tokens][2 panels][16], and stores them
// at `after`. Unless what is unrolled here is inlined at once, GCC 12 writes sums and totals to
// memory.
template <class Codes, int kTokens, bool kOneBlock>
__attribute__((noinline)) void add_pair_groups(const PairStretch& stretch, const PairInputs& in,
                                               FetchedLines& ahead, const float* before,
                                               float* after) {
  F32x16 totals[kTokens][kPairPanels];
  unroll<kTokens * kPairPanels>([&](auto i) __attribute__((always_inline)) {
    totals[i.value / kPairPanels][i.value % kPairPanels] = load_f(before + i.value * kLanes);
  });
  Codes codes(stretch);
  const uint8_t* x = in.x;
  const int64_t next = in.next;
  int64_t x_step = stretch.x_step;
  const int32_t* begins = in.begins;
  const float* wholes = in.wholes;
  PairGroup* group = stretch.groups;
  const uint8_t* fetched = ahead.next;
  const int64_t ahead_bytes = ahead.panel_bytes;
  int64_t lines_left = ahead.num_lines;
  const PairGroup* end = group + stretch.num_groups * kPairPanels;
  do {
    I32x16 sums[kTokens][kPairPanels];
    I32x16 products[kPairPanels];
    for (int p = 0; p < kPairPanels; ++p) {
      products[p] = zero_i();
      const I32x16 begin = Codes::kDecodes ? zero_i() : load_i(group[p].begins);
      for (int t = 0; t < kTokens; ++t) sums[t][p] = add(begin, set_i(begins[t]));
    }
    int64_t blocks_left = kOneBlock ? 1 : stretch.num_blocks;
    do {
      if (lines_left > 0) {
        for (int p = 0; p < kPairPanels; ++p) __builtin_prefetch(fetched + p * ahead_bytes, 0, 3);
        fetched += 64;
        --lines_left;
      }
      if (x_step == kBlockColumns) {
        for (int t = 0; t < kTokens; ++t) __builtin_prefetch(x + next + t * 64, 0, 3);
      }
      unroll<kQuads / 2>([&](auto pair) __attribute__((always_inline)) {
        U8x64 even[kPairPanels];
        U8x64 odd[kPairPanels];
        for (int p = 0; p < kPairPanels; ++p) {
          codes.template read<pair.value>(p, even[p], odd[p]);
          if (Codes::kDecodes) products[p] = dot4<8>(products[p], odd[p], as_signed(even[p]));
        }
        for (int t = 0; t < kTokens; ++t) {
          dot4_pairs(sums[t][0], sums[t][1], even[0], odd[0], even[1], odd[1],
                     x + t * 64 + pair.value * 8);
        }
      });
      codes.next_block();
      x += x_step;
      x_step = kPieceBytes - x_step;
    } while (!kOneBlock && --blocks_left > 0);
    if constexpr (Codes::kDecodes) {
      codes.end_group(group, products);
      for (int t = 0; t < kTokens; ++t) {
        for (int p = 0; p < kPairPanels; ++p) sums[t][p] = take_off(sums[t][p], products[p]);
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      const F32x16 whole = set_f(wholes[t]);
      for (int p = 0; p < kPairPanels; ++p) {
        const F32x16 product = take_off(bits_as_float(sums[t][p]), whole);
        totals[t][p] = add_product(totals[t][p], product, load_f(group[p].scales));
      }
    }
    begins += kLanes;
    wholes += kLanes;
    group += kPairPanels;
  } while (group < end);
  ahead.next = fetched;
  ahead.num_lines = lines_left;
  unroll<kTokens * kPairPanels>([&](auto i) __attribute__((always_inline)) {
    store_f(after + i.value * kLanes, totals[i.value / kPairPanels][i.value % kPairPanels]);
  });
}

template <int kTokens>
__attribute__((noinline)) void finish_pairs(const LinearView& w, const InputRows& in,
                                            const OutputRows& out, int64_t token, int64_t panel,
                                            const float* waiting) {
  F32x16 totals[kTokens][kPairPanels];
  for (int i = 0; i < kTokens * kPairPanels; ++i) {
    totals[i / kPairPanels][i % kPairPanels] = load_f(waiting + i * kLanes);
  }
  finish_tile<kTokens, kPairPanels>(w, in, out, token, panel, totals);
}

// Inputs of `num_tokens` tokens from `token` on, all among the same 16.
inline PairInputs pair_inputs(const LinearView& w, const InputRows& in, const PairStretch& stretch,
                              int64_t token, int64_t num_tokens) {
  const int64_t place = token & (kLanes - 1);
  const int64_t block = token - place;
  const bool is_last = place + num_tokens >= kLanes;
  const int64_t index = block * w.num_groups + stretch.first_group * kLanes + place;
  return {static_cast<const uint8_t*>(in.codes) + block * in.code_stride + place * 64 +
              stretch.x_offset,
          is_last ? kLanes * in.code_stride - place * 64 : num_tokens * 64, in.corrections + index,
          in.scales + index};
}

inline PairStretch pair_stretch(const LinearView& w, const InputRows& in, const Stretch& stretch,
                                int64_t panel, void* scratch) {
  auto* codes = static_cast<uint8_t*>(scratch);
  const int64_t x_step = stretch.first % 64 == 0 ? kBlockColumns : kPieceBytes - kBlockColumns;
  return {codes,
          reinterpret_cast<PairGroup*>(codes + kPairPanels * kPairPanelBytes),
          stretch.num_columns / w.group_size,
          w.group_size / kBlockColumns,
          code_offset(in, stretch.first),
          x_step,
          stretch.first / w.group_size,
          &w,
          panel};
}

template <int kBits, bool kOneBlock>
void int_pairs(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
               int64_t panel, int64_t panel_end, void* scratch) {
  // What decodes a stretch: there are at least 16 tokens.
  constexpr int kFirstTokens = kFirstTileTokens<kPairTokens>;
  static_assert(kMinPairTokens >= kLanes);
  float* carry =
      static_cast<float*>(scratch) + kManyPanels * kLanes * kManyColumns / 4 + kScaleFloats;
  const int64_t padded = (num_tokens + kLanes - 1) / kLanes * kLanes;
  const FinishedPanels finished(out, num_tokens, carry + padded * kPairPanels * kLanes);
  for (; panel < panel_end; panel += kPairPanels) {
    const OutputRows rows = finished.rows(panel);
    Stretch stretch{0, 0, false};
    for (int64_t first = 0; !stretch.is_last; first += stretch.num_columns) {
      stretch = stretch_at(w, first, kPairColumns);
      const PairStretch pairs = pair_stretch(w, in, stretch, panel, scratch);
      NextStretch<kPairPanels, 3> next(w, panel, stretch, num_tokens / kPairTokens + 1);
      FetchedLines ahead = next.codes();
      even_tiles<kPairTokens>(num_tokens, [&](auto tokens, int64_t token) {
        constexpr int kTokens = tokens.value;
        next.fetch_scales_share();
        if (stretch.is_last) fetch_outputs<kTokens, kPairPanels>(rows, token, panel);
        float* waiting = carry + token * kPairPanels * kLanes;
        const float* before = first == 0 ? kNoTotals : waiting;
        const PairInputs inputs = pair_inputs(w, in, pairs, token, kTokens);
        if (kTokens == kFirstTokens && token == 0) {
          add_pair_groups<PackedPairs<kBits>, kFirstTokens, kOneBlock>(pairs, inputs, ahead, before,
                                                                       waiting);
        } else {
          add_pair_groups<DecodedPairs, kTokens, kOneBlock>(pairs, inputs, ahead, before, waiting);
        }
        if (stretch.is_last) finish_pairs<kTokens>(w, in, rows, token, panel, waiting);
      });
    }
    finished.end(panel + kPairPanels);
  }
}

void pair_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                 int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  auto run = [&](auto bits) {
    if (w.group_size == kBlockColumns) {
      return int_pairs<bits.value, true>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
    }
    int_pairs<bits.value, false>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  };
  if (w.kind == WeightKind::kInt2) return run(Index<2>{});
  if (w.kind == WeightKind::kInt3) return run(Index<3>{});
  run(Index<4>{});
}

#endif

}  // namespace
}  // namespace paredown
