#include "weights/packed_linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/block_forms.h"
#include "machine/round_up.h"
#include "weights/bitmap.h"
#include "weights/pack_block.h"
#include "weights/packed_numbers.h"
#include "weights/short_bf16.h"

namespace paredown {
namespace {

// Activations of weights with one scale per row are quantized in groups of at most this many.
constexpr int64_t kMaxActivationGroup = 128;
constexpr uintptr_t kAlignment = 64;  // of borrowed bytes: kernels read whole vectors

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

bool is_bf16(float value) { return (bits_of(value) & 0xFFFFu) == 0; }

// Whether it is an fp16 number, subnormal ones among them; others make the scales fp32.
bool is_fp16(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t exponent = bits >> 23 & 0xFFu;
  if (exponent >= 113) return (bits & 0x1FFFu) == 0 && exponent <= 142;
  const float fraction = std::fabs(value) * 0x1p24f;
  return fraction == std::trunc(fraction);
}

uint16_t fp16_bits(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  if ((bits >> 23 & 0xFFu) < 113) {
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::fabs(value) * 0x1p24f));
  }
  return static_cast<uint16_t>(sign | ((bits >> 13 & 0x3FFFFu) - (112u << 10)));
}

int64_t activation_group(int64_t num_columns) {
  for (int64_t group = kMaxActivationGroup; group > kBlockColumns; group /= 2) {
    if (num_columns % group == 0) return group;
  }
  return kBlockColumns;
}

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

bool has_grouped_input(const LinearSource& source) {
  return source.activations == Activations::kInt8Group ||
         source.activations == Activations::kInt16Group;
}

InputKind input_kind(const LinearSource& source) {
  if (source.kind == WeightKind::kBf16Short || traits_of(source.kind).is_bitmap) {
    fail("short exponents and bitmaps are packed of plain numbers");
  }
  if (traits_of(source.kind).is_blocked && !has_grouped_input(source)) {
    fail("weights in blocks take int8 activations with a scale for each");
  }
  switch (source.activations) {
    case Activations::kFp32:
      return InputKind::kFp32;
    case Activations::kBf16:
      if (!traits_of(source.kind).takes_bf16) {
        fail("only bf16, fp8 and integer weights take bf16 activations");
      }
      return InputKind::kBf16;
    case Activations::kInt8Group:
    case Activations::kInt16Group:
    case Activations::kInt8Row:
    case Activations::kInt8Static:
      break;
  }
  if (!is_integer(source.kind) && !traits_of(source.kind).is_blocked) {
    fail("only integer weights take int8 activations");
  }
  return InputKind::kInt8;
}

// Sums of groups are bounded by this (kernels/linear/prepare.h, may_read_bits).
void check_zero_points(WeightKind kind, const uint8_t* zero_points, int64_t num_zero_points) {
  const int num_codes = 1 << weight_bits(kind);
  const uint8_t* end = zero_points + num_zero_points;
  const uint8_t* wrong =
      std::find_if(zero_points, end, [num_codes](uint8_t zero) { return zero >= num_codes; });
  if (wrong == end) return;
  fail("a zero point of " + std::to_string(*wrong) + " is none of the " +
       std::to_string(num_codes) + " codes");
}

// Whether each of the 16 codes of a group gives an int8 code with its step.
bool step_fits(const SourceNumbers& numbers, int64_t index) {
  const int step = numbers.steps[index];
  const int zero_point = numbers.zero_points == nullptr ? 8 : numbers.zero_points[index];
  return step >= 1 && step <= 16 && -zero_point * step >= -128 && (15 - zero_point) * step <= 127;
}

void set_steps(const LinearSource& source, const SourceNumbers& numbers, LinearView& view) {
  const int64_t size = source.group_size;
  if (source.kind != WeightKind::kInt4 || (source.activations != Activations::kInt8Row &&
                                           source.activations != Activations::kInt8Static)) {
    fail("steps are of int4 weights whose int8 inputs have one scale per row");
  }
  if (size % kBlockColumns != 0 || source.num_columns % size != 0) {
    fail("a step for " + std::to_string(size) +
         " columns: they must be a multiple of 32 that divides " +
         std::to_string(source.num_columns));
  }
  view.step_size = size;
  view.num_steps = source.num_columns / size;
  for (int64_t index = 0; index < source.num_rows * view.num_steps; ++index) {
    if (step_fits(numbers, index)) continue;
    fail("the step of row " + std::to_string(index / view.num_steps) + ", group " +
         std::to_string(index % view.num_steps) +
         " is not from 1 to 16 or gives codes beyond int8");
  }
}

