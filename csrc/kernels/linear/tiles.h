// Linear layers on AMX tiles. C[16 tokens][16 rows] += A[16 tokens][64 bytes] B[64 bytes][16 rows];
// a block of a packed weight is a B tile as it lies, 16 rows of inputs are an A tile.
#pragma once

#include "kernels/linear/bf16.h"
#include "kernels/linear/int_many.h"

namespace paredown {
namespace {

#if defined(PAREDOWN_HAS_TILES)

constexpr int64_t kTileBytes = 1024;
// Column steps whose B tiles of two panels (16 KB) and A tiles of 32 tokens (16 KB) share the first
// cache.
constexpr int64_t kStretchSteps = 8;
// Bytes of inputs that stay in the second cache while all panels of a weight pass over them.
constexpr int64_t kInputBlockBytes = int64_t{1} << 20;
constexpr int64_t kMinBlockTokens = 64;
// Parts of rows begin at multiples of it.
constexpr int64_t kPartColumns = 256;

// Calls body(inputs, outputs, tokens) for blocks of so many tokens.
template <class Body>
inline void token_blocks(const LinearView& w, const InputRows& in, const OutputRows& out,
                         int64_t num_tokens, int64_t block, Body&& body) {
  for (int64_t token = 0; token < num_tokens; token += block) {
    InputRows rows = in;
    rows.codes = static_cast<uint8_t*>(in.codes) + token * in.code_stride;
    rows.scales += token * w.input_groups;
    rows.corrections += token * w.num_groups;
    OutputRows outputs = out;
    outputs.values += token * out.row_stride;
    body(rows, outputs, num_tokens - token < block ? num_tokens - token : block);
  }
}

// Blocks of tokens whose inputs fit the second cache.
template <class Body>
inline void token_blocks(const LinearView& w, const InputRows& in, const OutputRows& out,
                         int64_t num_tokens, Body&& body) {
  int64_t block = kInputBlockBytes / in.code_stride / (2 * kLanes) * (2 * kLanes);
  if (block < kMinBlockTokens) block = kMinBlockTokens;
  token_blocks(w, in, out, num_tokens, block, body);
}

// Columns of some panels that are multiplied in one go. The sums of a row in several parts wait in
// memory from one part to the next: int32 or float [pairs of panels][tokens][2 panels][16].
struct RowPart {
  int64_t panel_begin;
  int64_t panel_end;
  int64_t first;
  int64_t num_columns;
  bool is_first;
  bool is_last;
  float* sums;  // null: rows are in one part
  int64_t pair_floats;

