#include "weights/packed_shape.h"

#include <cmath>
#include <stdexcept>

#include "kernels/bitmap.h"
#include "kernels/block_forms.h"
#include "machine/round_up.h"

namespace paredown {
namespace {

constexpr int64_t kCacheLine = 64;

bool input_fits_kind(const LinearView& view) {
  switch (view.input) {
    case InputKind::kFp32:
      return true;
    case InputKind::kBf16:
      return traits_of(view.kind).takes_bf16;
    case InputKind::kInt8:
      return is_integer(view.kind) && view.group_size <= kMaxGroup;
  }
  return false;
}

bool is_size(int64_t size) { return size > 0 && size <= kMaxSize; }

// Nothing is multiplied or rounded before this: a file may say any number.
bool sizes_fit(const LinearView& view) {
  return is_size(view.num_rows) && is_size(view.num_columns) && is_size(view.group_size) &&
         is_size(view.num_groups) && view.num_columns % kBlockColumns == 0 &&
         view.group_size * view.num_groups == view.num_columns;
}

bool blocks_fit(const LinearView& view) {
  const BlockForm& form = block_form(view.kind);
  return view.input == InputKind::kInt8 && view.group_size == form.group_columns &&
         view.weight_groups == 1 && view.num_columns % form.columns == 0 &&
         view.input_groups == view.num_columns / form.columns;
}

bool groups_fit(const LinearView& view) {
  if (traits_of(view.kind).is_blocked) return blocks_fit(view);
  auto is_groups = [&view](int64_t groups) { return groups == 1 || groups == view.num_groups; };
  const bool has_codes = traits_of(view.kind).has_scales();
  const bool is_fp8_of_bf16 = view.kind == WeightKind::kFp8 && view.input == InputKind::kBf16;
  return input_fits_kind(view) && view.group_size % kBlockColumns == 0 &&
         is_groups(view.weight_groups) && is_groups(view.input_groups) &&
         (view.input == InputKind::kInt8 || view.input_groups == 1) &&
         (view.num_groups == 1 || (has_codes && !is_fp8_of_bf16));
}

bool input_scale_fits(const LinearView& view) {
  if (view.input_scale == 0.0f) return true;
  return view.input_scale > 0.0f && std::isfinite(view.input_scale) &&
         view.input == InputKind::kInt8 && view.input_groups == 1 &&
         !traits_of(view.kind).is_blocked;
}

bool codes_fit(const LinearView& view) {
  if (view.input_codes == 1) return true;
  return view.input_codes == 2 && view.input == InputKind::kInt8 && view.input_scale == 0.0f &&
         view.num_steps == 0;
}

bool steps_fit(const LinearView& view) {
  if (view.step_size == 0 && view.num_steps == 0) return true;
  return view.kind == WeightKind::kInt4 && view.input == InputKind::kInt8 && view.num_groups == 1 &&
         is_size(view.step_size) && is_size(view.num_steps) &&
         view.step_size % kBlockColumns == 0 && view.step_size * view.num_steps == view.num_columns;
}

// The numbers themselves are counted where they are read (weights/bitmap.h).
bool bitmap_fits(const PackedShape& shape) {
  const LinearView& view = shape.view;
  if (!traits_of(view.kind).is_bitmap) return shape.bitmap_bytes == 0;
  const int64_t num_blocks =
      round_up(view.num_rows, kLanes) / kLanes * (view.num_columns / kBlockColumns);
  const int64_t least = num_blocks * (kMaskBytes + has_wide_byte(view.kind));
  const int64_t most = least + num_blocks * kMasks * numbers_bytes(view.kind, true, kMaskNumbers);
  const InputKind input = is_integer(view.kind) ? InputKind::kInt8 : InputKind::kBf16;
  return view.input == input && !shape.has_zero_points && shape.bitmap_bytes >= least &&
         shape.bitmap_bytes <= most;
}

bool parts_fit(const PackedShape& shape) {
  const LinearView& view = shape.view;
  const bool is_short = view.kind == WeightKind::kBf16Short;
  const int64_t num_blocks =
      round_up(view.num_rows, kLanes) / kLanes * (view.num_columns / kBlockColumns);
  return shape.has_scales == traits_of(view.kind).has_scales() &&
         (!shape.has_zero_points || is_integer(view.kind)) &&
         (!shape.gated || view.num_rows % (2 * kLanes) == 0) && shape.num_wide_blocks >= 0 &&
         shape.num_wide_blocks <= (is_short ? num_blocks : 0) &&
         (!is_short || view.input == InputKind::kBf16) && bitmap_fits(shape);
}

}  // namespace

Sections sections(const PackedShape& shape) {
  const LinearView& view = shape.view;
  const int64_t rows = round_up(view.num_rows, kLanes);
  const int64_t num_scales = rows * view.weight_groups;
  const int64_t num_steps = rows * view.num_steps;
  const int64_t num_zero_points = num_steps > 0 ? num_steps : num_scales;
  const int64_t scale_bytes = view.scale_kind == ScaleKind::kFp32 ? 4 : 2;
  const int64_t num_blocks =
      rows / kLanes * (view.num_columns / traits_of(view.kind).block_columns);
  const bool is_short = view.kind == WeightKind::kBf16Short;
  const bool is_bitmap = traits_of(view.kind).is_bitmap;
  const int64_t num_places = rows / kLanes * num_runs(view.num_columns);
  Sections found{};
  found.runs = round_up(
      is_bitmap ? shape.bitmap_bytes + kBitmapTailBytes : num_blocks * block_bytes(view.kind),
      kCacheLine);
  found.upper_bytes = found.runs + (is_bitmap ? round_up(num_places * 8, kCacheLine) : 0);
  const bool has_upper = view.kind == WeightKind::kBf16ShortBitmap;
  found.exponents =
      found.upper_bytes + (has_upper ? round_up(rows / kLanes * kUpperBytes, kCacheLine) : 0);
  found.wide_ranks =
      found.exponents + (is_short ? round_up(rows / kLanes * kShortExponents, kCacheLine) : 0);
  found.wide_rests = found.wide_ranks + (is_short ? round_up(num_blocks * 4, kCacheLine) : 0);
  found.scales = found.wide_rests + shape.num_wide_blocks * kWideRestBytes;
  found.zero_points =
      found.scales + (shape.has_scales ? round_up(num_scales * scale_bytes, kCacheLine) : 0);
  found.steps =
      found.zero_points + (shape.has_zero_points ? round_up(num_zero_points, kCacheLine) : 0);
  found.bias = found.steps + round_up(num_steps, kCacheLine);
  found.end = found.bias + (shape.has_bias ? round_up(rows * 4, kCacheLine) : 0);
  return found;
}

void check_shape(const PackedShape& shape) {
  const LinearView& view = shape.view;
  if (!sizes_fit(view) || !groups_fit(view) || !input_scale_fits(view) || !codes_fit(view) ||
      !steps_fit(view) || !parts_fit(shape)) {
    throw std::invalid_argument("a packed weight has an impossible shape");
  }
}

}  // namespace paredown
