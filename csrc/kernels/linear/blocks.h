// Weights in blocks with their own scales (kernels/block_forms.h). Inputs are int8 with one scale x
// for each block. Its products are integers up to
//   a = sum over groups of s ((codes - zero point) . inputs)
//   b = sum over groups of m (sum of inputs)
// and an output is the sum over blocks, in their order, of x (d a - e b), in short blocks of
// x (d a + e b), each product and sum rounded on its own: the same bits on every set.
#pragma once

#include "kernels/block_forms.h"
#include "kernels/linear/int_products.h"
#include "kernels/linear/stretch.h"

namespace paredown {
namespace {

// How a kind's sums of inputs lie among the corrections of a token's block: of those with minima
// for each group the sum, 64 times the signed byte of `high` and the one of `low`, which are below
// 64, a quad of groups in an integer, first those of `high`; where there is one group, its sum;
// without minima what the zero point adds to each group, negative.
constexpr bool has_split_sums(const BlockForm& form) { return form.has_minima && !form.is_short(); }
constexpr int group_quads(const BlockForm& form) {
  return static_cast<int>(form.group_columns / 4);
}
// Groups are taken four at a time, in short blocks the one there is.
constexpr int groups_together(const BlockForm& form) { return form.is_short() ? 1 : 4; }
constexpr int num_factor_quads(const BlockForm& form) {
  return form.num_groups() / groups_together(form);
}

inline void put_split_sums(const InputRows& in, int64_t first, const int32_t* sums,
                           int64_t num_groups) {
  for (int64_t quad = 0; quad < num_groups / 4; ++quad) {
    int8_t high[4];
    int8_t low[4];
    for (int64_t i = 0; i < 4; ++i) {
      high[i] = static_cast<int8_t>(sums[4 * quad + i] >> 6);
      low[i] = static_cast<int8_t>(sums[4 * quad + i] & 63);
    }
    std::memcpy(in.corrections + first + quad * kLanes, high, 4);
    std::memcpy(in.corrections + first + (num_groups / 4 + quad) * kLanes, low, 4);
  }
}

// One scale for each block, and sums of groups.
void quantize_blocks(const LinearView& w, const InputRows& in, const float* row, int64_t token) {
  const BlockForm& form = block_form(w.kind);
  const int64_t num_groups = form.num_groups();
  const F32x16 least = set_f(-128.0f);
  const F32x16 largest = set_f(127.0f);
  auto* codes = reinterpret_cast<int8_t*>(code_row(in, token));
  for (int64_t block = 0; block < w.input_groups; ++block) {
    const float limit = largest_magnitude(row, form.columns);
    in.scales[input_index(token, w.input_groups, block)] = limit / 127.0f;
    const F32x16 inverse = set_f(limit > 0.0f ? 127.0f / limit : 0.0f);
    const int64_t first = input_index(token, w.num_groups, block * num_groups);
    int32_t sums[kBlockColumns / 2];
    for (int64_t group = 0; group < num_groups; ++group) {
      I32x16 total = zero_i();
      for (int64_t k = 0; k < form.group_columns; k += kLanes) {
        const F32x16 scaled = mul(load_f(row), inverse);
        const I32x16 code = to_int(min(max(scaled, least), largest));
        total = add(total, code);
        store_i8(codes, code);
        row += kLanes;
        codes += kLanes;
      }
      sums[group] = sum_lanes(total);
      if (has_split_sums(form)) continue;
      in.corrections[first + group * kLanes] =
          form.has_minima ? sums[group] : -form.zero_point * sums[group];
    }
    if (has_split_sums(form)) put_split_sums(in, first, sums, num_groups);
  }
}

// Quad kQuad of a run of 32 columns, as unsigned bytes to multiply.
template <WeightKind kKind, int kQuad>
inline U8x64 block_quad(const uint8_t* run) {
  constexpr BlockForm kForm = block_form(kKind);
  const U8x64 codes = quad_codes<kForm.bits, kQuad>(run);
  if constexpr (kForm.table != CodeTable::kNone) return look_up(code_table(kForm.table), codes);
  return codes;
}

// Quad kQuad of the factors of a block, [16 rows][4 groups]: scales as signed bytes, then minima.
template <WeightKind kKind, int kQuad>
inline U8x64 factor_quad(const uint8_t* block) {
  constexpr BlockForm kForm = block_form(kKind);
  const uint8_t* factors = block + kForm.factor_offset();
  if constexpr (kForm.factors == Factors::kBytes) return load_u8(factors + kQuad * 64);
  if constexpr (kForm.factors == Factors::kFourBits) return plane_bits<4, kQuad>(factors);
  if constexpr (kForm.factors == Factors::kSixBits) {
    constexpr int64_t kHighBits = kForm.num_factors() * kLanes / 2;
    const U8x64 six =
        or_shifted<4>(plane_bits<4, kQuad>(factors), plane_bits<2, kQuad>(factors + kHighBits));
    return kForm.factor_zero == 0 ? six : sub(six, set_u8(kForm.factor_zero));
  }
}

template <WeightKind kKind>
inline F32x16 load_half(const uint8_t* block, int index) {
  constexpr BlockForm kForm = block_form(kKind);
  const auto* halves = reinterpret_cast<const uint16_t*>(block + kForm.half_offset());
  return kForm.has_bf16_scale ? load_bf16(halves) : load_fp16(halves + index * kLanes);
}

// Adds the products of kNumQuads quads of columns; read(quad, panel) gives their bytes.
template <int kDotBits, int kNumQuads, int kTokens, int kPanels, class Read>
inline __attribute__((always_inline)) void add_quads(const Read& read, const int8_t* x,
                                                     int64_t row_stride,
                                                     I32x16 (&sums)[kTokens][kPanels]) {
#if defined(PAREDOWN_HAS_SHORT_SUMS)
  if constexpr (kDotBits < 8) {
    I16x32 shorts[kTokens][kPanels];
    unroll<kNumQuads>([&](auto quad) __attribute__((always_inline)) {
      constexpr int kPlace = quad.value % kShortQuads<kDotBits>;
      constexpr bool kIsLast = kPlace == kShortQuads<kDotBits> - 1 || quad.value == kNumQuads - 1;
      I32x16 fours[kTokens];
      for (int t = 0; t < kTokens; ++t) {
        fours[t] = broadcast_codes(x + t * row_stride + 4 * quad.value);
      }
      for (int p = 0; p < kPanels; ++p) {
        const U8x64 codes = kept(read(quad, p));
        for (int t = 0; t < kTokens; ++t) {
          const I16x32 products = pair_products(codes, fours[t]);
          shorts[t][p] = kPlace == 0 ? products : add(shorts[t][p], products);
          if constexpr (kIsLast) sums[t][p] = add_both(sums[t][p], shorts[t][p]);
        }
      }
    });
    return;
  }
#endif
  unroll<kNumQuads>([&](auto quad) __attribute__((always_inline)) {
    I32x16 fours[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      fours[t] = broadcast_codes(x + t * row_stride + 4 * quad.value);
    }
    for (int p = 0; p < kPanels; ++p) {
      const U8x64 codes = read(quad, p);
      for (int t = 0; t < kTokens; ++t) {
        sums[t][p] = dot4<kDotBits>(sums[t][p], codes, fours[t]);
      }
    }
  });
}

// Adds to half a sum the products of a quad of minima with the sums of their inputs.
inline I32x16 add_minima(I32x16 sum, U8x64 minima, const int32_t* sums) {
  return dot4<dot_bits(6)>(sum, minima, set_i(*sums));
}

// What a block adds to a total. `of_inputs`: in short blocks, the sum of inputs.
template <bool kIsShort, bool kHasMinima>
inline F32x16 add_block_sum(F32x16 total, F32x16 d, I32x16 a, F32x16 e, I32x16 b, float x_scale) {
  F32x16 sum = mul(d, to_float(a));
  if constexpr (kHasMinima) {
    const F32x16 minima = mul(e, to_float(b));
    sum = kIsShort ? add(sum, minima) : sub(sum, minima);
  }
  return add(total, mul(set_f(x_scale), sum));
}

}  // namespace
}  // namespace paredown
