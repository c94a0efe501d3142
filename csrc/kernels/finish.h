// What happens to finished sums: bias, residual, or gate * up.
#pragma once

#include "decode.h"

namespace paredown {
namespace {

inline F32x16 activated(Activation kind, F32x16 x) {
  switch (kind) {
    case Activation::kSilu:
      return activation<Activation::kSilu>(x);
    case Activation::kGelu:
      return activation<Activation::kGelu>(x);
    case Activation::kGeluTanh:
      return activation<Activation::kGeluTanh>(x);
    case Activation::kRelu:
      break;
  }
  return activation<Activation::kRelu>(x);
}

inline void store_panel(const LinearView& w, const OutputRows& out, int64_t token, int64_t panel,
                        F32x16 sum) {
  float* target = out.values + token * out.row_stride + panel * kLanes;
  const int64_t num_left = w.num_rows - panel * kLanes;
  if (num_left >= kLanes) {
    if (out.streamed) {
      stream_f(target, sum);
    } else {
      store_f(target, out.accumulate ? add(load_f(target), sum) : sum);
    }
    return;
  }
  float lanes[kLanes];
  store_f(lanes, sum);
  for (int64_t i = 0; i < num_left; ++i) {
    target[i] = out.accumulate ? target[i] + lanes[i] : lanes[i];
  }
}

// The sums of one token for kPanels panels from `panel` on, which is even when they are pairs.
template <int kPanels>
inline void finish(const LinearView& w, const OutputRows& out, int64_t token, int64_t panel,
                   F32x16 (&sums)[kPanels]) {
  if (w.bias != nullptr) {
    for (int p = 0; p < kPanels; ++p) {
      sums[p] = add(sums[p], load_f(w.bias + (panel + p) * kLanes));
    }
  }
  if constexpr (kPanels % 2 == 0) {
    if (out.gated) {
      float* target = out.values + token * out.row_stride + panel / 2 * kLanes;
      for (int p = 0; p < kPanels; p += 2, target += kLanes) {
        const F32x16 product = mul(activated(out.activation, sums[p]), sums[p + 1]);
        if (out.streamed) {
          stream_f(target, product);
        } else {
          store_f(target, product);
        }
      }
      return;
    }
  }
  for (int p = 0; p < kPanels; ++p) store_panel(w, out, token, panel + p, sums[p]);
}

// Runs `tile(Index<tokens>, token)` over num_tokens: tiles of kTokens, then one of what is left, so
// that weights are decoded no more often than they must.
template <int kTokens, class Tile>
inline void token_tiles(int64_t num_tokens, int64_t token, Tile&& tile) {
  for (; token + kTokens <= num_tokens; token += kTokens) tile(Index<kTokens>{}, token);
  if constexpr (kTokens > 1) {
    if (token < num_tokens) token_tiles<kTokens - 1>(num_tokens, token, tile);
  }
}

}  // namespace
}  // namespace paredown
