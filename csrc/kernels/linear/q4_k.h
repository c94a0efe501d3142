// Q4_K, super-blocks of 256 columns: eight runs of 32 columns with codes of four bits, a scale s
// and a minimum m of six bits each, and two fp16 numbers d and e for all of them (GGUF). A weight
// is d s code - e m. Inputs are int8 with one scale x for each super-block. Its products are
// integers up to
//   a = sum over runs of s (codes . inputs)     b = sum over runs of m (sum of inputs)
// and an output is the sum over super-blocks, in their order, of x (d a - e b), each product and
// sum rounded on its own: the same bits on every set.
#pragma once

#include "kernels/linear/int_groups.h"

namespace paredown {
namespace {

constexpr int kRuns = 8;
constexpr int64_t kSuperColumns = kRuns * kBlockColumns;
constexpr int64_t kRunBytes = kBlockColumns * kLanes / 2;
// A super-block of 16 rows: the runs as int4 blocks; what lies beside the codes of six bits, in
// quads of runs: a plane of four bits for scales, one for minima, then one of two bits for both,
// minima behind scales; d and e.
constexpr int64_t kFactorBytes = kRuns * kRunBytes;
constexpr int64_t kHalfBytes = kFactorBytes + 3 * 64;
constexpr int64_t kSuperBytes = block_bytes(WeightKind::kQ4K);
static_assert(kHalfBytes + 2 * 2 * kLanes == kSuperBytes);
static_assert(kSuperColumns == traits_of(WeightKind::kQ4K).block_columns);

// The sums of inputs of a run are 64 times the signed byte of `high` and the one of `low`, which
// are below 64: places of both among the corrections of a super-block, a quad of runs in each.
constexpr int64_t kHighSums = 0;
constexpr int64_t kLowSums = 2;

// One scale for each super-block, and sums of runs.
void quantize_supers(const LinearView& w, const InputRows& in, const float* row, int64_t token) {
  uint8_t* codes = code_row(in, token);
  for (int64_t block = 0; block < w.input_groups; ++block) {
    const int64_t first = block * kSuperColumns;
    const float limit = largest_magnitude(row + first, kSuperColumns);
    in.scales[input_index(token, w.input_groups, block)] = limit / 127.0f;
    const float inverse = limit > 0.0f ? 127.0f / limit : 0.0f;
    int8_t high[kRuns];
    int8_t low[kRuns];
    for (int64_t run = 0; run < kRuns; ++run) {
      const int64_t column = first + run * kBlockColumns;
      const int32_t sum =
          sum_lanes(quantize(in, codes, row + column, column, kBlockColumns, inverse));
      high[run] = static_cast<int8_t>(sum >> 6);
      low[run] = static_cast<int8_t>(sum & 63);
    }
    for (int64_t quad = 0; quad < 2; ++quad) {
      auto put = [&](int64_t place, const int8_t* four) {
        std::memcpy(in.corrections + input_index(token, w.num_groups, block * kRuns + place + quad),
                    four + 4 * quad, 4);
      };
      put(kHighSums, high);
      put(kLowSums, low);
    }
  }
}

// The scales or the minima of quad kQuad of runs, [16 rows][4 runs].
template <int kQuad, bool kMinima>
inline U8x64 run_factors(const uint8_t* factors) {
  const U8x64 low = plane_bits<4, kQuad>(factors + (kMinima ? 64 : 0));
  return or_shifted<4>(low, plane_bits<2, kQuad + (kMinima ? 2 : 0)>(factors + 128));
}

// Sum over runs of minimum times sum of inputs, from the sums' two bytes.
inline I32x16 sum_minima(U8x64 first, U8x64 second, const int32_t* sums) {
  auto product = [&](int64_t place, I32x16 start) {
    const I32x16 half = dot4<dot_bits(6)>(start, first, set_i(sums[place * kLanes]));
    return dot4<dot_bits(6)>(half, second, set_i(sums[(place + 1) * kLanes]));
  };
  return product(kLowSums, shift_left<6>(product(kHighSums, zero_i())));
}

// Adds four runs to `products`, whose scales are a quad.
template <NearFetch kNear, int kTokens, int kPanels>
inline __attribute__((always_inline)) void add_runs(CodeSource source, const int8_t* x,
                                                    int64_t row_stride,
                                                    const U8x64 (&scales)[kPanels],
                                                    I32x16 (&products)[kTokens][kPanels]) {
  unroll<4>([&](auto run) __attribute__((always_inline)) {
    I32x16 sums[kTokens][kPanels];
    for (int i = 0; i < kTokens * kPanels; ++i) sums[i / kPanels][i % kPanels] = zero_i();
    add_block<dot_bits(4), kNear, 1>(PlainCodes<4>{}, source.codes + run.value * kRunBytes, source,
                                     x + run.value * kBlockColumns, row_stride, sums);
    for (int p = 0; p < kPanels; ++p) {
      const I32x16 scale = byte_of<run.value>(scales[p]);
      for (int t = 0; t < kTokens; ++t) {
        products[t][p] = add(products[t][p], mul(sums[t][p], scale));
      }
    }
  });
}

// The sums of kTokens tokens for kPanels panels, over all super-blocks.
template <NearFetch kNear, int kTokens, int kPanels>
__attribute__((noinline)) void sum_supers(const LinearView& w, const InputRows& in, int64_t token,
                                          int64_t panel, F32x16 (&totals)[kTokens][kPanels]) {
  const TileInputs<kTokens> inputs(w, in, token);
  const int64_t panel_bytes = w.input_groups * kSuperBytes;
  const auto* super = static_cast<const uint8_t*>(w.values) + panel * panel_bytes;
  const auto* x = static_cast<const int8_t*>(in.codes) + token * in.code_stride;
  for (auto& row : totals) {
    for (F32x16& total : row) total = zero_f();
  }
  for (int64_t block = 0; block < w.input_groups; ++block, super += kSuperBytes) {
    I32x16 products[kTokens][kPanels];
    for (int i = 0; i < kTokens * kPanels; ++i) products[i / kPanels][i % kPanels] = zero_i();
    unroll<2>([&](auto quad) __attribute__((always_inline)) {
      U8x64 scales[kPanels];
      for (int p = 0; p < kPanels; ++p) {
        scales[p] = run_factors<quad.value, false>(super + p * panel_bytes + kFactorBytes);
      }
      const int64_t run = quad.value * 4;
      add_runs<kNear>({super + run * kRunBytes, panel_bytes, kPanels * panel_bytes},
                      x + block * kSuperColumns + run * kBlockColumns, in.code_stride, scales,
                      products);
    });
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* own = super + p * panel_bytes;
      const U8x64 first = run_factors<0, true>(own + kFactorBytes);
      const U8x64 second = run_factors<1, true>(own + kFactorBytes);
      const auto* halves = reinterpret_cast<const uint16_t*>(own + kHalfBytes);
      const F32x16 of_products = load_fp16(halves);
      const F32x16 of_minima = load_fp16(halves + kLanes);
      for (int t = 0; t < kTokens; ++t) {
        const I32x16 minima =
            sum_minima(first, second, inputs.corrections[t] + block * kRuns * kLanes);
        const F32x16 sum =
            sub(mul(of_products, to_float(products[t][p])), mul(of_minima, to_float(minima)));
        totals[t][p] = add(totals[t][p], mul(set_f(inputs.scales[t][block * kLanes]), sum));
      }
    }
  }
}

// Tiles of kTokens tokens by kPanels panels, kTogether of them read side by side.
template <NearFetch kNear, int kTokens, int kPanels, int kTogether>
void q4_k_tiles(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
                int64_t panel, int64_t panel_end) {
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    token_tiles<kTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
      fetch_outputs<tokens.value, kPanels>(out, token, panel);
      F32x16 totals[tokens.value][kPanels];
      for (int p = 0; p < kPanels; p += kTogether) {
        F32x16 part[tokens.value][kTogether];
        sum_supers<kNear>(w, in, token, panel + p, part);
        for (int i = 0; i < tokens.value * kTogether; ++i) {
          totals[i / kTogether][p + i % kTogether] = part[i / kTogether][i % kTogether];
        }
      }
      finish_rows<tokens.value, kPanels>(w, out, token, panel, totals);
    });
  }
  if constexpr (kPanels > 1) {
    constexpr int kHalf = kPanels / 2;
    q4_k_tiles<kNear, kTokens, kHalf, (kTogether < kHalf ? kTogether : kHalf)>(
        w, in, out, num_tokens, panel, panel_end);
  }
}

void q4_k_one_token(const LinearView& w, const InputRows& in, const OutputRows& out,
                    int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void*) {
  // Fetches of a super-block come at once, which Zen 4 pays with bandwidth (near_fetch.h).
  if (on_zen4()) {
    return q4_k_tiles<NearFetch::kNowhere, 1, kIntPanels, kFewPanels>(w, in, out, num_tokens,
                                                                      panel_begin, panel_end);
  }
  with_near_fetch([&](auto near) {
    q4_k_tiles<near.value, 1, kIntPanels, kFewPanels>(w, in, out, num_tokens, panel_begin,
                                                      panel_end);
  });
}

void q4_k_tokens(const LinearView& w, const InputRows& in, const OutputRows& out,
                 int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void*) {
  q4_k_tiles<NearFetch::kNowhere, kManyGroupTokens, kManyPanels, kManyPanels>(
      w, in, out, num_tokens, panel_begin, panel_end);
}

}  // namespace
}  // namespace paredown
