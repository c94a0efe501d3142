// Integer codes as floats: what inputs that are not rounded to int8 are multiplied with. Numbers
// code - zero point are whole and below 256 in magnitude, so fp32 and bf16 alike hold them exactly.
//
// A sum goes over the columns of a group, quad by quad, in a quad in the order of kQuadOrder, with
// a fused multiply-add each; a total over groups, with one for the sum and its scale. So the bits
// are the same whatever the form, the tile and, where products are fused, the set: bf16 products of
// two columns round like two of fp32.
#pragma once

#include <type_traits>

#include "kernels/linear/finish.h"
#include "kernels/linear/prepare.h"

namespace paredown {
namespace {

constexpr int kQuadOrder[4] = {2, 0, 3, 1};

// A code at bit s of a word, 0, 4 or 8, below the exponent of 2^(23-s), is the float 2^(23-s) +
// code: a mask and a subtraction, without conversion.
constexpr int kMaxPlace = 8;
constexpr int kNumPlaces = kMaxPlace / 4 + 1;
constexpr float above_at(int place) { return static_cast<float>(1 << (23 - place)); }

// What is taken off at each place, of the 16 rows of a panel.
struct ZeroPoints {
  F32x16 at[kNumPlaces];
};

inline int64_t scale_index(const LinearView& w, int64_t panel, int64_t group) {
  return (panel * w.weight_groups + (w.weight_groups == 1 ? 0 : group)) * kLanes;
}

inline ZeroPoints zero_points(const LinearView& w, int64_t panel, int64_t group) {
  const int middle = 1 << (weight_bits(w.kind) - 1);
  F32x16 own = set_f(static_cast<float>(middle));
  if (w.zero_points != nullptr) {
    own = to_float(load_u8_as_i32(w.zero_points + scale_index(w, panel, group)));
  }
  ZeroPoints zero;
  for (int i = 0; i < kNumPlaces; ++i) zero.at[i] = add(own, set_f(above_at(4 * i)));
  return zero;
}

// The bits [place, place + kBits) of each word, as a float less the zero point.
template <int kBits, int kPlace>
inline F32x16 field_less_zero(I32x16 words, const ZeroPoints& zero) {
  if constexpr (kPlace > kMaxPlace) {
    constexpr int kDown = kBits == 4 ? kPlace / 12 * 12 : 16;
    return field_less_zero<kBits, kPlace - kDown>(shift_right<kDown>(words), zero);
  } else {
    constexpr int kMask = ((1 << kBits) - 1) << kPlace;
    constexpr int kExponent = (150 - kPlace) << 23;
    const I32x16 bits = bit_or(bit_and(words, set_i(kMask)), set_i(kExponent));
    return sub(bits_as_float(bits), zero.at[kPlace / 4]);
  }
}

inline I32x16 words_of(U8x64 codes) {
  uint8_t bytes[64];
  store_u8(bytes, codes);
  return load_i(bytes);
}

// Column kColumn of quad kQuad of a block. Codes of four bits are read where they lie; those of
// other widths are brought together into bytes first.
template <int kBits, int kQuad, int kColumn>
inline F32x16 code_column(const uint8_t* block, const ZeroPoints& zero) {
  if constexpr (kBits == 4) {
    return field_less_zero<4, 8 * kColumn + 4 * (kQuad % 2)>(load_i(block + kQuad / 2 * 64), zero);
  } else if constexpr (kBits == 8) {
    return field_less_zero<8, 8 * kColumn>(load_i(block + kQuad * 64), zero);
  } else {
    return field_less_zero<8, 8 * kColumn>(words_of(quad_codes<kBits, kQuad>(block)), zero);
  }
}

// Calls `body` with the bits of a code as a constant.
template <class Body>
inline void with_code_bits(WeightKind kind, Body&& body) {
  switch (kind) {
    case WeightKind::kInt2:
      return body(Index<2>{});
    case WeightKind::kInt3:
      return body(Index<3>{});
    case WeightKind::kInt4:
      return body(Index<4>{});
    case WeightKind::kInt5:
      return body(Index<5>{});
    case WeightKind::kInt6:
      return body(Index<6>{});
    default:
      return body(Index<8>{});
  }
}

// Inputs so small that they or their products were no normal floats, which bf16 products take for
// zero.
constexpr float kSmallestInput = 0x1p-100f;
inline F32x16 without_small(F32x16 x) {
  return select_less(abs(x), set_f(kSmallestInput), zero_f(), x);
}

// Inputs of the float forms: as they are, or rounded to bf16.
void float_row(const LinearView& w, const InputRows& in, const float* row, int64_t token) {
  if (w.input == InputKind::kFp32) return copy_row(w, in, row, token);
  float* target = in.values + token * in.row_stride;
  for (int64_t i = 0; i < w.num_columns; i += kLanes) {
    uint16_t rounded[kLanes];
    store_bf16(rounded, without_small(load_f(row + i)));
    store_f(target + i, load_bf16(rounded));
  }
}

// totals += sum * scale, of a group.
template <int kTokens, int kPanels>
inline void scale_sums(const LinearView& w, int64_t panel, int64_t group,
                       const F32x16 (&sums)[kTokens][kPanels], F32x16 (&totals)[kTokens][kPanels]) {
  for (int p = 0; p < kPanels; ++p) {
    const F32x16 scale = load_scales(w, scale_index(w, panel + p, group));
    for (int t = 0; t < kTokens; ++t) totals[t][p] = fma(sums[t][p], scale, totals[t][p]);
  }
}

// What is multiplied: a column of 16 rows as floats with an input as a float.
struct FloatNumbers {
  static constexpr int64_t kStretch = 1024;  // columns that are decoded at once
  static constexpr int64_t kColumnBytes = kLanes * 4;
  static constexpr int64_t kInputBytes = 4;
  static constexpr bool kLooksUpSigned = false;

