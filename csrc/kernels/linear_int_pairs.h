// Codes of up to four bits for some tens of tokens and more, whose groups have scales of inputs and
// of weights: Winograd's inner product (S. Winograd, "A New Algorithm for Inner Product", IEEE
// Transactions on Computers C-17, 1968). Of two columns a and b
//   x_a w_a + x_b w_b = (x_a + w_b) (x_b + w_a) - x_a x_b - w_a w_b,
// one product for two columns; what is taken off is found once for each token and once for each
// weight. Where additions have ports of their own, sums are made faster than products alone can be.
// Sums stay whole numbers, so the bits are those of the other forms.
#pragma once

#include "linear_int_many.h"

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

inline bool takes_pairs(const LinearView& w, int64_t num_tokens) {
  const int64_t num_panels = (w.num_rows + kLanes - 1) / kLanes;
  return num_tokens >= kMinPairTokens && num_panels % kPairPanels == 0 &&
         w.input == InputKind::kInt8 && weight_bits(w.kind) <= kPairBits &&
         w.zero_points == nullptr && may_read_bits(w) && w.group_size <= kDecodedColumns;
}

// The codes of a quad of columns as signed numbers, kMore added modulo 256.
template <int kBits, int kQuad, int kMore>
inline U8x64 centered_codes(const uint8_t* block) {
  if constexpr (kBits == 4) {
    return centered_nibbles<kQuad % 2 * 4, kMore>(load_u8(block + kQuad / 2 * 64));
  }
  return sub(quad_codes<kBits, kQuad>(block), set_u8((1 << (kBits - 1)) + kMore));
}

// The codes of a group of a panel, those of odd quads 128 more, and what its sums begin with.
template <int kBits>
inline I32x16 decode_pairs(const uint8_t* block, int64_t num_columns, uint8_t* codes) {
  I32x16 sum = zero_i();
  for (int64_t k = 0; k < num_columns; k += kBlockColumns) {
    unroll<kQuads / 2>([&](auto pair) {
      const U8x64 even = centered_codes<kBits, 2 * pair.value, 0>(block);
      const U8x64 odd = centered_codes<kBits, 2 * pair.value + 1, 128>(block);
      store_u8(codes + 2 * pair.value * 64, even);
      store_u8(codes + (2 * pair.value + 1) * 64, odd);
      sum = dot4<8>(sum, odd, as_signed(even));
    });
    block += kBlockColumns * kLanes / 8 * kBits;
    codes += kBlockColumns * kLanes;
  }
  return mul(sum, set_i(-1));
}

// A stretch of two panels: its codes one to a byte, panels kPairPanelBytes apart, its groups side
// by side.
constexpr int64_t kPairPanelBytes = kDecodedColumns * kLanes;
constexpr int64_t kMaxPairGroups = kPairPanels * kPairColumns / kBlockColumns;
static_assert(kPairPanels * kPairPanelBytes + kMaxPairGroups * int64_t{sizeof(PairGroup)} <=
              kManyPanels * kLanes * kManyColumns);

template <int kBits>
__attribute__((noinline)) void decode_pair_groups(const LinearView& w, int64_t panel,
                                                  const Stretch& stretch, uint8_t* codes,
                                                  PairGroup* groups) {
  constexpr int64_t kColumnBytes = kLanes * kBits / 8;
  const int64_t first = stretch.first / w.group_size;
  const int64_t num_groups = stretch.num_columns / w.group_size;
  for (int64_t i = 0; i < num_groups; ++i) {
    for (int p = 0; p < kPairPanels; ++p, ++groups) {
      const int64_t column = (panel + p) * w.num_columns + stretch.first + i * w.group_size;
      store_i(groups->begins,
              decode_pairs<kBits>(static_cast<const uint8_t*>(w.values) + column * kColumnBytes,
                                  w.group_size,
                                  codes + p * kPairPanelBytes + i * w.group_size * kLanes));
      const int64_t index = (panel + p) * w.weight_groups + first + i;
      store_f(groups->scales, load_scales(w, index * kLanes));
    }
  }
}

// Totals before the first stretch.
alignas(64) constexpr float kNoTotals[kPairTokens * kPairPanels * kLanes] = {};
constexpr int64_t kPieceBytes = 64 * kLanes;  // of 64 columns of 16 tokens

// A stretch of two panels, and where the inputs of its first column lie from those of the row's.
struct PairStretch {
  const uint8_t* codes;
  const PairGroup* groups;
  int64_t num_groups;
  int64_t num_blocks;  // of a group
  int64_t x_offset;
  int64_t x_step;  // to the second block, from which it is kPieceBytes - x_step to the third
  int64_t first_group;
};

