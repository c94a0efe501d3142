// Integer codes times inputs that are not rounded to int8: one token decodes them in registers; for
// more a stretch of columns is decoded once, stays in the second cache, and all tokens pass over
// it. Numbers says as what they are multiplied (kernels/linear/float_codes.h).
#pragma once

#include "kernels/linear/float_codes.h"
#include "kernels/linear/stretch.h"

namespace paredown {
namespace {

constexpr int kOneCodedPanels = kFloatPanels;
// Where groups are cut, the sums of so many panels wait beside their totals.
constexpr int kCutPanels = 2;

template <class Numbers, int kBits, int kPanels>
__attribute__((noinline)) void one_coded_tile(const LinearView& w, const InputRows& in,
                                              const OutputRows& out, int64_t token, int64_t panel) {
  constexpr int64_t kBytes = kBlockColumns * kLanes / 8 * kBits;
  const int64_t panel_bytes = w.num_columns / kBlockColumns * kBytes;
  const uint8_t* block = packed_columns(w, panel, 0);
  const uint8_t* x = Numbers::row(in, token);
  fetch_outputs<1, kPanels>(out, token, panel);
  F32x16 totals[1][kPanels];
  for (F32x16& total : totals[0]) total = zero_f();
  for (int64_t group = 0; group < w.num_groups; ++group) {
    typename Numbers::template Zero<kBits> zero[kPanels];
    for (int p = 0; p < kPanels; ++p) zero[p] = Numbers::template zero<kBits>(w, panel + p, group);
    F32x16 sums[1][kPanels];
    for (F32x16& sum : sums[0]) sum = zero_f();
    for (int64_t k = 0; k < w.group_size; k += kBlockColumns) {
      unroll<kQuads>([&](auto quad) __attribute__((always_inline)) {
        Numbers::template add_codes<kBits, quad.value, kPanels>(
            block, panel_bytes, zero, x + quad.value * 4 * Numbers::kInputBytes, sums);
      });
      block += kBytes;
      x += kBlockColumns * Numbers::kInputBytes;
    }
    scale_sums(w, panel, group, sums, totals);
  }
  finish_rows<1, kPanels>(w, out, token, panel, totals);
}

template <class Numbers, int kBits, int kPanels>
void one_coded_panels(const LinearView& w, const InputRows& in, const OutputRows& out,
                      int64_t num_tokens, int64_t panel, int64_t panel_end) {
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    for (int64_t token = 0; token < num_tokens; ++token) {
      one_coded_tile<Numbers, kBits, kPanels>(w, in, out, token, panel);
    }
  }
  if constexpr (kPanels > 1) {
    one_coded_panels<Numbers, kBits, kPanels / 2>(w, in, out, num_tokens, panel, panel_end);
  }
}

template <class Numbers>
void one_coded_token(const LinearView& w, const InputRows& in, const OutputRows& out,
                     int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void*) {
#if defined(PAREDOWN_DOTS_AS_FLOATS)
  if (Numbers::kLooksUpSigned && w.kind == WeightKind::kInt4 && w.zero_points == nullptr) {
    return one_coded_panels<SignedPairs, 4, kOneCodedPanels>(w, in, out, num_tokens, panel_begin,
                                                             panel_end);
  }
#endif
  with_code_bits(w.kind, [&](auto bits) {
    one_coded_panels<Numbers, bits.value, kOneCodedPanels>(w, in, out, num_tokens, panel_begin,
                                                           panel_end);
  });
}

// Columns [first, first + num_columns) of a panel.
template <class Numbers, int kBits>
__attribute__((noinline)) void decode_numbers(const LinearView& w, int64_t panel,
                                              const Stretch& stretch, uint8_t* to) {
  const uint8_t* block = packed_columns(w, panel, stretch.first);
  const int64_t end = stretch.first + stretch.num_columns;
  for (int64_t k = stretch.first; k < end;) {
    const int64_t group = k / w.group_size;
    const auto zero = Numbers::template zero<kBits>(w, panel, group);
    const int64_t group_end = (group + 1) * w.group_size;
    for (; k < (group_end < end ? group_end : end); k += kBlockColumns) {
      unroll<kQuads>([&](auto quad) __attribute__((always_inline)) {
        Numbers::template decode<kBits, quad.value>(block, zero,
                                                    to + quad.value * 4 * Numbers::kColumnBytes);
      });
      block += block_bytes(w.kind);
      to += kBlockColumns * Numbers::kColumnBytes;
    }
  }
}

// The next stretch of at most `limit` columns from `first` on: whole groups, or a part of one.
inline Stretch next_stretch(const LinearView& w, int64_t first, int64_t limit) {
  int64_t end = (first / w.group_size + 1) * w.group_size;
  if (w.group_size <= limit) end = first + limit / w.group_size * w.group_size;
  if (end > first + limit) end = first + limit;
  if (end > w.num_columns) end = w.num_columns;
  return {first, end - first, end == w.num_columns};
}

template <int kTokens, int kPanels>
inline void begin_sums(bool is_first, const float* waiting, F32x16 (&sums)[kTokens][kPanels]) {
  for (int i = 0; i < kTokens * kPanels; ++i) {
    sums[i / kPanels][i % kPanels] = is_first ? zero_f() : load_f(waiting + i * kLanes);
  }
}
template <int kTokens, int kPanels>
inline void keep_sums(const F32x16 (&sums)[kTokens][kPanels], float* waiting) {
  for (int i = 0; i < kTokens * kPanels; ++i) {
    store_f(waiting + i * kLanes, sums[i / kPanels][i % kPanels]);
  }
}

// Tokens of a stretch of some panels that lie decoded at `numbers`.
template <class Numbers, int kTokens, int kPanels>
inline void add_numbers(const uint8_t* numbers, int64_t num_columns, const uint8_t* x,
                        int64_t row_bytes, F32x16 (&sums)[kTokens][kPanels]) {
  constexpr int64_t kPanelBytes = Numbers::kStretch * Numbers::kColumnBytes;
  for (int64_t k = 0; k < num_columns; k += 4) {
    Numbers::template add_decoded<kTokens, kPanels>(numbers, kPanelBytes, x, row_bytes, sums);
    numbers += 4 * Numbers::kColumnBytes;
    x += 4 * Numbers::kInputBytes;
  }
}

// What waits of a tile between stretches: totals of several groups, and where a group is cut its
// sums so far.
struct WaitingTile {
  float* totals;
  float* sums;
};

template <class Numbers, int kTokens, int kPanels>
__attribute__((noinline)) void coded_tile_of(const LinearView& w, const InputRows& in,
                                             const OutputRows& out, const Stretch& stretch,
                                             const uint8_t* numbers, int64_t token, int64_t panel,
                                             const WaitingTile& waiting) {
  if (stretch.is_last) fetch_outputs<kTokens, kPanels>(out, token, panel);
  const uint8_t* x = Numbers::row(in, token) + stretch.first * Numbers::kInputBytes;
  const int64_t row_bytes = Numbers::row_bytes(in);
  const int64_t end = stretch.first + stretch.num_columns;
  F32x16 totals[kTokens][kPanels];
  begin_sums(stretch.first == 0 || w.num_groups == 1, waiting.totals, totals);
  for (int64_t k = stretch.first; k < end;) {
    const int64_t group = k / w.group_size;
    const int64_t group_end = (group + 1) * w.group_size;
    const int64_t size = (group_end < end ? group_end : end) - k;
    F32x16 sums[kTokens][kPanels];
    begin_sums(k == group * w.group_size, waiting.sums, sums);
    add_numbers<Numbers>(numbers, size, x, row_bytes, sums);
    if (k + size == group_end) {
      scale_sums(w, panel, group, sums, totals);
    } else {
      keep_sums(sums, waiting.sums);
    }
    numbers += size * Numbers::kColumnBytes;
    x += size * Numbers::kInputBytes;
    k += size;
  }
  if (stretch.is_last) return finish_rows<kTokens, kPanels>(w, out, token, panel, totals);
  if (w.num_groups > 1) keep_sums(totals, waiting.totals);
}

// `numbers`: room for kFloatPanels panels, and behind them for the sums of as many of all tokens.
template <class Numbers, int kPanels>
void many_coded_panels(const LinearView& w, const InputRows& in, const OutputRows& out,
                       int64_t num_tokens, int64_t panel, int64_t panel_end, uint8_t* numbers) {
  constexpr int64_t kPanelBytes = Numbers::kStretch * Numbers::kColumnBytes;
  static_assert(kFloatPanels * kPanelBytes <= 8 * kManyColumns * kLanes);
  auto* carry = reinterpret_cast<float*>(numbers + 8 * kManyColumns * kLanes);
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    Stretch stretch{};
    for (int64_t first = 0; first < w.num_columns; first += stretch.num_columns) {
      stretch = next_stretch(w, first, Numbers::kStretch);
      with_code_bits(w.kind, [&](auto bits) {
        for (int p = 0; p < kPanels; ++p) {
          decode_numbers<Numbers, bits.value>(w, panel + p, stretch, numbers + p * kPanelBytes);
        }
      });
      token_tiles<kFloatTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
        float* totals = carry + token * kPanels * kLanes;
        float* sums = w.num_groups == 1 ? totals : totals + num_tokens * kPanels * kLanes;
        coded_tile_of<Numbers, tokens.value, kPanels>(w, in, out, stretch, numbers, token, panel,
                                                      {totals, sums});
      });
    }
  }
  if constexpr (kPanels > 1) {
    many_coded_panels<Numbers, kPanels / 2>(w, in, out, num_tokens, panel, panel_end, numbers);
  }
}

template <class Numbers>
void many_coded_tokens(const LinearView& w, const InputRows& in, const OutputRows& out,
                       int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  auto* numbers = static_cast<uint8_t*>(scratch);
  if (w.num_groups > 1 && w.group_size > Numbers::kStretch) {
    return many_coded_panels<Numbers, kCutPanels>(w, in, out, num_tokens, panel_begin, panel_end,
                                                  numbers);
  }
  many_coded_panels<Numbers, kFloatPanels>(w, in, out, num_tokens, panel_begin, panel_end, numbers);
}

}  // namespace
}  // namespace paredown