  static const uint8_t* row(const InputRows& in, int64_t token) {
    return reinterpret_cast<const uint8_t*>(in.values + token * in.row_stride);
  }
  static int64_t row_bytes(const InputRows& in) { return in.row_stride * kInputBytes; }

  template <int>
  using Zero = ZeroPoints;
  template <int>
  static ZeroPoints zero(const LinearView& w, int64_t panel, int64_t group) {
    return zero_points(w, panel, group);
  }

  // A quad of columns decoded, [4 columns][16 rows].
  template <int kBits, int kQuad>
  static void decode(const uint8_t* block, const Zero<kBits>& zero, uint8_t* quad) {
    unroll<4>([&](auto column) __attribute__((always_inline)) {
      store_f(reinterpret_cast<float*>(quad) + column.value * kLanes,
              code_column<kBits, kQuad, column.value>(block, zero));
    });
  }

  // weights(Index<column>, panel) gives the columns of a quad; its inputs begin at `x`.
  template <int kTokens, int kPanels, class Weights>
  static inline __attribute__((always_inline)) void add_quad(const Weights& weights,
                                                             const uint8_t* x, int64_t row_bytes,
                                                             F32x16 (&sums)[kTokens][kPanels]) {
    unroll<4>([&](auto place) __attribute__((always_inline)) {
      constexpr int kColumn = kQuadOrder[place.value];
      F32x16 columns[kPanels];
      for (int p = 0; p < kPanels; ++p) columns[p] = weights(Index<kColumn>{}, p);
      for (int t = 0; t < kTokens; ++t) {
        float value;
        __builtin_memcpy(&value, x + t * row_bytes + kColumn * 4, sizeof(value));
        for (int p = 0; p < kPanels; ++p) sums[t][p] = fma(columns[p], set_f(value), sums[t][p]);
      }
    });
  }
  template <int kTokens, int kPanels>
  static inline __attribute__((always_inline)) void add_decoded(const uint8_t* quad,
                                                                int64_t panel_bytes,
                                                                const uint8_t* x, int64_t row_bytes,
                                                                F32x16 (&sums)[kTokens][kPanels]) {
    add_quad<kTokens, kPanels>(
        [&](auto column, int p) __attribute__((always_inline)) {
          return load_f(reinterpret_cast<const float*>(quad + p * panel_bytes) +
                        column.value * kLanes);
        },
        x, row_bytes, sums);
  }
  // The same in registers, of a block of codes.
  template <int kBits, int kQuad, int kPanels>
  static inline __attribute__((always_inline)) void add_codes(const uint8_t* block,
                                                              int64_t panel_bytes,
                                                              const Zero<kBits> (&zero)[kPanels],
                                                              const uint8_t* x,
                                                              F32x16 (&sums)[1][kPanels]) {
    add_quad<1, kPanels>(
        [&](auto column, int p) __attribute__((always_inline)) {
          return code_column<kBits, kQuad, column.value>(block + p * panel_bytes, zero[p]);
        },
        x, 0, sums);
  }
};

#if defined(PAREDOWN_DOTS_AS_FLOATS)

// Pairs of columns in bf16, 0 and 2, 1 and 3 of a quad: bytes of a word lie like that. A product
// adds the second of a pair first.
struct PairNumbers {
  static constexpr int64_t kStretch = 2048;
  static constexpr int64_t kColumnBytes = kLanes * 2;
  static constexpr int64_t kInputBytes = 2;
  static constexpr bool kLooksUpSigned = true;

  static const uint8_t* row(const InputRows& in, int64_t token) {
    return static_cast<const uint8_t*>(in.codes) + token * in.code_stride;
  }
  static int64_t row_bytes(const InputRows& in) { return in.code_stride; }

