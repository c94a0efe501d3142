// A weight in the layout of LinearView, in one piece of memory: its own, or borrowed.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"
#include "machine/aligned_buffer.h"
#include "machine/thread_pool.h"
#include "weights/source.h"

namespace paredown {

// A packed weight without its memory: enough to find everything in a piece of bytes.
struct PackedShape {
  LinearView view;  // pointers null
  bool has_scales;
  bool has_zero_points;  // with steps: their offsets
  bool has_bias;
  bool gated;
  int64_t num_wide_blocks;  // kBf16Short
};

// Calls visit(name, field) for all that a shape says, its pointers apart. A field that is added to
// either struct does not compile until it is named here.
template <class Shape, class Visit>
void visit_fields(Shape& shape, Visit&& visit) {
  auto& [view, has_scales, has_zero_points, has_bias, gated, num_wide_blocks] = shape;
  [[maybe_unused]] auto& [kind, scale_kind, input, num_rows, num_columns, group_size, num_groups,
                          weight_groups, input_groups, step_size, num_steps, input_scale, values,
                          scales, zero_points, steps, step_offsets, short_bf16, bias] = view;
  visit("kind", kind);
  visit("scale_kind", scale_kind);
  visit("input", input);
  visit("num_rows", num_rows);
  visit("num_columns", num_columns);
  visit("group_size", group_size);
  visit("num_groups", num_groups);
  visit("weight_groups", weight_groups);
  visit("input_groups", input_groups);
  visit("step_size", step_size);
  visit("num_steps", num_steps);
  visit("input_scale", input_scale);
  visit("has_scales", has_scales);
  visit("has_zero_points", has_zero_points);
  visit("has_bias", has_bias);
  visit("gated", gated);
  visit("num_wide_blocks", num_wide_blocks);
}

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
  void pack_panel(const LinearSource& source, const SourceNumbers& numbers, int64_t panel);
  void shorten(ThreadPool& pool);
  void pack_row_scales(const SourceNumbers& numbers);
  void pack_steps(const SourceNumbers& numbers);

  PackedShape shape_{};
  LinearView view_{};
  AlignedBuffer memory_;
};

}  // namespace paredown