// The groups of blocks, whose scales they have in them.
void set_block_groups(LinearView& view) {
  const BlockForm& form = block_form(view.kind);
  if (view.num_columns % form.columns != 0) {
    fail("blocks of " + std::to_string(form.columns) + " columns do not fill a row of " +
         std::to_string(view.num_columns));
  }
  view.group_size = form.group_columns;
  view.num_groups = view.num_columns / form.group_columns;
  view.weight_groups = 1;
  view.input_groups = view.num_columns / form.columns;
}

// Fills in the groups: columns summed before a scale is applied.
void set_groups(const LinearSource& source, const SourceNumbers& numbers, LinearView& view) {
  if (traits_of(source.kind).is_blocked) return set_block_groups(view);
  if (numbers.steps != nullptr) set_steps(source, numbers, view);
  const int64_t group = source.group_size;
  const bool per_row = !traits_of(source.kind).has_scales() || group >= source.num_columns ||
                       numbers.steps != nullptr;
  if (!per_row && (group % kBlockColumns != 0 || source.num_columns % group != 0)) {
    fail("a group of " + std::to_string(group) + " columns must be a multiple of 32 that divides " +
         std::to_string(source.num_columns));
  }
  const bool grouped_input = has_grouped_input(source);
  if (!per_row) {
    view.group_size = group;
  } else {
    view.group_size = grouped_input ? activation_group(view.num_columns) : view.num_columns;
  }
  if (view.input == InputKind::kInt8 && view.group_size > kMaxGroup) {
    fail("a group of " + std::to_string(view.group_size) +
         " columns could overflow its 32-bit sum");
  }
  if (view.input == InputKind::kBf16 && view.kind == WeightKind::kFp8 && !per_row) {
    fail("fp8 weights with bf16 activations take one scale per row, not groups of " +
         std::to_string(group));
  }
  view.num_groups = view.num_columns / view.group_size;
  view.weight_groups = per_row ? 1 : view.num_groups;
  view.input_groups = grouped_input ? view.num_groups : 1;
}

ScaleKind scale_kind(const float* scales, int64_t num_scales) {
  const float* end = scales + num_scales;
  if (std::all_of(scales, end, is_bf16)) return ScaleKind::kBf16;
  if (std::all_of(scales, end, is_fp16)) return ScaleKind::kFp16;
  return ScaleKind::kFp32;
}

}  // namespace

PackedLinear::PackedLinear(const LinearSource& source, ThreadPool& pool) {
  LinearView& view = shape_.view;
  const SourceNumbers numbers = numbers_of(source);
  view.kind = source.kind;
  view.input = input_kind(source);
  view.input_codes = source.activations == Activations::kInt16Group ? 2 : 1;
  view.num_rows = source.num_rows;
  view.num_columns = round_up(source.num_columns, kBlockColumns);
  set_groups(source, numbers, view);
  if (source.activations == Activations::kInt8Static) {
    if (!(source.input_scale > 0.0f) || !std::isfinite(source.input_scale)) {
      fail("a static input scale must be positive and finite");
    }
    view.input_scale = source.input_scale;
  }
  const int64_t num_scales = source.num_rows * view.weight_groups;
  if (numbers.zero_points != nullptr && is_integer(source.kind) && numbers.steps == nullptr) {
    check_zero_points(source.kind, numbers.zero_points, num_scales);
  }
  shape_.has_scales = traits_of(source.kind).has_scales();
  shape_.has_zero_points = numbers.zero_points != nullptr;
  shape_.has_bias = numbers.bias != nullptr;
  shape_.gated = source.gated;
  if (source.gated && source.num_rows % (2 * kLanes) != 0) {
    fail("gate and up must each be a multiple of 16 rows");
  }
  if (shape_.has_scales) view.scale_kind = scale_kind(numbers.scales, num_scales);
  memory_ = AlignedBuffer(sections(shape_).end);
  point_into(memory_.as<uint8_t>());
  pool.run_items(num_panels(), [&](int, const Range& panels) {
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      pack_panel(source, numbers, panel);
    }
  });
  const bool is_shortened =
      source.short_exponents && view.kind == WeightKind::kBf16 && view.input == InputKind::kBf16;
  if (becomes_bitmap(source, is_shortened, pool)) {
    drop_zeros(source.num_columns, is_shortened, pool);
  } else if (is_shortened) {
    shorten(pool);
  }
  pack_row_scales(numbers);
  if (numbers.steps != nullptr) pack_steps(numbers);
}

