#include "packed_linear.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace paredown {
namespace {

// Integer rows are padded to this many columns, the smallest group.
constexpr int64_t kColumnQuantum = 32;
// 65,536 products of an unsigned and a signed byte still fit in 32 bits.
constexpr int64_t kMaxGroup = 65536;
// Activations of weights with one scale per row are quantized in groups of at most this many.
constexpr int64_t kMaxActivationGroup = 128;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool is_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return (bits & 0xFFFFu) == 0;
}

int64_t activation_group(int64_t num_columns) {
  for (int64_t group = kMaxActivationGroup; group > kColumnQuantum; group /= 2) {
    if (num_columns % group == 0) return group;
  }
  return kColumnQuantum;
}

}  // namespace

PackedLinear::PackedLinear(const LinearSource& source) {
  const bool is_integer = source.kind == WeightKind::kInt8 || source.kind == WeightKind::kInt4;
  view_.kind = source.kind;
  view_.num_rows = source.num_rows;
  if (is_integer) {
    view_.num_columns = round_up(source.num_columns, kColumnQuantum);
    const bool per_row = source.group_size >= source.num_columns;
    if (!per_row &&
        (source.group_size % kColumnQuantum != 0 || source.num_columns % source.group_size != 0)) {
      throw std::invalid_argument("a group of " + std::to_string(source.group_size) +
                                  " columns must be a multiple of 32 that divides " +
                                  std::to_string(source.num_columns));
    }
    if (!per_row && source.group_size > kMaxGroup) {
      throw std::invalid_argument("a group of " + std::to_string(source.group_size) +
                                  " columns could overflow its 32-bit sum");
    }
    view_.group_size = per_row ? activation_group(view_.num_columns) : source.group_size;
    view_.num_groups = view_.num_columns / view_.group_size;
    view_.weight_groups = per_row ? 1 : view_.num_groups;
    pack_codes(source);
    pack_scales(source);
  } else {
    view_.num_columns = round_up(source.num_columns, 2);
    pack_floats(source);
  }
  if (source.bias != nullptr) {
    bias_ = AlignedBuffer(num_panels() * kLanes * static_cast<int64_t>(sizeof(float)));
    std::memcpy(bias_.get(), source.bias, static_cast<size_t>(source.num_rows) * sizeof(float));
    view_.bias = bias_.as<float>();
  }
}

int64_t PackedLinear::num_bytes() const {
  return values_.num_bytes() + scales_.num_bytes() + zero_points_.num_bytes() + bias_.num_bytes();
}

void PackedLinear::pack_floats(const LinearSource& source) {
  const int64_t element_bytes = source.kind == WeightKind::kFp32 ? 4 : 2;
  const int64_t columns = view_.num_columns;
  values_ = AlignedBuffer(num_panels() * kLanes * columns * element_bytes);
  view_.values = values_.get();
  const bool paired = source.kind == WeightKind::kBf16;
  for (int64_t row = 0; row < source.num_rows; ++row) {
    const int64_t panel = row / kLanes;
    const int64_t lane = row % kLanes;
    for (int64_t k = 0; k < source.num_columns; ++k) {
      const int64_t slot = paired ? (panel * columns / 2 + k / 2) * 2 * kLanes + lane * 2 + k % 2
                                  : (panel * columns + k) * kLanes + lane;
      const int64_t from = row * source.num_columns + k;
      if (element_bytes == 4) {
        values_.as<float>()[slot] = static_cast<const float*>(source.values)[from];
      } else {
        values_.as<uint16_t>()[slot] = static_cast<const uint16_t*>(source.values)[from];
      }
    }
  }
}

void PackedLinear::pack_codes(const LinearSource& source) {
  const bool nibbles = source.kind == WeightKind::kInt4;
  const int64_t columns = view_.num_columns;
  const int64_t row_bytes = nibbles ? columns / 2 : columns;
  values_ = AlignedBuffer(num_panels() * kLanes * row_bytes);
  view_.values = values_.get();
  auto* packed = values_.as<uint8_t>();
  const auto* codes = static_cast<const uint8_t*>(source.values);
  for (int64_t row = 0; row < source.num_rows; ++row) {
    uint8_t* panel = packed + row / kLanes * kLanes * row_bytes;
    const int64_t lane = row % kLanes;
    const uint8_t* from = codes + row * source.num_columns;
    for (int64_t k = 0; k < source.num_columns; ++k) {
      if (nibbles) {
        const int shift = k % 8 < 4 ? 0 : 4;
        panel[k / 8 * 64 + lane * 4 + k % 4] |= static_cast<uint8_t>((from[k] & 0x0F) << shift);
      } else {
        panel[k / 4 * 64 + lane * 4 + k % 4] = from[k];
      }
    }
  }
}

void PackedLinear::pack_scales(const LinearSource& source) {
  const int64_t groups = view_.weight_groups;
  const int64_t num_scales = num_panels() * groups * kLanes;
  const bool fits_bf16 =
      std::all_of(source.scales, source.scales + source.num_rows * groups, is_bf16);
  view_.scale_kind = fits_bf16 ? ScaleKind::kBf16 : ScaleKind::kFp32;
  scales_ = AlignedBuffer(num_scales * (fits_bf16 ? 2 : 4));
  view_.scales = scales_.get();
  if (source.zero_points != nullptr) {
    zero_points_ = AlignedBuffer(num_scales);
    view_.zero_points = zero_points_.as<uint8_t>();
  }
  for (int64_t row = 0; row < source.num_rows; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t slot = (row / kLanes * groups + group) * kLanes + row % kLanes;
      const float scale = source.scales[row * groups + group];
      if (fits_bf16) {
        uint32_t bits;
        std::memcpy(&bits, &scale, sizeof(bits));
        scales_.as<uint16_t>()[slot] = static_cast<uint16_t>(bits >> 16);
      } else {
        scales_.as<float>()[slot] = scale;
      }
      if (source.zero_points != nullptr) {
        zero_points_.as<uint8_t>()[slot] = source.zero_points[row * groups + group];
      }
    }
  }
}

}  // namespace paredown
