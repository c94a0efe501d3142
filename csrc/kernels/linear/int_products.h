// Integer codes of 2 to 8 bits times int8 inputs. Products are summed in int32, which is exact in
// any order, so the vector and the tile forms, few tokens and many, give the same bits; the float
// sum over groups runs in their order.
#pragma once

#include <cstring>

#include "kernels/linear/finish.h"
#include "kernels/linear/near_fetch.h"
#include "kernels/linear/prepare.h"

namespace paredown {
namespace {

inline I32x16 broadcast_codes(const int8_t* codes) {
  int32_t four;
  std::memcpy(&four, codes, sizeof(four));
  return set_i(four);
}

#if !defined(PAREDOWN_HAS_DOT4_OF)
// dot4 with the four codes at `x` in each lane.
template <int kBits>
inline I32x16 dot4_of(I32x16 acc, U8x64 w, const int8_t* x) {
  return dot4<kBits>(acc, w, broadcast_codes(x));
}
#endif

// What the unsigned codes of a group add too much starts its sum; sums wrap modulo 2^32 on the way
// and end within int32.
inline I32x16 correction(const LinearView& w, int64_t index, const int32_t* of_input) {
  const I32x16 all = set_i(*of_input);
  return w.zero_points == nullptr ? all : mul(load_u8_as_i32(w.zero_points + index), all);
}

// Where the sum of a group begins that is read as bits (sum_bits): the correction holds the bits of
// `whole` where all weights have one zero point.
inline I32x16 begin_bits(const LinearView& w, int64_t index, const int32_t* of_input,
                         const float* whole) {
  if (w.zero_points == nullptr) return set_i(*of_input);
  return add(float_bits(set_f(*whole)), correction(w, index, of_input));
}

// total + weight scale * (input scale * sum), the scales as far as a group has its own. Of both the
// input's is a power of two, so that one rounding is left.
inline F32x16 add_group(const LinearView& w, F32x16 total, I32x16 sum, F32x16 weight_scale,
                        float input_scale) {
  const F32x16 product = to_float(sum);
  if (w.num_groups == 1) return product;
  if (w.input_groups == 1) return fma(product, weight_scale, total);
  if (w.weight_groups == 1) return fma(product, set_f(input_scale), total);
  return fma(mul(product, set_f(input_scale)), weight_scale, total);
}

// Where the codes of a panel lie: in the weight itself, or decoded to one per byte.
struct CodeSource {
  const uint8_t* codes;
  int64_t panel_bytes;
  // Bytes ahead to fetch into the second cache, where codes are fetched: what is read after these
  // panels.
  int64_t ahead_bytes;
};

// Codes below 8 bits have faster products on some sets: where products are summed in 16 bits by
// their bits, up to 4 and up to 6, or all the same.
constexpr int dot_bits(int bits) {
  if (!kHasSmallDot || bits == 8) return 8;
#if defined(PAREDOWN_HAS_SHORT_SUMS)
  if (bits <= 4) return 4;
#endif
  return 6;
}

// How the codes of quads are read from blocks of kPanels panels: as they are, or with steps.
template <int kPackedBits>
struct PlainCodes {
  static constexpr int kBits = kPackedBits;
  template <int kQuad>
  U8x64 quad(const uint8_t* block, int) const {
    return quad_codes<kBits, kQuad>(block);
  }
};
template <int kPanels>
struct SteppedCodes {
  static constexpr int kBits = 4;
  StepBytes steps[kPanels];
  template <int kQuad>
  U8x64 quad(const uint8_t* block, int panel) const {
    return stepped_quad<kQuad>(block, steps[panel]);
  }
};

// Fetches the lines of the block at `block` that are the due of quad kQuad, at an even pace: all at
// once they would hold up the loads after them. What is near comes where the processor wants it
// (near_fetch.h; a load that misses the first cache would wait behind the fetches from memory),
// what is read after these panels into the second.
template <NearFetch kNear, int kQuad, int kBits, int kPanels>
inline __attribute__((always_inline)) void fetch_ahead(const uint8_t* block, CodeSource source) {
  constexpr int64_t kBytes = kBlockColumns * kLanes / 8 * kBits;
  constexpr int64_t kLines = kBytes / 64 * kPanels;
  for (int64_t line = kQuad * kLines / kQuads; line < (kQuad + 1) * kLines / kQuads; ++line) {
    const uint8_t* here =
        block + line / (kBytes / 64) * source.panel_bytes + line % (kBytes / 64) * 64;
    fetch_near<kNear>(here);
    if constexpr (kFetchesNextPanels) __builtin_prefetch(here + source.ahead_bytes, 0, 2);
  }
}

// Sums of kPanels panels in kChains: one sum would wait for its own last product.
template <int kPanels, int kChains>
inline void start_chains(I32x16 first, int panel, I32x16 (&sums)[kPanels * kChains]) {
  sums[panel] = first;
  for (int chain = 1; chain < kChains; ++chain) sums[chain * kPanels + panel] = zero_i();
}
template <int kPanels, int kChains>
inline I32x16 whole_sum(const I32x16 (&sums)[kPanels * kChains], int panel) {
  I32x16 sum = sums[panel];
  for (int chain = 1; chain < kChains; ++chain) sum = add(sum, sums[chain * kPanels + panel]);
  return sum;
}

#if defined(PAREDOWN_HAS_SHORT_SUMS)
// Quads of columns whose products are summed in 16 bits: each number there has two of a quad.
template <int kDotBits>
constexpr int kShortQuads = kDotBits == 8 ? 0 : (1 << 15) / (2 * 128 * ((1 << kDotBits) - 1));
static_assert(kQuads % kShortQuads<4> == 0 && kQuads % kShortQuads<6> == 0);

// Adds the products of a block of columns, panel by panel, so that a panel's codes are in registers
// for all tokens. kNear: where what comes after the block is fetched meanwhile.
template <int kDotBits, NearFetch kNear, int kChains, class Codes, int kTokens, int kPanels>
inline __attribute__((always_inline)) void add_block(const Codes& read, const uint8_t* block,
                                                     CodeSource source, const int8_t* x,
                                                     int64_t row_stride,
                                                     I32x16 (&sums)[kTokens][kPanels]) {
  static_assert(kChains == 1);
  I16x32 shorts[kTokens][kPanels];
  unroll<kQuads>([&](auto quad) __attribute__((always_inline)) {
    if constexpr (kNear != NearFetch::kNowhere) {
      fetch_ahead<kNear, quad.value, Codes::kBits, kPanels>(block, source);
    }
    I32x16 fours[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      fours[t] = broadcast_codes(x + t * row_stride + 4 * quad.value);
    }
    constexpr int kPlace = kDotBits == 8 ? 0 : quad.value % kShortQuads<kDotBits>;
    for (int p = 0; p < kPanels; ++p) {
      const U8x64 codes = kept(read.template quad<quad.value>(block + p * source.panel_bytes, p));
      for (int t = 0; t < kTokens; ++t) {
        if constexpr (kDotBits == 8) {
          sums[t][p] = dot4<8>(sums[t][p], codes, fours[t]);
        } else {
          const I16x32 products = pair_products(codes, fours[t]);
          shorts[t][p] = kPlace == 0 ? products : add(shorts[t][p], products);
        }
      }
    }
    if constexpr (kDotBits < 8 && kPlace == kShortQuads<kDotBits> - 1) {
      for (int t = 0; t < kTokens; ++t) {
        for (int p = 0; p < kPanels; ++p) sums[t][p] = add_both(sums[t][p], shorts[t][p]);
      }
    }
  });
}
#else
// Adds the products of a block of columns, token by token. kNear: where what comes after the block
// is fetched meanwhile.
template <int kDotBits, NearFetch kNear, int kChains, class Codes, int kTokens, int kSums>
inline __attribute__((always_inline)) void add_block(const Codes& read, const uint8_t* block,
                                                     CodeSource source, const int8_t* x,
                                                     int64_t row_stride,
                                                     I32x16 (&sums)[kTokens][kSums]) {
  constexpr int kPanels = kSums / kChains;
  unroll<kQuads>([&](auto quad) __attribute__((always_inline)) {
    if constexpr (kNear != NearFetch::kNowhere) {
      fetch_ahead<kNear, quad.value, Codes::kBits, kPanels>(block, source);
    }
    U8x64 codes[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      codes[p] = read.template quad<quad.value>(block + p * source.panel_bytes, p);
    }
    for (int t = 0; t < kTokens; ++t) {
      const int8_t* four = x + t * row_stride + 4 * quad.value;
      I32x16* chain = sums[t] + quad.value % kChains * kPanels;
      if constexpr (kPanels == 1) {
        *chain = dot4_of<kDotBits>(*chain, codes[0], four);
      } else {
        const I32x16 all = broadcast_codes(four);
        for (int p = 0; p < kPanels; ++p) chain[p] = dot4<kDotBits>(chain[p], codes[p], all);
      }
    }
  });
}
#endif

// Adds the products of `num_columns` columns.
template <int kDotBits, NearFetch kNear, int kChains = 1, class Codes, int kTokens, int kSums>
inline __attribute__((always_inline)) void add_products(const Codes& read, CodeSource source,
                                                        int64_t num_columns, const int8_t* x,
                                                        int64_t row_stride,
                                                        I32x16 (&sums)[kTokens][kSums]) {
  constexpr int64_t kBytes = kBlockColumns * kLanes / 8 * Codes::kBits;
  const uint8_t* block = source.codes;
  for (int64_t k = 0; k < num_columns; k += kBlockColumns, block += kBytes, x += kBlockColumns) {
    add_block<kDotBits, kNear, kChains>(read, block, source, x, row_stride, sums);
  }
}

// Applies the scales that hold for a whole row and finishes.
template <int kTokens, int kPanels>
inline void finish_tile(const LinearView& w, const InputRows& in, const OutputRows& out,
                        int64_t token, int64_t panel, F32x16 (&totals)[kTokens][kPanels]) {
  if (w.weight_groups == 1) {
    for (int p = 0; p < kPanels; ++p) {
      const F32x16 scale = load_scales(w, (panel + p) * kLanes);
      for (int t = 0; t < kTokens; ++t) totals[t][p] = mul(totals[t][p], scale);
    }
  }
  if (w.input_groups == 1) {
    for (int t = 0; t < kTokens; ++t) {
      const F32x16 scale = set_f(in.scales[input_index(token + t, 1, 0)]);
      for (int p = 0; p < kPanels; ++p) totals[t][p] = mul(totals[t][p], scale);
    }
  }
  finish_rows<kTokens, kPanels>(w, out, token, panel, totals);
}

}  // namespace
}  // namespace paredown
