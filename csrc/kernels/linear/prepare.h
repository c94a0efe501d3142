// Input rows in the form of a weight's kernel: quantized to int8, rounded to bf16, or as they are.
#pragma once

#include <bit>
#include <limits>

#include "kernels/decode.h"

namespace paredown {
namespace {

// Index of token's entry of a group in InputRows::scales and ::corrections.
inline int64_t input_index(int64_t token, int64_t num_groups, int64_t group) {
  return (token / kLanes * num_groups + group) * kLanes + token % kLanes;
}

// Where a row of codes begins, and how far byte `i` of it lies from there: a run of 64 bytes is in
// one piece in either layout.
inline uint8_t* code_row(const InputRows& in, int64_t token) {
  auto* codes = static_cast<uint8_t*>(in.codes);
  if (in.form->layout == InputLayout::kRows) return codes + token * in.code_stride;
  return codes + token / kLanes * kLanes * in.code_stride + token % kLanes * 64;
}
inline int64_t code_offset(const InputRows& in, int64_t i) {
  return in.form->layout == InputLayout::kRows ? i : i / 64 * 64 * kLanes + i % 64;
}

// Magnitudes as the bits of floats, of whose order a NaN is the largest: a maximum of floats would
// lose it, and with it that outputs are none either.
inline I32x16 magnitude_bits(const float* x) { return float_bits(abs(load_f(x))); }

// In four chains: one would wait for its own last comparison.
inline float largest_magnitude(const float* x, int64_t size) {
  constexpr int kChains = 4;
  I32x16 largest[kChains];
  for (I32x16& chain : largest) chain = zero_i();
  int64_t i = 0;
  for (; i + kChains * kLanes <= size; i += kChains * kLanes) {
    for (int j = 0; j < kChains; ++j) {
      largest[j] = max(largest[j], magnitude_bits(x + i + j * kLanes));
    }
  }
  for (; i < size; i += kLanes) largest[0] = max(largest[0], magnitude_bits(x + i));
  const I32x16 bits = max(max(largest[0], largest[1]), max(largest[2], largest[3]));
  return std::bit_cast<float>(max_lanes(bits));
}

#if defined(PAREDOWN_PAIRS_PRODUCTS)
// Of the pairs of columns among 16, those of a quad with those of the quad after it, (x_a +
// 128) x_b: what the product of a pair has of its inputs alone.
inline I32x16 pair_products(I32x16 codes) {
  alignas(64) static constexpr int32_t kFirst[kLanes] = {0, 0, 0, 0, 128, 128, 128, 128,
                                                         0, 0, 0, 0, 128, 128, 128, 128};
  return mul(codes, add(quad_before(codes), load_i(kFirst)));
}
#endif

// code = round(x * inverse), within [-128, 127], of a NaN any, for `size` columns of a token
// from `first` on, whose codes begin at `row`, x the first of them; returns the sum of the codes by
// lane, or kPairs: of their pair_products.
template <bool kPairs = false>
inline I32x16 quantize(const InputRows& in, uint8_t* row, const float* x, int64_t first,
                       int64_t size, float inverse) {
  const F32x16 factor = set_f(inverse);
  I32x16 total = zero_i();
  for (int64_t i = 0; i < size; i += kBlockColumns, x += kBlockColumns) {
    auto* codes = reinterpret_cast<int8_t*>(row + code_offset(in, first + i));
    for (int64_t k = 0; k < kBlockColumns; k += kLanes) {
      const F32x16 scaled = mul(load_f(x + k), factor);
      const I32x16 code = to_int(min(max(scaled, set_f(-128.0f)), set_f(127.0f)));
#if defined(PAREDOWN_PAIRS_PRODUCTS)
      total = add(total, kPairs ? pair_products(code) : code);
#else
      total = add(total, code);
#endif
      store_i8(codes + k, code);
    }
  }
  return total;
}

// Whether the scales of groups of inputs are powers of two: where the weights' groups have scales,
// too, whose product with them then rounds nothing, so that many tokens need not take it
// (int_groups.h). Codes end at 120 there, so that the sum of one and of a weight's of four
// bits fits a byte (int_pairs.h).
constexpr float kLargestPowerCode = 120.0f;
inline bool has_power_scales(const LinearView& w) {
  return w.input_scale <= 0.0f && w.input_groups > 1 && w.weight_groups > 1;
}

// The least power of two that is no less than a scale, from 2^-100 on; not a number for one beyond
// 2^104, so that what is scaled with it is none either. And its inverse.
constexpr float kMinPower = 0x1p-100f;
constexpr float kMaxPower = 0x1p104f;
inline void round_up_to_power(F32x16& scale, F32x16& inverse) {
  const I32x16 above = add(float_bits(max(set_f(kMinPower), scale)), set_i(0x7FFFFF));
  const F32x16 power = bits_as_float(shift_left<23>(shift_right<23>(above)));
  const F32x16 too_large = set_f(0x1.000002p104f);  // the first one
  inverse = select_less(scale, too_large, div(set_f(1.0f), power), zero_f());
  scale = select_less(scale, too_large, power, set_f(std::numeric_limits<float>::quiet_NaN()));
}

// 1.5 * 2^23 times the scale of a group of inputs, a power of two. Its last bit counts that scale:
// its bits and a sum added to them are the bits of this and the sum times the scale, as long as
// sums stay below 2^22; taking it off leaves that product. Of a scale that is not a number it is
// none either.
constexpr int32_t kWholeBits = 0x4B400000 - 0x3F800000;
inline I32x16 sum_bits(F32x16 x_scales) {
  const I32x16 powers = min(float_bits(x_scales), set_i(std::bit_cast<int32_t>(2 * kMaxPower)));
  return add(powers, set_i(kWholeBits));
}

// Whether sums of the groups may be read as the bits of floats.
inline bool may_read_bits(const LinearView& w) {
  const int64_t largest = w.group_size * ((int64_t{128} << weight_bits(w.kind)) - 128);
  return kReadsBits && has_power_scales(w) && largest < int64_t{1} << 22;
}
// Whether they are in this layout: InputRows has sum_bits as scales then.
inline bool has_sum_bits(const LinearView& w, [[maybe_unused]] InputLayout layout) {
#if defined(PAREDOWN_HAS_TILES)
  if (layout == InputLayout::kInterleaved) return false;  // tile products are converted
#endif
  return may_read_bits(w);
}

// What is added for each of a token's codes: unsigned codes of the weight lie so much too high.
inline int32_t common_zero_point(const LinearView& w) {
  const int bits = w.num_steps > 0 ? 8 : weight_bits(w.kind);
  return w.zero_points == nullptr ? 1 << (bits - 1) : 1;
}

// Up to 16 groups of columns that follow each other: of a token, or one of each of several tokens,
// none across a multiple of 16.
struct TokenGroups {
  const float* x;  // the columns of one follow those of the one before
  int64_t token;
  int64_t group;
  int64_t count;
  bool of_tokens;
};

// A scale for each: what is found of each takes fewer operations where it is found of all.
template <bool kPairs>
__attribute__((noinline)) void quantize_groups(const LinearView& w, const InputRows& in,
                                               const TokenGroups& groups) {
  const int64_t size = w.group_size;
  const int64_t count = groups.count;
  I32x16 largest[kLanes];
  I32x16 totals[kLanes];
  // Only those without a group: of all 16, GCC 12 makes a slow loop of its own.
  for (int64_t i = count; i < kLanes; ++i) {
    largest[i] = zero_i();
    totals[i] = zero_i();
  }
  const float* x = groups.x;
  for (int64_t i = 0; i < count; ++i) {
    I32x16 magnitude = zero_i();
    for (int64_t k = 0; k < size; k += kBlockColumns, x += kBlockColumns) {
      magnitude = max(magnitude, max(magnitude_bits(x), magnitude_bits(x + kLanes)));
    }
    largest[i] = magnitude;
  }
  const F32x16 limits = bits_as_float(max_of_each(largest));
  F32x16 scale = div(limits, set_f(has_power_scales(w) ? kLargestPowerCode : 127.0f));
  F32x16 inverse = zero_f();
  if (has_power_scales(w)) {
    round_up_to_power(scale, inverse);
  } else {
    inverse = select_less(zero_f(), limits, div(set_f(127.0f), limits), zero_f());
  }
  float inverses[kLanes];
  store_f(inverses, inverse);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t group = groups.of_tokens ? groups.group : groups.group + i;
    uint8_t* row = code_row(in, groups.of_tokens ? groups.token + i : groups.token);
    totals[i] = quantize<kPairs>(in, row, groups.x + i * size, group * size, size, inverses[i]);
  }
  I32x16 corrections = mul(sum_of_each(totals), set_i(kPairs ? -1 : -common_zero_point(w)));
  if (has_sum_bits(w, in.form->layout)) {
    const I32x16 bits = sum_bits(scale);
    scale = bits_as_float(bits);
    if (w.zero_points == nullptr) corrections = add(corrections, bits);
  }
  const int64_t first = input_index(groups.token, w.num_groups, groups.group);
  if (groups.of_tokens && count == kLanes) {
    store_f(in.scales + first, scale);
    store_i(in.corrections + first, corrections);
    return;
  }
  float scales[kLanes];
  int32_t sums[kLanes];
  store_f(scales, scale);
  store_i(sums, corrections);
  const int64_t step = groups.of_tokens ? 1 : kLanes;
  for (int64_t i = 0; i < count; ++i) {
    in.scales[first + i * step] = scales[i];
    in.corrections[first + i * step] = sums[i];
  }
}

inline void quantize_groups(const LinearView& w, const InputRows& in, const TokenGroups& groups) {
#if defined(PAREDOWN_PAIRS_PRODUCTS)
  if (in.form->layout == InputLayout::kPairs) return quantize_groups<true>(w, in, groups);
#endif
  quantize_groups<false>(w, in, groups);
}

// Symmetric int8: one scale per row and group, one per row, or one given for all rows.
void quantize_row(const LinearView& w, const InputRows& in, const float* row, int64_t token) {
  if (w.input_scale <= 0.0f && w.input_groups > 1) {
    for (int64_t first = 0; first < w.num_groups; first += kLanes) {
      const int64_t left = w.num_groups - first;
      quantize_groups(
          w, in, {row + first * w.group_size, token, first, left < kLanes ? left : kLanes, false});
    }
    return;
  }
  const int32_t zero_point = common_zero_point(w);
  // Of a row with a NaN the scale is none either.
  const float limit = largest_magnitude(row, w.num_columns);
  float scale = limit / 127.0f;
  float inverse = limit > 0.0f ? 127.0f / limit : 0.0f;
  if (w.input_scale > 0.0f) {
    scale = limit == limit ? w.input_scale : limit;
    inverse = 1.0f / w.input_scale;
  }
  for (int64_t group = 0; group < w.num_groups; ++group) {
    const int64_t first = group * w.group_size;
    if (group == 0 || w.input_groups > 1) {
      in.scales[input_index(token, w.input_groups, group)] = scale;
    }
    in.corrections[input_index(token, w.num_groups, group)] =
        zero_point *
        -sum_lanes(quantize(in, code_row(in, token), row + first, first, w.group_size, inverse));
  }
}

// `size` numbers of a token from `column` on, rounded to bf16.
inline void round_part(const InputRows& in, const float* part, int64_t column, int64_t size,
                       int64_t token) {
  uint8_t* target = code_row(in, token);
  for (int64_t i = 0; i < size; i += kLanes) {
    if constexpr (kHasBf16Dot) {
      const int64_t offset = code_offset(in, 2 * (column + i));
      store_bf16(reinterpret_cast<uint16_t*>(target + offset), load_f(part + i));
    } else {
      uint16_t rounded[kLanes];
      store_bf16(rounded, load_f(part + i));
      store_f(reinterpret_cast<float*>(target) + column + i, load_bf16(rounded));
    }
  }
}

void round_row(const LinearView& w, const InputRows& in, const float* row, int64_t token) {
  round_part(in, row, 0, w.num_columns, token);
}

void copy_row(const LinearView& w, const InputRows& in, const float* row, int64_t token) {
  float* target = in.values + token * in.row_stride;
  if (target == row) return;
  for (int64_t i = 0; i < w.num_columns; i += kLanes) store_f(target + i, load_f(row + i));
}

}  // namespace
}  // namespace paredown
