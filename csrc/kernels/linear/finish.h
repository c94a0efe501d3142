// What happens to finished sums: bias, residual, or gate * up.
#pragma once

#include "kernels/decode.h"

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
    case Activation::kTanh:
      return activation<Activation::kTanh>(x);
    case Activation::kSigmoid:
      return activation<Activation::kSigmoid>(x);
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

// Outputs of some tokens that have just been stored, and are in the nearest cache. All of a tile at
// once: the constants of a function are read once for it.
inline void activate_stored(const LinearView& w, const OutputRows& out, int64_t token,
                            int64_t panel, int num_tokens, int num_panels) {
  const int64_t num_left = w.num_rows - panel * kLanes;
  const int64_t size = num_left < num_panels * kLanes ? num_left : num_panels * kLanes;
  activate_rows(out.activation, out.values + token * out.row_stride + panel * kLanes,
                out.row_stride, num_tokens, size);
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
  if (out.activated) activate_stored(w, out, token, panel, 1, kPanels);
}

// body(place, sum) for each sum of a tile, `place` where the output of its panel lies.
template <int kTokens, int kPanels, class Body>
inline void for_outputs(const OutputRows& out, int64_t token, int64_t panel,
                        const F32x16 (&sums)[kTokens][kPanels], Body&& body) {
  float* row = out.values + token * out.row_stride + panel * kLanes;
  for (int t = 0; t < kTokens; ++t, row += out.row_stride) {
    for (int p = 0; p < kPanels; ++p) body(row + p * kLanes, sums[t][p]);
  }
}

// The sums of several tokens. What most layers want is chosen once for all of them: with a choice
// for each, GCC 12 keeps them in memory.
template <int kTokens, int kPanels>
inline void finish_rows(const LinearView& w, const OutputRows& out, int64_t token, int64_t panel,
                        F32x16 (&sums)[kTokens][kPanels]) {
  const bool is_whole = (panel + kPanels) * kLanes <= w.num_rows;
  if (is_whole && !out.gated) {
    if (w.bias != nullptr) {
      for (int p = 0; p < kPanels; ++p) {
        const F32x16 bias = load_f(w.bias + (panel + p) * kLanes);
        for (int t = 0; t < kTokens; ++t) sums[t][p] = add(sums[t][p], bias);
      }
    }
    if (out.activated) {
      for_outputs(out, token, panel, sums, [](float* p, F32x16 sum) { store_f(p, sum); });
      return activate_stored(w, out, token, panel, kTokens, kPanels);
    }
    if (out.streamed) {
      return for_outputs(out, token, panel, sums, [](float* p, F32x16 sum) { stream_f(p, sum); });
    }
    if (!out.accumulate) {
      return for_outputs(out, token, panel, sums, [](float* p, F32x16 sum) { store_f(p, sum); });
    }
    return for_outputs(out, token, panel, sums,
                       [](float* p, F32x16 sum) { store_f(p, add(load_f(p), sum)); });
  }
  if constexpr (kPanels % 2 == 0) {
    if (is_whole && w.bias == nullptr && out.activation == Activation::kSilu) {
      F32x16 products[kTokens][kPanels / 2];
      for (int t = 0; t < kTokens; ++t) {
        for (int p = 0; p < kPanels; p += 2) {
          products[t][p / 2] = mul(activation<Activation::kSilu>(sums[t][p]), sums[t][p + 1]);
        }
      }
      if (out.streamed) {
        return for_outputs(out, token, panel / 2, products,
                           [](float* p, F32x16 product) { stream_f(p, product); });
      }
      return for_outputs(out, token, panel / 2, products,
                         [](float* p, F32x16 product) { store_f(p, product); });
    }
  }
  for (int t = 0; t < kTokens; ++t) finish<kPanels>(w, out, token + t, panel, sums[t]);
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

// Tiles of up to kTokens that 16 tokens are cut into, and the tokens of the first of them.
template <int kTokens>
constexpr int kTilesOfLanes = (kLanes + kTokens - 1) / kTokens;
template <int kTokens>
constexpr int kFirstTileTokens = kLanes / kTilesOfLanes<kTokens>;

// Runs `tile(Index<tokens>, token)` over num_tokens in tiles of up to kTokens of about the same
// size, none across a multiple of 16: what belongs to its tokens lies side by side.
template <int kTokens, class Tile>
inline void even_tiles(int64_t num_tokens, Tile&& tile) {
  int64_t first = 0;
  for (; first + kLanes <= num_tokens; first += kLanes) {
    constexpr int kTiles = kTilesOfLanes<kTokens>;
    unroll<kTiles>([&](auto index) {
      constexpr int kFirst = kLanes * index.value / kTiles;
      constexpr int kEnd = kLanes * (index.value + 1) / kTiles;
      tile(Index<kEnd - kFirst>{}, first + kFirst);
    });
  }
  for (int64_t num_left = (num_tokens - first + kTokens - 1) / kTokens; num_left > 0; --num_left) {
    const int64_t size = (num_tokens - first + num_left - 1) / num_left;
    unroll<kTokens>([&](auto index) {
      if (size == index.value + 1) tile(Index<index.value + 1>{}, first);
    });
    first += size;
  }
}

}  // namespace
}  // namespace paredown
