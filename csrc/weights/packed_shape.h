// What a packed weight looks like without its memory: where its parts lie in a piece of bytes.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"

namespace paredown {

// 65,536 products of an unsigned and a signed byte still fit in 32 bits.
inline constexpr int64_t kMaxGroup = 65536;

// A packed weight without its memory: enough to find everything in a piece of bytes.
struct PackedShape {
  LinearView view;  // pointers null
  bool has_scales;
  bool has_zero_points;  // with steps: their offsets
  bool has_bias;
  bool gated;
  int64_t num_wide_blocks;  // kBf16Short
  int64_t bitmap_bytes;     // of the values, where zeros are a bit each; else 0
};

// Calls visit(name, field) for all that a shape says, its pointers apart. A field that is added to
// either struct does not compile until it is named here.
template <class Shape, class Visit>
void visit_fields(Shape& shape, Visit&& visit) {
  auto& [view, has_scales, has_zero_points, has_bias, gated, num_wide_blocks, bitmap_bytes] = shape;
  [[maybe_unused]] auto& [kind, scale_kind, input, num_rows, num_columns, group_size, num_groups,
                          weight_groups, input_groups, input_codes, step_size, num_steps,
                          input_scale, values, scales, zero_points, steps, step_offsets, short_bf16,
                          bitmap, bias] = view;
  visit("kind", kind);
  visit("scale_kind", scale_kind);
  visit("input", input);
  visit("num_rows", num_rows);
  visit("num_columns", num_columns);
  visit("group_size", group_size);
  visit("num_groups", num_groups);
  visit("weight_groups", weight_groups);
  visit("input_groups", input_groups);
  visit("input_codes", input_codes);
  visit("step_size", step_size);
  visit("num_steps", num_steps);
  visit("input_scale", input_scale);
  visit("has_scales", has_scales);
  visit("has_zero_points", has_zero_points);
  visit("has_bias", has_bias);
  visit("gated", gated);
  visit("num_wide_blocks", num_wide_blocks);
  visit("bitmap_bytes", bitmap_bytes);
}

// Where each part begins, in bytes from the first; the values come first.
struct Sections {
  int64_t runs;
  int64_t upper_bytes;
  int64_t exponents;
  int64_t wide_ranks;
  int64_t wide_rests;
  int64_t scales;
  int64_t zero_points;
  int64_t steps;
  int64_t bias;
  int64_t end;
};
Sections sections(const PackedShape& shape);

// Throws std::invalid_argument for a shape that no PackedLinear has.
void check_shape(const PackedShape& shape);

}  // namespace paredown