  float* sums_of(int64_t panel, int64_t token) const {
    return sums + (panel - panel_begin) / 2 * pair_floats + token * 2 * kLanes;
  }
};

// Of inputs.
inline int64_t row_bytes(const LinearView& w) {
  return w.num_columns * (w.input == InputKind::kInt8 ? 1 : 2);
}

inline RowPart whole_rows(const LinearView& w, int64_t panel_begin, int64_t panel_end) {
  return {panel_begin, panel_end, 0, w.num_columns, true, true, nullptr, 0};
}

// A block of tokens and of panels, part by part: body(inputs, outputs, tokens, part). Inputs of a
// part fit the second cache.
template <class Body>
inline void parts_of_block(const LinearView& w, const InputRows& in, const OutputRows& out,
                           int64_t num_tokens, RowPart part, Body&& body) {
  const int64_t padded = (num_tokens + kLanes - 1) / kLanes * kLanes;
  int64_t num_parts = (padded * row_bytes(w) + kInputBlockBytes - 1) / kInputBlockBytes;
  if (num_tokens <= kMinPartTokens) num_parts = 1;
  const int64_t limit =
      (w.num_columns / num_parts + kPartColumns - 1) / kPartColumns * kPartColumns;
  part.pair_floats = padded * 2 * kLanes;
  for (part.first = 0; part.first < w.num_columns; part.first += limit) {
    const int64_t left = w.num_columns - part.first;
    part.num_columns = left < limit ? left : limit;
    part.is_first = part.first == 0;
    part.is_last = part.num_columns == left;
    body(in, out, num_tokens, part);
  }
}

// Tokens in blocks whose inputs fit the second cache. Where that would be few tokens, for each of
// which all weights are read again, rows are cut in parts and blocks are larger.
template <class Body>
inline void row_blocks(const LinearView& w, const InputRows& in, const OutputRows& out,
                       int64_t num_tokens, RowPart all, float* sums, Body&& body) {
  const int64_t fitting = kInputBlockBytes / row_bytes(w);
  if (fitting >= kPartTokens / 2 || num_tokens <= fitting || num_tokens <= kMinPartTokens) {
    return token_blocks(w, in, out, num_tokens,
                        [&](const InputRows& rows, const OutputRows& outputs, int64_t count) {
                          body(rows, outputs, count, all);
                        });
  }
  token_blocks(w, in, out, num_tokens, kPartTokens,
               [&](const InputRows& rows, const OutputRows& outputs, int64_t count) {
                 RowPart part = all;
                 part.sums = sums;
                 for (int64_t panel = all.panel_begin; panel < all.panel_end;
                      panel += kPartPanels) {
                   part.panel_begin = panel;
                   part.panel_end =
                       panel + kPartPanels < all.panel_end ? panel + kPartPanels : all.panel_end;
                   parts_of_block(w, rows, outputs, count, part, body);
                 }
               });
}

// Two panels of B tiles, a column step of 64 bytes each 1 KB; and what comes after them, which is
// fetched into the cache a few lines per step.
struct TilePair {
  const uint8_t* panels[2];
  const uint8_t* next[2];
};

template <bool kInt8, int kC, int kA, int kB>
inline void multiply() {
  if constexpr (kInt8) {
    tile_dot_su<kC, kA, kB>();
  } else {
    tile_dot_bf16<kC, kA, kB>();
  }
}

// 16 or 32 tokens times two panels, one column step. All loads come first: each before its first
// product is some 4 % slower where inputs come from the second cache (docs/log.md 2026-11-22).
template <bool kInt8, int kHalves>
inline __attribute__((always_inline)) void tile_step(const uint8_t* first, const uint8_t* second,
                                                     const uint8_t* x, int64_t half_bytes) {
  tile_load<6>(first, 64);
  tile_load<4>(x, 64);
  tile_load<7>(second, 64);
  if constexpr (kHalves == 2) tile_load<5>(x + half_bytes, 64);
  multiply<kInt8, 0, 4, 6>();
  multiply<kInt8, 1, 4, 7>();
  if constexpr (kHalves == 2) multiply<kInt8, 2, 5, 6>();
  if constexpr (kHalves == 2) multiply<kInt8, 3, 5, 7>();
}

// Where the sums of a stretch of columns begin: at zero, in memory, or in the tiles, where they
// stayed while no other tokens came between.
enum class SumsFrom { kZero, kMemory, kTiles };

// Where the sums of a stretch begin and whether they are stored at its end.
struct SumsWay {
  SumsFrom from;
  bool stored;
};

// Tokens of one pass over a stretch; with no more than these the sums need not leave the tiles.
constexpr int64_t kPassTokens = 2 * kLanes;

inline SumsWay sums_way(int64_t num_tokens, bool is_first, bool is_last) {
  const bool one_pass = num_tokens <= kPassTokens;
  const SumsFrom before = one_pass ? SumsFrom::kTiles : SumsFrom::kMemory;
  return {is_first ? SumsFrom::kZero : before, is_last || !one_pass};
}

// Sums of tokens and two panels: int32 or float [tokens][2 panels][16].
constexpr int64_t kSumsRowBytes = 2 * kLanes * sizeof(float);

template <int kHalves>
inline void store_sums(float* sums) {
  float* second = sums + kLanes * 2 * kLanes;
  tile_store<0>(sums, kSumsRowBytes);
  tile_store<1>(sums + kLanes, kSumsRowBytes);
  if constexpr (kHalves == 2) tile_store<2>(second, kSumsRowBytes);
  if constexpr (kHalves == 2) tile_store<3>(second + kLanes, kSumsRowBytes);
}

template <int kHalves>
inline void load_sums(const float* sums) {
  const float* second = sums + kLanes * 2 * kLanes;
  tile_load<0>(sums, kSumsRowBytes);
  tile_load<1>(sums + kLanes, kSumsRowBytes);
  if constexpr (kHalves == 2) tile_load<2>(second, kSumsRowBytes);
  if constexpr (kHalves == 2) tile_load<3>(second + kLanes, kSumsRowBytes);
}

// 16 or 32 tokens times two panels over num_steps column steps, each followed by between(). x: A
// tiles, half_bytes from one 16 tokens to the next. The sums are int32 or float [tokens][2 panels]
// [16].
template <bool kInt8, int kHalves, class Between>
inline __attribute__((always_inline)) void tile_product(const uint8_t* const (&panels)[2],
                                                        int64_t num_steps, const uint8_t* x,
                                                        int64_t half_bytes, float* sums,
                                                        SumsWay way, Between&& between) {
  if (way.from == SumsFrom::kZero) {
    unroll<4>([](auto tile) { tile_zero<tile.value>(); });
  } else if (way.from == SumsFrom::kMemory) {
    load_sums<kHalves>(sums);
  }
  for (int64_t step = 0; step < num_steps; ++step, x += kTileBytes) {
    tile_step<kInt8, kHalves>(panels[0] + step * kTileBytes, panels[1] + step * kTileBytes, x,
                              half_bytes);
    between();
  }
  if (!way.stored) return;
  store_sums<kHalves>(sums);
}

// All tokens, 32 at a time. x: A tiles, row_bytes from one token to the next.
template <bool kInt8, class Between>
inline void tile_products(const uint8_t* const (&panels)[2], int64_t num_steps, const uint8_t* x,
                          int64_t row_bytes, int64_t num_tokens, float* sums, SumsWay way,
                          Between&& between) {
  for (int64_t token = 0; token < num_tokens; token += kPassTokens) {
    float* tile_sums = sums + token * 2 * kLanes;
    const uint8_t* rows = x + token * row_bytes;
    if (token + kLanes < num_tokens) {
      tile_product<kInt8, 2>(panels, num_steps, rows, kLanes * row_bytes, tile_sums, way, between);
    } else {
      tile_product<kInt8, 1>(panels, num_steps, rows, kLanes * row_bytes, tile_sums, way, between);
    }
  }
}

inline int64_t num_passes(int64_t num_tokens) {
  return (num_tokens + kPassTokens - 1) / kPassTokens;
}

// What all tokens' sums of a panel meet at their end.
struct PanelEnd {
  bool scaled;
  F32x16 scale;
  I32x16 zero_points;
};

inline PanelEnd panel_end_of(const LinearView& w, int64_t panel) {
  PanelEnd end{w.scales != nullptr && w.weight_groups == 1, set_f(1.0f), zero_i()};
  if (end.scaled) end.scale = load_scales(w, panel * kLanes);
  if (w.zero_points != nullptr) {
    end.zero_points = load_u8_as_i32(w.zero_points + panel * w.weight_groups * kLanes);
  }
  return end;
}

inline F32x16 finished_sum(const LinearView& w, const InputRows& in, int64_t token,
                           const PanelEnd& end, const float* sum) {
  F32x16 total;
  if (w.input == InputKind::kInt8 && w.num_groups == 1) {
    I32x16 correct = set_i(in.corrections[input_index(token, 1, 0)]);
    if (w.zero_points != nullptr) correct = mul(end.zero_points, correct);
    total = to_float(add(load_i(sum), correct));
  } else {
    total = load_f(sum);
  }
  if (end.scaled) total = mul(total, end.scale);
  if (w.input == InputKind::kInt8 && w.input_groups == 1) {
    total = mul(total, set_f(in.scales[input_index(token, 1, 0)]));
  }
  return total;
}

// Residual rows are added to long after they were last read: two panels of one are fetched ahead.
// Inlined at once as fetch_scales.
constexpr int64_t kResidualAhead = 16;
inline __attribute__((always_inline)) void fetch_residual(const OutputRows& out, int64_t token,
                                                          int64_t panel) {
  const float* target = out.values + token * out.row_stride + panel * kLanes;
  __builtin_prefetch(target, 1, 2);
  __builtin_prefetch(target + kLanes, 1, 2);
}

// What is left to do with the waiting sums of kPanels panels, [tokens][stride].
template <int kPanels>
inline void finish_pair(const LinearView& w, const InputRows& in, const OutputRows& out,
                        int64_t num_tokens, int64_t panel, const float* sums, int64_t stride) {
  PanelEnd ends[kPanels];
  for (int p = 0; p < kPanels; ++p) ends[p] = panel_end_of(w, panel + p);
  for (int64_t token = 0; token < num_tokens; ++token, sums += stride) {
    if (out.accumulate) fetch_residual(out, token + kResidualAhead, panel);
    F32x16 totals[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      totals[p] = finished_sum(w, in, token, ends[p], sums + p * kLanes);
    }
    finish<kPanels>(w, out, token, panel, totals);
  }
}

// The B tiles of columns [first, first + columns) of a panel: where they lie, or decoded.
inline const uint8_t* panel_tiles(const LinearView& w, int64_t panel, int64_t first,
                                  int64_t columns, uint8_t* decoded) {
  const uint8_t* values = packed_columns(w, panel, first);
  if (w.kind == WeightKind::kBf16 || w.kind == WeightKind::kInt8) return values;
  if (w.input == InputKind::kBf16) {
    decode_pairs(w, panel, first, columns, decoded);
  } else if (traits_of(w.kind).is_bitmap) {
    expand_codes(w, panel, first, columns, decoded);
  } else {
    decode_codes(w.kind, values, columns, decoded);
  }
  return decoded;
}

// Columns [first, first + columns) of two panels, or of one twice; then the columns after them, or
// the first ones of the next panels.
inline TilePair tile_pair(const LinearView& w, int64_t panel, bool single, int64_t first,
                          int64_t columns, uint8_t* decoded) {
  const int64_t last = single ? panel : panel + 1;
  const bool ends = first + columns == w.num_columns;
  const int64_t next = ends ? 0 : first + columns;
  TilePair pair{};
  pair.panels[0] = panel_tiles(w, panel, first, columns, decoded);
  pair.panels[1] =
      single ? pair.panels[0]
             : panel_tiles(w, last, first, columns, decoded + kLanes * kDecodedColumns * 2);
  pair.next[0] = packed_columns(w, ends ? panel + 2 : panel, next);
  pair.next[1] = packed_columns(w, ends ? last + 2 : last, next);
  return pair;
}

#endif

}  // namespace
}  // namespace paredown