// The input rows of a tile in a stretch.
struct PairInputs {
  const uint8_t* x;
  int64_t next;  // from them to those of the next tile, which are fetched meanwhile
  const int32_t* begins;
  const float* wholes;
};

// Adds the groups of a stretch to the totals at `before`, [tokens][2 panels][16], and stores them
// at `after`. Unless what is unrolled here is inlined at once, GCC 12 writes sums and totals to
// memory.
template <int kTokens, bool kOneBlock>
__attribute__((noinline)) void add_pair_groups(const PairStretch& stretch, const PairInputs& in,
                                               FetchedLines& ahead, const float* before,
                                               float* after) {
  F32x16 totals[kTokens][kPairPanels];
  unroll<kTokens * kPairPanels>([&](auto i) __attribute__((always_inline)) {
    totals[i.value / kPairPanels][i.value % kPairPanels] = load_f(before + i.value * kLanes);
  });
  const uint8_t* codes = stretch.codes;
  const uint8_t* x = in.x;
  const int64_t next = in.next;
  int64_t x_step = stretch.x_step;
  const int32_t* begins = in.begins;
  const float* wholes = in.wholes;
  const PairGroup* group = stretch.groups;
  const uint8_t* fetched = ahead.next;
  const int64_t ahead_bytes = ahead.panel_bytes;
  int64_t lines_left = ahead.num_lines;
  const PairGroup* end = group + stretch.num_groups * kPairPanels;
  do {
    I32x16 sums[kTokens][kPairPanels];
    for (int p = 0; p < kPairPanels; ++p) {
      const I32x16 begin = load_i(group[p].begins);
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
          even[p] = load_u8(codes + p * kPairPanelBytes + pair.value * 128);
          odd[p] = load_u8(codes + p * kPairPanelBytes + pair.value * 128 + 64);
        }
        for (int t = 0; t < kTokens; ++t) {
          dot4_pairs(sums[t][0], sums[t][1], even[0], odd[0], even[1], odd[1],
                     x + t * 64 + pair.value * 8);
        }
      });
      codes += kBlockColumns * kLanes;
      x += x_step;
      x_step = kPieceBytes - x_step;
    } while (!kOneBlock && --blocks_left > 0);
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
                                const uint8_t* codes, const PairGroup* groups) {
  const int64_t x_step = stretch.first % 64 == 0 ? kBlockColumns : kPieceBytes - kBlockColumns;
  return {codes,
          groups,
          stretch.num_columns / w.group_size,
          w.group_size / kBlockColumns,
          code_offset(in, stretch.first),
          x_step,
          stretch.first / w.group_size};
}

template <int kBits, bool kOneBlock>
void int_pairs(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
               int64_t panel, int64_t panel_end, void* scratch) {
  auto* codes = static_cast<uint8_t*>(scratch);
  auto* groups = reinterpret_cast<PairGroup*>(codes + kPairPanels * kPairPanelBytes);
  float* carry =
      reinterpret_cast<float*>(codes + kManyPanels * kLanes * kManyColumns) + kScaleFloats;
  const int64_t padded = (num_tokens + kLanes - 1) / kLanes * kLanes;
  const FinishedPanels finished(out, num_tokens, carry + padded * kPairPanels * kLanes);
  for (; panel < panel_end; panel += kPairPanels) {
    const OutputRows rows = finished.rows(panel);
    Stretch stretch{0, 0, false};
    for (int64_t first = 0; !stretch.is_last; first += stretch.num_columns) {
      stretch = stretch_at(w, first, kPairColumns);
      decode_pair_groups<kBits>(w, panel, stretch, codes, groups);
      const PairStretch pairs = pair_stretch(w, in, stretch, codes, groups);
      NextStretch<kPairPanels, 3> next(w, panel, stretch, num_tokens / kPairTokens + 1);
      FetchedLines ahead = next.codes();
      even_tiles<kPairTokens>(num_tokens, [&](auto tokens, int64_t token) {
        constexpr int kTokens = tokens.value;
        next.fetch_scales_share();
        if (stretch.is_last) fetch_outputs<kTokens, kPairPanels>(rows, token, panel);
        float* waiting = carry + token * kPairPanels * kLanes;
        add_pair_groups<kTokens, kOneBlock>(pairs, pair_inputs(w, in, pairs, token, kTokens), ahead,
                                            first == 0 ? kNoTotals : waiting, waiting);
        if (stretch.is_last) finish_pairs<kTokens>(w, in, rows, token, panel, waiting);
      });
    }
    finished.end(panel + kPairPanels);
  }
}

inline void pair_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
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
