// Weights in blocks, one token: codes are decoded in registers.
#pragma once

#include "kernels/linear/blocks.h"

namespace paredown {
namespace {

// Fetches the lines of a block that are the due of one of its quads, at an even pace.
template <WeightKind kKind, NearFetch kNear, int kAt>
inline __attribute__((always_inline)) void fetch_block_share(const uint8_t* block) {
  constexpr BlockForm kForm = block_form(kKind);
  constexpr int64_t kLines = kForm.bytes() / 64;
  constexpr int64_t kAll = kForm.columns / 4;
  for (int64_t line = kAt * kLines / kAll; line < (kAt + 1) * kLines / kAll; ++line) {
    fetch_near<kNear>(block + line * 64);
  }
}

// Adds the groups of quad kQuad of a block to `products`. `sums`: of a token's inputs.
template <WeightKind kKind, NearFetch kNear, int kQuad, int kPanels>
inline __attribute__((always_inline)) void add_factor_quad(const uint8_t* block,
                                                           int64_t panel_bytes, const int8_t* x,
                                                           const int32_t* corrections,
                                                           I32x16 (&products)[1][kPanels]) {
  constexpr BlockForm kForm = block_form(kKind);
  constexpr int kTogether = groups_together(kForm);
  constexpr int kGroupQuads = group_quads(kForm);
  constexpr bool kHasFactors = kForm.factors != Factors::kNone;
  U8x64 scales[kPanels];
  for (int p = 0; p < kPanels; ++p) {
    if constexpr (kHasFactors) scales[p] = factor_quad<kKind, kQuad>(block + p * panel_bytes);
  }
  unroll<kTogether>([&](auto place) __attribute__((always_inline)) {
    constexpr int kGroup = kQuad * kTogether + place.value;
    constexpr int kFirst = kGroup * kGroupQuads;
    I32x16 sums[1][kPanels];
    const I32x16 begin = kForm.has_minima ? zero_i() : set_i(corrections[kGroup * kLanes]);
    for (int p = 0; p < kPanels; ++p) sums[0][p] = begin;
    auto read = [&](auto quad, int p) __attribute__((always_inline)) {
      constexpr int kAt = kFirst + quad.value;
      if (p == 0) fetch_block_share<kKind, kNear, kAt>(block);
      return block_quad<kKind, kAt % kQuads>(block + p * panel_bytes +
                                             kAt / kQuads * kForm.run_bytes());
    };
    add_quads<dot_bits(kForm.product_bits), kGroupQuads>(read, x + 4 * kFirst, 0, sums);
    for (int p = 0; p < kPanels; ++p) {
      if constexpr (kHasFactors) {
        sums[0][p] = mul(sums[0][p], signed_byte_of<place.value>(scales[p]));
      }
      products[0][p] = add(products[0][p], sums[0][p]);
    }
  });
}

// The sum over groups of minimum times sum of inputs, of one panel.
template <WeightKind kKind>
inline I32x16 sum_minima(const uint8_t* block, const int32_t* corrections) {
  constexpr BlockForm kForm = block_form(kKind);
  if constexpr (!has_split_sums(kForm)) {
    return set_i(*corrections);
  } else {
    constexpr int kNum = num_factor_quads(kForm);
    U8x64 minima[kNum];
    unroll<kNum>(
        [&](auto quad) { minima[quad.value] = factor_quad<kKind, kNum + quad.value>(block); });
    I32x16 sum = zero_i();
    for (int i = 0; i < kNum; ++i) sum = add_minima(sum, minima[i], corrections + i * kLanes);
    sum = shift_left<6>(sum);
    for (int i = 0; i < kNum; ++i) {
      sum = add_minima(sum, minima[i], corrections + (kNum + i) * kLanes);
    }
    return sum;
  }
}

// The sums of a token for kPanels panels, over all blocks.
template <WeightKind kKind, NearFetch kNear, int kPanels>
__attribute__((noinline)) void sum_blocks(const LinearView& w, const InputRows& in, int64_t token,
                                          int64_t panel, F32x16* totals) {
  constexpr BlockForm kForm = block_form(kKind);
  const int64_t panel_bytes = w.input_groups * kForm.bytes();
  const auto* block = static_cast<const uint8_t*>(w.values) + panel * panel_bytes;
  const auto* x = static_cast<const int8_t*>(in.codes) + token * in.code_stride;
  const int32_t* corrections = in.corrections + input_index(token, w.num_groups, 0);
  const float* x_scale = in.scales + input_index(token, w.input_groups, 0);
  F32x16 own[kPanels];
  for (F32x16& total : own) total = zero_f();
  for (int64_t index = 0; index < w.input_groups; ++index) {
    I32x16 products[1][kPanels];
    for (I32x16& product : products[0]) product = zero_i();
    unroll<num_factor_quads(kForm)>([&](auto quad) __attribute__((always_inline)) {
      add_factor_quad<kKind, kNear, quad.value>(block, panel_bytes, x, corrections, products);
    });
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* panel_block = block + p * panel_bytes;
      const F32x16 d = load_half<kKind>(panel_block, 0);
      F32x16 e = d;
      I32x16 minima = products[0][p];
      if constexpr (kForm.has_minima) {
        e = load_half<kKind>(panel_block, 1);
        minima = sum_minima<kKind>(panel_block, corrections);
      }
      own[p] = add_block_sum<kForm.is_short(), kForm.has_minima>(own[p], d, products[0][p], e,
                                                                 minima, *x_scale);
    }
    block += kForm.bytes();
    x += kForm.columns;
    corrections += kForm.num_groups() * kLanes;
    x_scale += kLanes;
  }
  for (int p = 0; p < kPanels; ++p) totals[p] = own[p];
}

template <WeightKind kKind, NearFetch kNear, int kPanels>
void block_panels(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t token,
                  int64_t panel, int64_t panel_end) {
  constexpr int kTogether = kFewPanels < kPanels ? kFewPanels : kPanels;
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    fetch_outputs<1, kPanels>(out, token, panel);
    F32x16 totals[1][kPanels];
    for (int p = 0; p < kPanels; p += kTogether) {
      sum_blocks<kKind, kNear, kTogether>(w, in, token, panel + p, totals[0] + p);
    }
    finish_rows<1, kPanels>(w, out, token, panel, totals);
  }
  if constexpr (kPanels > 1) {
    block_panels<kKind, kNear, kPanels / 2>(w, in, out, token, panel, panel_end);
  }
}

// Calls `body` with the kind as a constant.
template <int kIndex = 0, class Body>
inline void with_block_kind(WeightKind kind, Body&& body) {
  constexpr WeightKind kKind = kBlockForms[kIndex].kind;
  if constexpr (kIndex + 1 < static_cast<int>(sizeof(kBlockForms) / sizeof(kBlockForms[0]))) {
    if (kind != kKind) return with_block_kind<kIndex + 1>(kind, body);
  }
  body(std::integral_constant<WeightKind, kKind>{});
}

void block_one_token(const LinearView& w, const InputRows& in, const OutputRows& out,
                     int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void*) {
  with_block_kind(w.kind, [&](auto kind) {
    for (int64_t token = 0; token < num_tokens; ++token) {
      // Fetches of a block come at once, which Zen 4 pays with bandwidth (near_fetch.h).
      if (on_zen4()) {
        block_panels<kind.value, NearFetch::kNowhere, kIntPanels>(w, in, out, token, panel_begin,
                                                                  panel_end);
      } else {
        block_panels<kind.value, NearFetch::kFirstCache, kIntPanels>(w, in, out, token, panel_begin,
                                                                     panel_end);
      }
    }
  });
}

}  // namespace
}  // namespace paredown