  // Differences of codes of up to four bits are looked up, five bits of a word each; others are
  // made of floats.
  template <int kBits>
  static constexpr bool kLooksUp = kBits <= 4;
  template <int kBits>
  using Zero = std::conditional_t<kLooksUp<kBits>, U8x64, ZeroPoints>;
  template <int kBits>
  static Zero<kBits> zero(const LinearView& w, int64_t panel, int64_t group) {
    if constexpr (kLooksUp<kBits>) {
      if (w.zero_points == nullptr) return set_u8(1 << (kBits - 1));
      return repeat_4(w.zero_points + scale_index(w, panel, group));
    } else {
      return zero_points(w, panel, group);
    }
  }
  template <int kBits, int kQuad, int kFirst>
  static inline __attribute__((always_inline)) I32x16 pair(const uint8_t* block,
                                                           const Zero<kBits>& zero) {
    if constexpr (kLooksUp<kBits>) {
      return look_up_pairs<kFirst>(sub(quad_codes<kBits, kQuad>(block), zero));
    } else {
      const F32x16 first = code_column<kBits, kQuad, kFirst>(block, zero);
      const F32x16 second = code_column<kBits, kQuad, kFirst + 2>(block, zero);
      return bit_or(shift_right<16>(float_bits(first)), float_bits(second));
    }
  }

  // [2 pairs][16 rows][2].
  template <int kBits, int kQuad>
  static void decode(const uint8_t* block, const Zero<kBits>& zero, uint8_t* quad) {
    unroll<2>([&](auto first) __attribute__((always_inline)) {
      store_i(quad + first.value * 64, pair<kBits, kQuad, first.value>(block, zero));
    });
  }

  template <int kTokens, int kPanels, class Weights>
  static inline __attribute__((always_inline)) void add_quad(const Weights& weights,
                                                             const uint8_t* x, int64_t row_bytes,
                                                             F32x16 (&sums)[kTokens][kPanels]) {
    unroll<2>([&](auto place) __attribute__((always_inline)) {
      I32x16 pairs[kPanels];
      for (int p = 0; p < kPanels; ++p) pairs[p] = weights(place, p);
      for (int t = 0; t < kTokens; ++t) {
        uint32_t inputs;
        __builtin_memcpy(&inputs, x + t * row_bytes + place.value * 4, sizeof(inputs));
        for (int p = 0; p < kPanels; ++p) sums[t][p] = dot_bf16(sums[t][p], pairs[p], inputs);
      }
    });
  }
  template <int kTokens, int kPanels>
  static inline __attribute__((always_inline)) void add_decoded(const uint8_t* quad,
                                                                int64_t panel_bytes,
                                                                const uint8_t* x, int64_t row_bytes,
                                                                F32x16 (&sums)[kTokens][kPanels]) {
    add_quad<kTokens, kPanels>(
        [&](auto place, int p) __attribute__((always_inline)) {
          return load_i(quad + p * panel_bytes + place.value * 64);
        },
        x, row_bytes, sums);
  }
  template <int kBits, int kQuad, int kPanels>
  static inline __attribute__((always_inline)) void add_codes(const uint8_t* block,
                                                              int64_t panel_bytes,
                                                              const Zero<kBits> (&zero)[kPanels],
                                                              const uint8_t* x,
                                                              F32x16 (&sums)[1][kPanels]) {
    add_quad<1, kPanels>(
        [&](auto place, int p) __attribute__((always_inline)) {
          return pair<kBits, kQuad, place.value>(block + p * panel_bytes, zero[p]);
        },
        x, 0, sums);
  }
};

// Codes of four bits with the zero point 8, looked up where they lie.
struct SignedPairs : PairNumbers {
  template <int kBits, int kQuad, int kPanels>
  static inline __attribute__((always_inline)) void add_codes(const uint8_t* block,
                                                              int64_t panel_bytes,
                                                              const Zero<kBits> (&)[kPanels],
                                                              const uint8_t* x,
                                                              F32x16 (&sums)[1][kPanels]) {
    static_assert(kBits == 4);
    add_quad<1, kPanels>(
        [&](auto place, int p) __attribute__((always_inline)) {
          return look_up_nibbles<2 * place.value + kQuad % 2>(
              load_i(block + p * panel_bytes + kQuad / 2 * 64));
        },
        x, 0, sums);
  }
};

// Inputs rounded to bf16, those of a quad in the order 0, 2, 1, 3.
void pair_row(const LinearView& w, const InputRows& in, const float* row, int64_t token) {
  auto* target = static_cast<uint8_t*>(in.codes) + token * in.code_stride;
  for (int64_t i = 0; i < w.num_columns; i += kLanes) {
    uint64_t quads[kLanes / 4];
    store_bf16(reinterpret_cast<uint16_t*>(quads), without_small(load_f(row + i)));
    for (uint64_t& quad : quads) {
      quad = (quad & 0xFFFF00000000FFFF) | (quad & 0xFFFF0000) << 16 | (quad >> 16 & 0xFFFF0000);
    }
    __builtin_memcpy(target + 2 * i, quads, sizeof(quads));
  }
}

#endif

}  // namespace
}  // namespace paredown
