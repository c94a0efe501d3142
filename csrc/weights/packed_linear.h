// A weight in the layout of LinearView, in one piece of memory: its own, or borrowed.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"
#include "machine/aligned_buffer.h"
#include "machine/thread_pool.h"

namespace paredown {

// How a weight takes its input: as it is; rounded to bf16; or int8 codes with a scale per row and
// group, per row (dynamic), or one given scale (static).
enum class Activations { kFp32, kBf16, kInt8Group, kInt8Row, kInt8Static };

// What a weight looks like before packing: row-major, N output rows of K columns.
struct LinearSource {
  WeightKind kind;
  Activations activations;
  int64_t num_rows;
  int64_t num_columns;
  const void* values;   // float, uint16 (fp16, bf16), or one byte per code (unsigned, or e4m3)
  int64_t group_size;   // codes: columns per scale; num_columns when one per row
  const float* scales;  // codes: [N][G], or [N] with steps
  const uint8_t* zero_points;  // [N][G] or null
  // int4 with int8 inputs of one scale per row: [N][G] or null. The scale of a group is that of the
  // row times the step, 1 to 16; (code - zero point) * step is from -128 to 127.
  const uint8_t* steps;
  const float* bias;  // [N] or null
  float input_scale;  // kInt8Static
  bool gated;         // rows are gate above up; their panels are packed in turn
  // bf16 with bf16 inputs: packed as kBf16Short where most blocks are not wide.
  bool short_exponents;
};

// A packed weight without its memory: enough to find everything in a piece of bytes.
struct PackedShape {
  LinearView view;  // pointers null
  bool has_scales;
  bool has_zero_points;  // with steps: their offsets
  bool has_bias;
  bool gated;
  int64_t num_wide_blocks;  // kBf16Short
};

class PackedLinear {
 public:
  // Throws std::invalid_argument when a group, the input or a step does not fit the weight.
  PackedLinear(const LinearSource& source, ThreadPool& pool);
  // A weight packed before; `data` has num_bytes(shape) bytes, 64-byte aligned, and outlives it.
  PackedLinear(const PackedShape& shape, const uint8_t* data);

  static int64_t num_bytes(const PackedShape& shape);
  // Throws std::invalid_argument for a shape that no constructor gives.
  static void check(const PackedShape& shape);

  // One row of a float weight as it was before packing, num_columns numbers.
  void copy_row(int64_t row, void* values) const;

  const LinearView& view() const { return view_; }
  PackedShape shape() const;
  bool gated() const { return shape_.gated; }
  int64_t num_panels() const { return (view_.num_rows + kLanes - 1) / kLanes; }
  // Everything a step reads when it uses this weight.
  std::span<const uint8_t> bytes() const {
    return {static_cast<const uint8_t*>(view_.values), static_cast<size_t>(num_bytes(shape_))};
  }

 private:
  void point_into(const uint8_t* data);
  int64_t packed_row(int64_t row) const;
  void pack_panel(const LinearSource& source, int64_t panel);
  void shorten(ThreadPool& pool);
  void pack_row_scales(const LinearSource& source);
  void pack_steps(const LinearSource& source);

  PackedShape shape_{};
  LinearView view_{};
  AlignedBuffer memory_;
};

}  // namespace paredown
