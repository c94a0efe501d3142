// A stretch of a weight's columns, which all tokens pass over in turn, and what they fetch
// meanwhile.
#pragma once

#include "kernels/decode.h"

namespace paredown {
namespace {

struct Stretch {
  int64_t first;
  int64_t num_columns;
  bool is_last;
};

// Lines of panels that are fetched, so many of each with every tile.
struct FetchedLines {
  const uint8_t* next;
  int64_t panel_bytes;
  int64_t num_lines;
  int64_t per_tile;
  int64_t due = 0;

  template <int kPanels, int kLocality>
  void fetch() {
    for (int64_t line = 0; line < per_tile; ++line) fetch_line<kPanels, kLocality>();
  }
  // One of `num_parts` parts of a tile's share, at an even pace.
  template <int kPanels, int kLocality>
  void fetch_due(int64_t num_parts) {
    for (due += per_tile; due >= num_parts; due -= num_parts) fetch_line<kPanels, kLocality>();
  }
  template <int kPanels, int kLocality>
  void fetch_line() {
    for (int p = 0; p < kPanels; ++p) __builtin_prefetch(next + p * panel_bytes, 0, kLocality);
    next += 64;
  }
};

// The codes and scales that follow a stretch, fetched a share with each tile of tokens: into the
// first cache (kLocality 3) or the second (2).
template <int kPanels, int kLocality = 2>
class NextStretch {
 public:
  NextStretch(const LinearView& w, int64_t panel, const Stretch& stretch, int64_t num_tiles) {
    const int64_t next_panel = stretch.is_last ? panel + kPanels : panel;
    const int64_t next_column = stretch.is_last ? 0 : stretch.first + stretch.num_columns;
    // Of `count` of the `all` items of each panel, from `item` on; an item has 16 rows.
    auto lines = [&](const void* first, int64_t all, int64_t item, int64_t count, int64_t bits) {
      const int64_t panel_bytes = all * kLanes * bits / 8;
      const int64_t num_lines = count * kLanes * bits / 8 / 64;
      return FetchedLines{
          static_cast<const uint8_t*>(first) + next_panel * panel_bytes + item * kLanes * bits / 8,
          panel_bytes, num_lines, (num_lines + num_tiles - 1) / num_tiles};
    };
    // Bitmaps are read one after the other, which the processor itself fetches.
    if (!traits_of(w.kind).is_bitmap)
      codes_ =
          lines(w.values, w.num_columns, next_column, stretch.num_columns, weight_bits(w.kind));
    const int64_t scale_bits = w.scale_kind == ScaleKind::kFp32 ? 32 : 16;
    if (w.weight_groups > 1) {
      scales_ = lines(w.scales, w.weight_groups, next_column / w.group_size,
                      stretch.num_columns / w.group_size, scale_bits);
    }
  }
  void fetch_share() {
    codes_.template fetch<kPanels, kLocality>();
    fetch_scales_share();
  }
  void fetch_scales_share() { scales_.template fetch<kPanels, kLocality>(); }
  // For who fetches line by line.
  const FetchedLines& codes() const { return codes_; }

 private:
  FetchedLines codes_{};
  FetchedLines scales_{};
};

// Outputs that are added to, fetched while their sums are made: from one row to the next it is a
// long way. Inlined at once as fetch_scales.
template <int kTokens, int kPanels>
inline __attribute__((always_inline)) void fetch_outputs(const OutputRows& out, int64_t token,
                                                         int64_t panel) {
  if (!out.accumulate) return;
  const float* first = out.values + token * out.row_stride + panel * kLanes;
  for (int i = 0; i < kTokens * kPanels; ++i) {
    __builtin_prefetch(first + i / kPanels * out.row_stride + i % kPanels * kLanes, 1, 3);
  }
}

}  // namespace
}  // namespace paredown
