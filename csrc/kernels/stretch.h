// A stretch of a weight's columns, which all tokens pass over in turn, and what they fetch
// meanwhile.
#pragma once

#include "decode.h"

namespace paredown {
namespace {

struct Stretch {
  int64_t first;
  int64_t num_columns;
  bool is_last;
};

// The lines of weights that follow a stretch, fetched into the second cache a share with each tile
// of tokens.
template <int kPanels>
class NextStretch {
 public:
  NextStretch(const LinearView& w, int64_t panel, const Stretch& stretch, int64_t num_tiles) {
    const int64_t column_bytes = kLanes * weight_bits(w.kind) / 8;
    panel_bytes_ = w.num_columns * column_bytes;
    const int64_t next_panel = stretch.is_last ? panel + kPanels : panel;
    const int64_t next_column = stretch.is_last ? 0 : stretch.first + stretch.num_columns;
    next_ = static_cast<const uint8_t*>(w.values) + next_panel * panel_bytes_ +
            next_column * column_bytes;
    const int64_t num_lines = stretch.num_columns * column_bytes / 64;
    lines_per_tile_ = (num_lines + num_tiles - 1) / num_tiles;
  }
  void fetch_share() {
    for (int64_t line = 0; line < lines_per_tile_; ++line, next_ += 64) {
      for (int p = 0; p < kPanels; ++p) __builtin_prefetch(next_ + p * panel_bytes_, 0, 2);
    }
  }

 private:
  const uint8_t* next_;
  int64_t panel_bytes_;
  int64_t lines_per_tile_;
};

// Outputs that are added to, fetched while their sums are made: from one row to the next it is a
// long way.
template <int kTokens, int kPanels>
inline void fetch_outputs(const OutputRows& out, int64_t token, int64_t panel) {
  if (!out.accumulate) return;
  const float* first = out.values + token * out.row_stride + panel * kLanes;
  for (int i = 0; i < kTokens * kPanels; ++i) {
    __builtin_prefetch(first + i / kPanels * out.row_stride + i % kPanels * kLanes, 1, 3);
  }
}

}  // namespace
}  // namespace paredown
