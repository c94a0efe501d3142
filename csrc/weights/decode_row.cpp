#include "weights/decode_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/block_forms.h"
#include "weights/bitmap.h"

namespace paredown {
namespace {

float bf16_value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float fp16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// The codes of a lane's 32 columns, from planes of 8, 4, 2 and 1 bits (kernels/weight_kinds.h).
void read_codes(const uint8_t* block, int bits, int64_t lane, uint8_t* codes) {
  std::memset(codes, 0, kBlockColumns);
  int done = 0;
  for (int plane_bits : {8, 4, 2, 1}) {
    if ((bits & plane_bits) == 0) continue;
    const int per_byte = 8 / plane_bits;
    const int mask = (1 << plane_bits) - 1;
    for (int64_t column = 0; column < kBlockColumns; ++column) {
      const int64_t quad = column / 4;
      const uint8_t byte = block[quad / per_byte * 64 + lane * 4 + column % 4];
      const int code = byte >> quad % per_byte * plane_bits & mask;
      codes[column] = static_cast<uint8_t>(codes[column] | code << done);
    }
    block += plane_bits * 64;
    done += plane_bits;
  }
}

// Factor `index` of a lane: scales, then minima.
int read_factor(const BlockForm& form, const uint8_t* factors, int64_t lane, int index) {
  const int quad = index / 4;
  const uint8_t* place = factors + lane * 4 + index % 4;
  if (form.factors == Factors::kBytes) return static_cast<int8_t>(place[quad * 64]);
  int factor = place[quad / 2 * 64] >> 4 * (quad % 2) & 15;
  if (form.factors == Factors::kSixBits) {
    const uint8_t* high = place + form.num_factors() / 8 * 64;
    factor |= (high[quad / 4 * 64] >> 2 * (quad % 4) & 3) << 4;
  }
  return factor;
}

// One lane of a block with its own scales.
void decode_block(const BlockForm& form, const uint8_t* block, int64_t lane, float* values) {
  const uint8_t* factors = block + form.factor_offset();
  auto half = [&](int index) {
    uint16_t bits;
    std::memcpy(&bits, block + form.half_offset() + (index * kLanes + lane) * 2, 2);
    return form.has_bf16_scale ? bf16_value(bits) : fp16_value(bits);
  };
  const float d = half(0);
  const float e = form.has_minima ? half(1) : 0.0f;
  const int num_groups = form.num_groups();
  for (int64_t column = 0; column < form.columns; column += kBlockColumns) {
    uint8_t codes[kBlockColumns];
    read_codes(block + column / kBlockColumns * form.run_bytes(), form.bits, lane, codes);
    for (int64_t i = 0; i < kBlockColumns; ++i) {
      const int group = static_cast<int>((column + i) / form.group_columns);
      const int code = form.table == CodeTable::kNone ? codes[i] : code_table(form.table)[codes[i]];
      float scale = d;
      float minimum = -e;
      if (form.factors != Factors::kNone) {
        const int factor = read_factor(form, factors, lane, group);
        scale = d * static_cast<float>(factor - form.factor_zero);
        if (form.has_minima) {
          minimum = e * static_cast<float>(read_factor(form, factors, lane, num_groups + group));
        }
      }
      // Both products are exact.
      const float product = static_cast<float>(code - form.zero_point) * scale;
      values[column + i] = form.has_minima ? product - minimum : product;
    }
  }
}

float scale_at(const LinearView& w, int64_t index) {
  if (w.scale_kind == ScaleKind::kFp32) return static_cast<const float*>(w.scales)[index];
  const uint16_t bits = static_cast<const uint16_t*>(w.scales)[index];
  return w.scale_kind == ScaleKind::kBf16 ? bf16_value(bits) : fp16_value(bits);
}

}  // namespace

bool has_decoded_rows(const LinearView& w) {
  return traits_of(w.kind).is_blocked || (is_integer(w.kind) && w.num_steps == 0);
}

void decode_row(const LinearView& w, int64_t row, float* values) {
  const WeightTraits& traits = traits_of(w.kind);
  const int64_t panel = row / kLanes;
  const int64_t lane = row % kLanes;
  const int64_t num_blocks = w.num_columns / traits.block_columns;
  const auto* block =
      static_cast<const uint8_t*>(w.values) + panel * num_blocks * traits.block_bytes;
  std::vector<uint8_t> row_codes;
  if (traits.is_bitmap) {
    row_codes.resize(static_cast<size_t>(w.num_columns));
    copy_bitmap_row(w, row, row_codes.data());
  }
  for (int64_t i = 0; i < num_blocks; ++i, block += traits.block_bytes) {
    float* of_block = values + i * traits.block_columns;
    if (traits.is_blocked) {
      decode_block(block_form(w.kind), block, lane, of_block);
      continue;
    }
    uint8_t codes[kBlockColumns];
    if (traits.is_bitmap) {
      std::copy_n(row_codes.data() + i * kBlockColumns, kBlockColumns, codes);
    } else {
      read_codes(block, traits.bits, lane, codes);
    }
    const int64_t group =
        w.weight_groups == 1 ? 0 : i * kBlockColumns * w.weight_groups / w.num_columns;
    const int64_t slot = (panel * w.weight_groups + group) * kLanes + lane;
    const int zero_point = w.zero_points == nullptr ? 1 << (traits.bits - 1) : w.zero_points[slot];
    const float scale = scale_at(w, slot);
    for (int64_t k = 0; k < kBlockColumns; ++k) {
      of_block[k] = static_cast<float>(codes[k] - zero_point) * scale;
    }
  }
}

}  // namespace paredown
