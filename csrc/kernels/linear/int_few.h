// Few tokens: the weight is read once, its codes decoded in registers; or one token after the
// other.
#pragma once

#include "kernels/linear/int_products.h"
#include "kernels/linear/near_fetch.h"

namespace paredown {
namespace {

// The groups of a tile, added to `totals`. Its tokens never cross a multiple of 16, so that what
// belongs to them lies side by side (input_index). kReads: sums are read as bits.
template <NearFetch kNear, bool kReads, int kBits, int kChains, int kTokens, int kPanels>
inline __attribute__((always_inline)) void add_groups(const LinearView& w, const InputRows& in,
                                                      CodeSource source, int64_t token,
                                                      int64_t panel,
                                                      F32x16 (&totals)[kTokens][kPanels]) {
  const auto* x = static_cast<const int8_t*>(in.codes) + token * in.code_stride;
  const int32_t* corrections = in.corrections + input_index(token, w.num_groups, 0);
  const float* x_scales = in.scales + input_index(token, w.input_groups, 0);
  for (int64_t group = 0; group < w.num_groups; ++group, corrections += kLanes) {
    I32x16 sums[kTokens][kPanels * kChains];
    F32x16 scales[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      const int64_t weight_group = w.weight_groups == 1 ? 0 : group;
      const int64_t index = ((panel + p) * w.weight_groups + weight_group) * kLanes;
      scales[p] = load_scales(w, index);
      if (kFetchesNextPanels && w.weight_groups > 1) {
        fetch_scales(w, index + 2 * w.weight_groups * kLanes);
      }
      for (int t = 0; t < kTokens; ++t) {
        const I32x16 first = kReads ? begin_bits(w, index, corrections + t, x_scales + t)
                                    : correction(w, index, corrections + t);
        start_chains<kPanels, kChains>(first, p, sums[t]);
      }
    }
    add_products<dot_bits(kBits), kNear, kChains>(PlainCodes<kBits>{}, source, w.group_size,
                                                  x + group * w.group_size, in.code_stride, sums);
    source.codes += w.group_size * kLanes / 8 * kBits;
    for (int t = 0; t < kTokens; ++t) {
      const float x_scale = w.input_groups == 1 ? 1.0f : x_scales[t];
      for (int p = 0; p < kPanels; ++p) {
        const I32x16 sum = whole_sum<kPanels, kChains>(sums[t], p);
        if constexpr (kReads) {
          const F32x16 product = sub(bits_as_float(sum), set_f(x_scales[t]));
          totals[t][p] = fma(product, scales[p], totals[t][p]);
        } else {
          totals[t][p] = add_group(w, totals[t][p], sum, scales[p], x_scale);
        }
      }
    }
    if (w.input_groups > 1) x_scales += kLanes;
  }
}

// A whole row of int4 codes with steps: the sums of int8 codes.
template <NearFetch kNear, int kChains, int kTokens, int kPanels>
inline __attribute__((always_inline)) void add_steps(const LinearView& w, const InputRows& in,
                                                     CodeSource source, int64_t token,
                                                     int64_t panel,
                                                     F32x16 (&totals)[kTokens][kPanels]) {
  const auto* x = static_cast<const int8_t*>(in.codes) + token * in.code_stride;
  I32x16 sums[kTokens][kPanels * kChains];
  for (int t = 0; t < kTokens; ++t) {
    const I32x16 first = set_i(in.corrections[input_index(token + t, 1, 0)]);
    for (int p = 0; p < kPanels; ++p) start_chains<kPanels, kChains>(first, p, sums[t]);
  }
  for (int64_t step = 0; step < w.num_steps; ++step, x += w.step_size) {
    SteppedCodes<kPanels> read;
    for (int p = 0; p < kPanels; ++p) {
      const int64_t index = ((panel + p) * w.num_steps + step) * kLanes;
      read.steps[p] = load_steps(w, index);
      if (kFetchesNextPanels) __builtin_prefetch(w.steps + index + 2 * w.num_steps * kLanes, 0, 2);
    }
    add_products<8, kNear, kChains>(read, source, w.step_size, x, in.code_stride, sums);
    source.codes += w.step_size * kLanes / 2;
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int p = 0; p < kPanels; ++p) {
      totals[t][p] = to_float(whole_sum<kPanels, kChains>(sums[t], p));
    }
  }
}

// Codes that are mostly summed over whole rows; the others have a sum for each group.
constexpr bool is_row(int bits, bool stepped) { return stepped || bits == 8; }

// Chains of products that make up each of `num_sums` sums.
template <int kBits, bool kStepped>
constexpr int num_chains(int num_sums) {
  constexpr int kWanted = is_row(kBits, kStepped) ? kRowSums : kGroupSums;
  return num_sums < kWanted ? kWanted / num_sums : 1;
}

// Few tokens: the weight is read once, its codes decoded in registers, of kTogether panels at a
// time; kPanels are finished together.
template <NearFetch kNear, int kBits, bool kStepped, int kTokens, int kPanels, int kTogether>
void int_few(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
             int64_t panel, int64_t panel_end) {
  const int64_t panel_bytes = w.num_columns * kLanes / 8 * kBits;
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    const auto* codes = static_cast<const uint8_t*>(w.values) + panel * panel_bytes;
    token_tiles<kTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
      F32x16 totals[tokens.value][kPanels];
      for (int p = 0; p < kPanels; p += kTogether) {
        const CodeSource source{codes + p * panel_bytes, panel_bytes, kPanels * panel_bytes};
        constexpr int kChains = num_chains<kBits, kStepped>(tokens.value * kTogether);
        F32x16 part[tokens.value][kTogether];
        if constexpr (kStepped) {
          add_steps<kNear, kChains>(w, in, source, token, panel + p, part);
        } else {
          for (auto& row : part) {
            for (F32x16& total : row) total = zero_f();
          }
          if (may_read_bits(w)) {
            add_groups<kNear, kReadsBits, kBits, kChains>(w, in, source, token, panel + p, part);
          } else {
            add_groups<kNear, false, kBits, kChains>(w, in, source, token, panel + p, part);
          }
        }
        for (int t = 0; t < tokens.value; ++t) {
          for (int i = 0; i < kTogether; ++i) totals[t][p + i] = part[t][i];
        }
      }
      finish_tile<tokens.value, kPanels>(w, in, out, token, panel, totals);
    });
  }
  if constexpr (kPanels > 1) {
    int_few<kNear, kBits, kStepped, kTokens, kPanels / 2, 1>(w, in, out, num_tokens, panel,
                                                             panel_end);
  }
}

