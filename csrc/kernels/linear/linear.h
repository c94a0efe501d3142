// Linear layers: which form multiplies a weight with its input. Lanes are output rows, so every
// output is summed over its columns in one fixed order, whatever the number of tokens, the tile or
// the thread.
#pragma once

#include "kernels/linear/int_pairs.h"
#include "kernels/linear/int_shared.h"
#include "kernels/linear/tile_groups.h"
#include "kernels/linear/tile_rows.h"
#include "kernels/linear/tile_steps.h"

namespace paredown {
namespace {

// Shorter rows are those of models that the last cache may hold.
constexpr int64_t kShortRowColumns = 768;

// So few tokens that codes are decoded in registers: for more, once to memory or for tiles.
inline bool few_tokens(const LinearView& w, int64_t num_tokens) {
  if (w.group_size == 32) return num_tokens <= kFewTokensShortGroups;
  const bool short_rows =
      w.num_columns < kShortRowColumns && is_row(weight_bits(w.kind), w.num_steps > 0);
  if (short_rows) return num_tokens <= kFewTokensShortRows;
  return num_tokens <= (w.num_steps > 0 ? kFewTokensSteps : kFewTokens);
}

inline bool takes_tiles(const LinearView& w, int64_t num_tokens) {
#if defined(PAREDOWN_HAS_TILES)
  if (w.input != InputKind::kInt8) return w.input == InputKind::kBf16;
  if (few_tokens(w, num_tokens)) return false;
  if (w.num_groups == 1) return w.num_columns % 64 == 0 || w.num_steps > 0;
  const bool fits_bytes = w.kind != WeightKind::kInt8 || w.zero_points == nullptr;
  return fits_bytes && fits_decoded(w);
#elif defined(PAREDOWN_SHARES_CODES)
  return shares_codes(w, num_tokens);
#else
  (void)w;
  (void)num_tokens;
  return false;
#endif
}

InputLayout input_layout(const LinearView& w, int64_t num_tokens) {
#if defined(PAREDOWN_PAIRS_PRODUCTS)
  if (takes_pairs(w, num_tokens)) return InputLayout::kPairs;
#endif
  return takes_tiles(w, num_tokens) ? InputLayout::kTiles : InputLayout::kRows;
}

bool makes_input(const LinearView& w, const LinearView& next, int64_t num_tokens) {
  if (num_tokens <= kMinPartTokens || !takes_groups(w, next)) return false;
  if (input_layout(w, num_tokens) == InputLayout::kTiles) return false;
  if (w.input == InputKind::kBf16) return true;
  return w.input == InputKind::kInt8 && fits_decoded(w) && !few_tokens(w, num_tokens);
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
inline void int_few_tokens(const LinearView& w, const InputRows& in, const OutputRows& out,
                           int64_t num_tokens, int64_t panel_begin, int64_t panel_end) {
  if (runs_ahead<kBits>(w, num_tokens)) {
    return int_few<NearFetch::kNowhere, kBits, kStepped, kMaxAheadTokens<kBits>, kIntPanels,
                   kFewPanels>(w, in, out, num_tokens, panel_begin, panel_end);
  }
  with_near_fetch([&](auto near) {
    int_few_near<near.value, kBits, kStepped>(w, in, out, num_tokens, panel_begin, panel_end);
  });
}

// One token after the other, for kinds that more tokens read decoded.
template <int kBits>
inline void int_one_token(const LinearView& w, const InputRows& in, const OutputRows& out,
                          int64_t num_tokens, int64_t panel_begin, int64_t panel_end) {
  with_near_fetch([&](auto near) {
    int_few<near.value, kBits, false, 1, kIntPanels, kFewPanels>(w, in, out, num_tokens,
                                                                 panel_begin, panel_end);
  });
}

void int_linear(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
                int64_t panel_begin, int64_t panel_end, void* scratch) {
  const bool few = few_tokens(w, num_tokens) || !fits_decoded(w);
#if defined(PAREDOWN_PAIRS_PRODUCTS)
  if (in.layout == InputLayout::kPairs) {
    return pair_linear(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  }
#endif
#if defined(PAREDOWN_HAS_TILES)
  const bool tiled = in.layout == InputLayout::kTiles;
  if (tiled && w.num_groups > 1) {
    return token_blocks(w, in, out, num_tokens,
                        [&](const InputRows& rows, const OutputRows& outputs, int64_t count) {
                          group_tiles(w, rows, outputs, count, panel_begin, panel_end, scratch);
                        });
  }
  if (tiled && w.num_steps > 0) {
    return step_tiles(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  }
  if (tiled) return row_tiles(w, in, out, num_tokens, panel_begin, panel_end, scratch);
#elif defined(PAREDOWN_SHARES_CODES)
  if (in.layout == InputLayout::kTiles) {
    return shared_linear(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  }
#endif
  if (w.kind == WeightKind::kInt8 && few) {
    return int_few_tokens<8, false>(w, in, out, num_tokens, panel_begin, panel_end);
  }
  if (w.num_steps > 0 && few) {
    return int_few_tokens<4, true>(w, in, out, num_tokens, panel_begin, panel_end);
  }
  if (w.kind == WeightKind::kInt4 && few) {
    return int_few_tokens<4, false>(w, in, out, num_tokens, panel_begin, panel_end);
  }
  if (num_tokens > 1 && fits_decoded(w)) {
    const int bits = w.num_steps > 0 ? 8 : dot_bits(weight_bits(w.kind));
    if (bits == 4) {
      return int_many<dot_bits(4)>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
    }
    if (bits == 6) {
      return int_many<dot_bits(6)>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
    }
    return int_many<8>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  }
  switch (w.kind) {
    case WeightKind::kInt2:
      return int_one_token<2>(w, in, out, num_tokens, panel_begin, panel_end);
    case WeightKind::kInt3:
      return int_one_token<3>(w, in, out, num_tokens, panel_begin, panel_end);
    case WeightKind::kInt5:
      return int_one_token<5>(w, in, out, num_tokens, panel_begin, panel_end);
    default:
      return int_one_token<6>(w, in, out, num_tokens, panel_begin, panel_end);
  }
}

void linear_by_input(const LinearView& w, const InputRows& in, const OutputRows& out,
                     int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  switch (w.input) {
    case InputKind::kInt8:
      return int_linear(w, in, out, num_tokens, panel_begin, panel_end, scratch);
    case InputKind::kBf16:
#if defined(PAREDOWN_HAS_TILES)
      return row_tiles(w, in, out, num_tokens, panel_begin, panel_end, scratch);
#else
      return bf16_linear(w, in, out, num_tokens, panel_begin, panel_end, scratch);
#endif
    case InputKind::kFp32:
      return float_linear(w, in, out, num_tokens, panel_begin, panel_end);
  }
}

void linear(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
            int64_t panel_begin, int64_t panel_end, void* scratch) {
  linear_by_input(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  if (out.streamed) stream_fence();
}

}  // namespace
}  // namespace paredown
