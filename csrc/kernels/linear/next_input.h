// Gated outputs that become the input of the weight that reads them, a group of its columns at a
// time: they are read where the second cache has them, and never written as floats beyond it.
#pragma once

#include "kernels/linear/prepare.h"

namespace paredown {
namespace {

// Whether outputs of w, gate * up, can be made to inputs of `next` group by group.
inline bool takes_groups(const LinearView& w, const LinearView& next) {
  if (2 * next.num_columns != w.num_rows) return false;
  if (next.input == InputKind::kBf16) return !is_integer(next.kind);
  return next.input == InputKind::kInt8 && next.input_scale <= 0.0f && next.input_groups > 1 &&
         next.input_groups == next.num_groups && next.group_size <= kMaxNextGroup;
}

// Where finished panels are stored: in the output, or in memory until there is a whole group.
class FinishedPanels {
 public:
  // groups: room for kMaxNextGroup floats of each token.
  FinishedPanels(const OutputRows& out, int64_t num_tokens, float* groups)
      : out_(out), num_tokens_(num_tokens), groups_(groups) {}

  // The outputs of the panels from `panel` on.
  OutputRows rows(int64_t panel) const {
    if (out_.next == nullptr) return out_;
    OutputRows rows = out_;
    rows.row_stride = next_group(*out_.next->weight);
    rows.values = groups_ - first_column(panel);
    return rows;
  }

  // Called when the panels before panel_end are finished.
  void end(int64_t panel_end) const {
    if (out_.next == nullptr) return;
    const LinearView& weight = *out_.next->weight;
    const int64_t size = next_group(weight);
    const int64_t column = panel_end / 2 * kLanes;
    if (column % size != 0) return;
    if (weight.input == InputKind::kBf16) return round_columns(column - size, size);
    const int64_t group = column / size - 1;
    for (int64_t token = 0; token < num_tokens_; token += kLanes) {
      const int64_t left = num_tokens_ - token;
      quantize_groups(weight, out_.next->rows,
                      {groups_ + token * size, token, group, left < kLanes ? left : kLanes, true});
    }
  }

 private:
  void round_columns(int64_t column, int64_t size) const {
    for (int64_t token = 0; token < num_tokens_; ++token) {
      round_part(out_.next->rows, groups_ + token * size, column, size, token);
    }
  }
  // The first column of the group that a panel's outputs lie in.
  int64_t first_column(int64_t panel) const {
    const int64_t size = next_group(*out_.next->weight);
    return panel / 2 * kLanes / size * size;
  }

  const OutputRows& out_;
  int64_t num_tokens_;
  float* groups_;
};

}  // namespace
}  // namespace paredown
