// Linear layers on AMX tiles. C[16 tokens][16 rows] += A[16 tokens][64 bytes] B[64 bytes][16 rows];
// a block of a packed weight is a B tile as it lies, 16 rows of inputs are an A tile.
#pragma once

#include "linear_bf16.h"
#include "linear_int_many.h"

namespace paredown {
namespace {

#if defined(PAREDOWN_HAS_TILES)

constexpr int64_t kTileBytes = 1024;
// Column steps whose B tiles of two panels (16 KB) and A tiles of 32 tokens (16 KB) share the first
// cache.
constexpr int64_t kStretchSteps = 8;
// Two panels of B tiles, a column step of 64 bytes each 1 KB.
struct TilePair {
  const uint8_t* panels[2];
};

template <bool kInt8, int kC, int kA, int kB>
inline void multiply() {
  if constexpr (kInt8) {
    tile_dot_su<kC, kA, kB>();
  } else {
    tile_dot_bf16<kC, kA, kB>();
  }
}

// 16 or 32 tokens times two panels over num_steps column steps. The sums are int32 or float
// [tokens][2 panels][16], zero when `from_zero`.
template <bool kInt8, int kHalves>
inline void tile_product(const TilePair& weights, int64_t num_steps, const uint8_t* x,
                         int64_t row_bytes, float* sums, bool from_zero) {
  constexpr int64_t kRow = 2 * kLanes * sizeof(float);
  float* second = sums + kLanes * 2 * kLanes;
  if (from_zero) {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
  } else {
    tile_load<0>(sums, kRow);
    tile_load<1>(sums + kLanes, kRow);
    if constexpr (kHalves == 2) tile_load<2>(second, kRow);
    if constexpr (kHalves == 2) tile_load<3>(second + kLanes, kRow);
  }
  for (int64_t step = 0; step < num_steps; ++step) {
    const uint8_t* a = x + step * 64;
    tile_load<6>(weights.panels[0] + step * kTileBytes, 64);
    tile_load<4>(a, row_bytes);
    multiply<kInt8, 0, 4, 6>();
    tile_load<7>(weights.panels[1] + step * kTileBytes, 64);
    multiply<kInt8, 1, 4, 7>();
    if constexpr (kHalves == 2) {
      tile_load<5>(a + kLanes * row_bytes, row_bytes);
      multiply<kInt8, 2, 5, 6>();
      multiply<kInt8, 3, 5, 7>();
    }
  }
  tile_store<0>(sums, kRow);
  tile_store<1>(sums + kLanes, kRow);
  if constexpr (kHalves == 2) tile_store<2>(second, kRow);
  if constexpr (kHalves == 2) tile_store<3>(second + kLanes, kRow);
}

template <bool kInt8>
inline void tile_products(const TilePair& weights, int64_t num_steps, const uint8_t* x,
                          int64_t row_bytes, int64_t num_tokens, float* sums, bool from_zero) {
  int64_t token = 0;
  for (; token + kLanes < num_tokens; token += 2 * kLanes) {
    tile_product<kInt8, 2>(weights, num_steps, x + token * row_bytes, row_bytes,
                           sums + token * 2 * kLanes, from_zero);
  }
  if (token < num_tokens) {
    tile_product<kInt8, 1>(weights, num_steps, x + token * row_bytes, row_bytes,
                           sums + token * 2 * kLanes, from_zero);
  }
}

// Hands the waiting sums of panels [panel, panel + kPanels) to `complete(token, sums)`.
template <int kPanels>
inline void finish_pair(const LinearView& w, const InputRows& in, const OutputRows& out,
                        int64_t num_tokens, int64_t panel, const float* sums) {
  for (int64_t token = 0; token < num_tokens; ++token, sums += 2 * kLanes) {
    F32x16 totals[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      if (w.input == InputKind::kBf16) {
        totals[p] = load_f(sums + p * kLanes);
        if (w.scales != nullptr) totals[p] = mul(totals[p], row_scales(w, panel + p));
      } else if (w.num_groups == 1) {
        const I32x16 correct =
            correction(w, (panel + p) * kLanes, in.sums[input_index(token, 1, 0)]);
        totals[p] = apply_row_scales(w, in, to_float(add(load_i(sums + p * kLanes), correct)),
                                     token, panel + p);
      } else {
        totals[p] = apply_row_scales(w, in, load_f(sums + p * kLanes), token, panel + p);
      }
    }
    finish<kPanels>(w, out, token, panel, totals);
  }
}

// The B tiles of columns [first, first + columns) of a panel: where they lie, or decoded.
inline const uint8_t* panel_tiles(const LinearView& w, int64_t panel, int64_t first,
                                  int64_t columns, uint8_t* decoded) {
  const auto* values = static_cast<const uint8_t*>(w.values) +
                       (panel * w.num_columns + first) / kBlockColumns * block_bytes(w.kind);
  if (w.kind == WeightKind::kBf16 || w.kind == WeightKind::kInt8) return values;
  if (w.kind == WeightKind::kFp8) {
    decode_fp8(values, columns, decoded);
  } else {
    decode_codes(w.kind, values, columns, decoded);
  }
  return decoded;
}

// Weights without groups: bf16 and fp8 times bf16, or one int32 sum over the whole row.
template <bool kInt8>
void row_tiles_of(const LinearView& w, const InputRows& in, const OutputRows& out,
                  int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  constexpr int64_t kStep = kInt8 ? 64 : 32;
  constexpr int64_t kElement = kInt8 ? 1 : 2;
  constexpr int64_t kStretch = kStretchSteps * kStep;
  auto* decoded = static_cast<uint8_t*>(scratch);
  auto* sums = reinterpret_cast<float*>(decoded + 2 * kLanes * kDecodedColumns * 2);
  const auto* x = static_cast<const uint8_t*>(in.codes);
  const TileScope scope;
  for (int64_t panel = panel_begin; panel < panel_end; panel += 2) {
    const bool single = panel + 1 == panel_end;
    for (int64_t first = 0; first < w.num_columns; first += kStretch) {
      const int64_t left = w.num_columns - first;
      const int64_t columns = left < kStretch ? left : kStretch;
      TilePair weights;
      weights.panels[0] = panel_tiles(w, panel, first, columns, decoded);
      weights.panels[1] = single ? weights.panels[0]
                                 : panel_tiles(w, panel + 1, first, columns,
                                               decoded + kLanes * kDecodedColumns * kElement);
      tile_products<kInt8>(weights, columns / kStep, x + first * kElement, in.code_stride,
                           num_tokens, sums, first == 0);
    }
    if (single) {
      finish_pair<1>(w, in, out, num_tokens, panel, sums);
    } else {
      finish_pair<2>(w, in, out, num_tokens, panel, sums);
    }
  }
}

void row_tiles(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
               int64_t panel_begin, int64_t panel_end, void* scratch) {
  if (w.input == InputKind::kInt8) {
    return row_tiles_of<true>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  }
  row_tiles_of<false>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
}

#endif

}  // namespace
}  // namespace paredown