PackedLinear::PackedLinear(const PackedShape& shape, std::span<const uint8_t> bytes)
    : shape_(shape) {
  check_shape(shape);
  if (static_cast<int64_t>(bytes.size()) != sections(shape).end ||
      reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment != 0) {
    fail("the bytes of a packed weight do not fit its shape");
  }
  point_into(bytes.data());
  check_numbers(view_, shape);
}

PackedShape PackedLinear::shape() const { return shape_; }

void PackedLinear::copy_row(int64_t row, void* values) const {
  if (traits_of(view_.kind).is_bitmap) {
    return copy_bitmap_row(view_, row, static_cast<uint8_t*>(values));
  }
  if (view_.kind == WeightKind::kBf16Short) {
    return copy_short_row(view_, row, static_cast<uint16_t*>(values));
  }
  const int64_t panel_bytes = view_.num_columns / kBlockColumns * block_bytes(view_.kind);
  const auto* from = static_cast<const uint8_t*>(view_.values) + row / kLanes * panel_bytes;
  const int64_t lane = row % kLanes;
  auto copy = [&]<class Unit>(Unit* to, int64_t num_units) {
    for (int64_t i = 0; i < num_units; ++i) {
      std::memcpy(to + i, from + (i * kLanes + lane) * static_cast<int64_t>(sizeof(Unit)),
                  sizeof(Unit));
    }
  };
  // A lane's unit is one number, in bf16 a pair of columns.
  if (view_.kind == WeightKind::kFp16) {
    copy(static_cast<uint16_t*>(values), view_.num_columns);
  } else {
    copy(static_cast<uint32_t*>(values),
         view_.kind == WeightKind::kBf16 ? view_.num_columns / 2 : view_.num_columns);
  }
}

void PackedLinear::point_into(const uint8_t* data) {
  const Sections found = sections(shape_);
  view_ = shape_.view;
  view_.values = data;
  view_.short_bf16 = {data + found.exponents,
                      reinterpret_cast<const uint32_t*>(data + found.wide_ranks),
                      data + found.wide_rests};
  view_.bitmap = {reinterpret_cast<const int64_t*>(data + found.runs), data + found.upper_bytes};
  view_.scales = shape_.has_scales ? data + found.scales : nullptr;
  const uint8_t* zero_points = shape_.has_zero_points ? data + found.zero_points : nullptr;
  view_.zero_points = view_.num_steps > 0 ? nullptr : zero_points;
  view_.step_offsets = view_.num_steps > 0 ? zero_points : nullptr;
  view_.steps = view_.num_steps > 0 ? data + found.steps : nullptr;
  view_.bias = shape_.has_bias ? reinterpret_cast<const float*>(data + found.bias) : nullptr;
}

// Where a source row goes: panels of gate and up take turns.
int64_t PackedLinear::packed_row(int64_t row) const {
  if (!shape_.gated) return row;
  const int64_t half = view_.num_rows / 2;
  const int64_t within = row % half;
  return (within / kLanes * 2 + row / half) * kLanes + within % kLanes;
}

