// A weight in the layout of LinearView, owning its memory.
#pragma once

#include <cstdint>

#include "aligned_buffer.h"
#include "kernels.h"

namespace paredown {

// What a weight looks like before packing: row-major, N output rows of K columns.
struct LinearSource {
  WeightKind kind;
  int64_t num_rows;
  int64_t num_columns;
  const void* values;          // float, uint16 (fp16, bf16) or unsigned codes, one byte each
  int64_t group_size;          // integers: columns per scale; num_columns when one per row
  const float* scales;         // [N][G]
  const uint8_t* zero_points;  // [N][G] or null
  const float* bias;           // [N] or null
};

class PackedLinear {
 public:
  // Throws std::invalid_argument when a group does not fit.
  explicit PackedLinear(const LinearSource& source);

  const LinearView& view() const { return view_; }
  int64_t num_panels() const { return (view_.num_rows + kLanes - 1) / kLanes; }
  // Bytes a step reads when it uses this weight.
  int64_t num_bytes() const;

 private:
  void pack_floats(const LinearSource& source);
  void pack_codes(const LinearSource& source);
  void pack_scales(const LinearSource& source);

  LinearView view_{};
  AlignedBuffer values_;
  AlignedBuffer scales_;
  AlignedBuffer zero_points_;
  AlignedBuffer bias_;
};

}  // namespace paredown