// Weights whose codes are read in registers: panels side by side for as many tokens as leave room
// for their sums, one after the other for more.
template <NearFetch kNear, int kBits, bool kStepped>
inline void int_few_near(const LinearView& w, const InputRows& in, const OutputRows& out,
                         int64_t num_tokens, int64_t panel_begin, int64_t panel_end) {
  if (num_tokens == 1) {
    return int_few<kNear, kBits, kStepped, 1, kIntPanels, kFewPanels>(w, in, out, num_tokens,
                                                                      panel_begin, panel_end);
  }
  if constexpr (kFewPanels > 1) {
    if (num_tokens <= kGroupTokens) {
      return int_few<kNear, kBits, kStepped, kGroupTokens, kIntPanels, kFewPanels>(
          w, in, out, num_tokens, panel_begin, panel_end);
    }
  }
  constexpr int kTokens = is_row(kBits, kStepped) ? kSerialRowTokens : kSerialTokens;
  static_assert(kLanes % kTokens == 0);  // tiles never cross a multiple of 16
  int_few<kNear, kBits, kStepped, kTokens, kIntPanels, kSerialPanels>(w, in, out, num_tokens,
                                                                      panel_begin, panel_end);
}

template <int kBits, bool kStepped>
void int_few_tokens(const LinearView& w, const InputRows& in, const OutputRows& out,
                    int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void*) {
  if (runs_ahead<kBits>(w, num_tokens)) {
    return int_few<NearFetch::kNowhere, kBits, kStepped, kMaxAheadTokens<kBits>, kIntPanels,
                   kFewPanels>(w, in, out, num_tokens, panel_begin, panel_end);
  }
  with_near_fetch([&](auto near) {
    int_few_near<near.value, kBits, kStepped>(w, in, out, num_tokens, panel_begin, panel_end);
  });
}

// Two tokens at a time, for kinds that more tokens read decoded.
void int_two_tokens(const LinearView& w, const InputRows& in, const OutputRows& out,
                    int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void*) {
  auto run = [&](auto bits) {
    with_near_fetch([&](auto near) {
      int_few<near.value, bits.value, false, 2, kIntPanels, kFewPanels>(w, in, out, num_tokens,
                                                                        panel_begin, panel_end);
    });
  };
  switch (w.kind) {
    case WeightKind::kInt2:
      return run(Index<2>{});
    case WeightKind::kInt3:
      return run(Index<3>{});
    case WeightKind::kInt5:
      return run(Index<5>{});
    default:
      return run(Index<6>{});
  }
}

}  // namespace
}  // namespace paredown