void PackedLinear::pack_panel(const LinearSource& source, const SourceNumbers& numbers,
                              int64_t panel) {
  const int64_t half = view_.num_rows / 2;
  const int64_t first = shape_.gated ? panel / 2 * kLanes + panel % 2 * half : panel * kLanes;
  const int64_t num_lanes = std::min<int64_t>(kLanes, source.num_rows - first);
  const WeightTraits& traits = traits_of(source.kind);
  const int64_t num_blocks = view_.num_columns / traits.block_columns;
  const int64_t row_bytes = source_row_bytes(source.kind, source.num_columns);
  uint8_t* blocks = memory_.as<uint8_t>() + panel * num_blocks * traits.block_bytes;
  for (int64_t lane = 0; lane < num_lanes; ++lane) {
    const uint8_t* from = numbers.values + (first + lane) * row_bytes;
    int64_t left = source.num_columns;
    for (int64_t block = 0; block < num_blocks; ++block, left -= traits.block_columns) {
      pack_block(source.kind, from + block * traits.source_bytes,
                 std::min(traits.block_columns, left), lane, blocks + block * traits.block_bytes);
    }
  }
}

// From bf16 to bf16 with short exponents, unless more than half of the blocks would be wide: these
// save nothing.
void PackedLinear::shorten(ThreadPool& pool) {
  PackedShape shape = shape_;
  shape.view.kind = WeightKind::kBf16Short;
  const int64_t most_wide = num_panels() * (view_.num_columns / kBlockColumns) / 2;
  shape.num_wide_blocks = most_wide;  // for room enough; what is not written takes no memory
  const Sections found = sections(shape);
  AlignedBuffer memory(found.end);
  auto* data = memory.as<uint8_t>();
  const ShortMemory to{data, data + found.exponents,
                       reinterpret_cast<uint32_t*>(data + found.wide_ranks),
                       data + found.wide_rests};
  const std::vector<int64_t> first_wide = write_short_blocks(view_, to, pool);
  if (first_wide.back() > most_wide) return;
  write_wide_rests(view_, first_wide, to, pool);
  shape.num_wide_blocks = first_wide.back();
  shape_ = shape;
  memory_ = std::move(memory);
  point_into(data);
}

void PackedLinear::pack_row_scales(const SourceNumbers& numbers) {
  const Sections found = sections(shape_);
  auto* data = memory_.as<uint8_t>();
  auto* bias = reinterpret_cast<float*>(data + found.bias);
  const int64_t groups = view_.weight_groups;
  for (int64_t row = 0; row < view_.num_rows; ++row) {
    const int64_t packed = packed_row(row);
    if (shape_.has_bias) bias[packed] = numbers.bias[row];
    for (int64_t group = 0; shape_.has_scales && group < groups; ++group) {
      const int64_t slot = (packed / kLanes * groups + group) * kLanes + packed % kLanes;
      const float scale = numbers.scales[row * groups + group];
      if (view_.scale_kind == ScaleKind::kFp32) {
        reinterpret_cast<float*>(data + found.scales)[slot] = scale;
      } else {
        const uint16_t half = view_.scale_kind == ScaleKind::kBf16
                                  ? static_cast<uint16_t>(bits_of(scale) >> 16)
                                  : fp16_bits(scale);
        reinterpret_cast<uint16_t*>(data + found.scales)[slot] = half;
      }
      if (view_.zero_points != nullptr)
        data[found.zero_points + slot] = numbers.zero_points[row * groups + group];
    }
  }
}

void PackedLinear::pack_steps(const SourceNumbers& numbers) {
  const Sections found = sections(shape_);
  auto* data = memory_.as<uint8_t>();
  for (int64_t row = 0; row < view_.num_rows; ++row) {
    const int64_t packed = packed_row(row);
    for (int64_t step = 0; step < view_.num_steps; ++step) {
      const int64_t slot = (packed / kLanes * view_.num_steps + step) * kLanes + packed % kLanes;
      const int64_t index = row * view_.num_steps + step;
      data[found.steps + slot] = numbers.steps[index];
      if (!shape_.has_zero_points) continue;
      data[found.zero_points + slot] =
          static_cast<uint8_t>(128 - numbers.zero_points[index] * numbers.steps[index]);
    }
  }
}

}  // namespace paredown
