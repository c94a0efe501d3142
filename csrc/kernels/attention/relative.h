// What relative positions add to the scores of a task's rows.
#pragma once

#include "kernels/attention/scratch.h"

namespace paredown {
namespace {

class RelativeScores {
 public:
  explicit RelativeScores(const RelativeView& view) : view_(view) {}

  bool is_there() const { return view_.values != nullptr; }

  void set_row(int64_t row, int64_t head, int64_t position) {
    const int64_t head_size = relative_head_floats(view_.max_distance);
    values_[row] = view_.values + head * head_size;
    positions_[row] = position;
  }

  // Of a row and the keys from `key` on.
  F32x16 load(int64_t row, int64_t key) const {
    // All lanes of what lies farther have the number of the largest distance.
    const int64_t least = -(view_.max_distance + kLanes - 1);
    int64_t distance = key - positions_[row];
    distance = distance < least ? least : distance;
    distance = distance < view_.max_distance ? distance : view_.max_distance;
    return load_f(values_[row] + distance - least);
  }

 private:
  const RelativeView& view_;
  const float* values_[kTaskRows];
  int64_t positions_[kTaskRows];
};

}  // namespace
}  // namespace paredown
