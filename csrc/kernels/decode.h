// Codes of a packed weight, in registers. Include after a simd header.
#pragma once

#include "kernels/math.h"

namespace paredown {
namespace {

// A constant as a value, to unroll loops whose index is a template argument.
template <int kValue>
struct Index {
  static constexpr int value = kValue;
};

template <int kCount, int kFirst = 0, class Body>
inline __attribute__((always_inline)) void unroll(Body&& body) {
  if constexpr (kFirst < kCount) {
    body(Index<kFirst>{});
    unroll<kCount, kFirst + 1>(body);
  }
}

constexpr int kQuads = 8;  // of a block of 32 columns

// The bits of quad kQuad in a plane of kPlaneBits bits.
template <int kPlaneBits, int kQuad>
inline U8x64 plane_bits(const uint8_t* plane) {
  constexpr int kPerByte = 8 / kPlaneBits;
  return bit_field<kPlaneBits*(kQuad % kPerByte), kPlaneBits>(
      load_u8(plane + kQuad / kPerByte * 64));
}

// Unsigned codes of columns 4 kQuad .. 4 kQuad + 3 of a block, 16 rows.
template <int kBits, int kQuad>
inline U8x64 quad_codes(const uint8_t* block) {
  if constexpr (kBits == 8) return load_u8(block + kQuad * 64);
  if constexpr (kBits == 4 || kBits == 2) return plane_bits<kBits, kQuad>(block);
  if constexpr (kBits == 6) {
    return or_shifted<4>(plane_bits<4, kQuad>(block), plane_bits<2, kQuad>(block + 256));
  }
  if constexpr (kBits == 5) {
    return or_shifted<4>(plane_bits<4, kQuad>(block), plane_bits<1, kQuad>(block + 256));
  }
  if constexpr (kBits == 3) {
    return or_shifted<2>(plane_bits<2, kQuad>(block), plane_bits<1, kQuad>(block + 128));
  }
}

// What makes unsigned int8 codes of int4 codes: code * step + offset, whose zero point is 128.
struct StepBytes {
  U8x64 factors;
  U8x64 offsets;
};

// `index` of the first of the 16 rows, in LinearView::steps.
inline StepBytes load_steps(const LinearView& w, int64_t index) {
  if (w.step_offsets != nullptr) {
    return {step_factors(w.steps + index), repeat_4(w.step_offsets + index)};
  }
  const U8x64 eightfold = or_shifted<3>(set_u8(0), repeat_4(w.steps + index));
  return {step_factors(w.steps + index), sub(set_u8(128), eightfold)};
}

template <int kQuad>
inline U8x64 stepped_quad(const uint8_t* block, const StepBytes& step) {
  return multiply_add_codes(quad_codes<4, kQuad>(block), step.factors, step.offsets);
}

// fp8 e4m3 in the low byte of each lane. Shifting the bits into a float's place and scaling by
// 2^120 would be shorter, but makes subnormal floats of the subnormal codes, which processors trap
// on.
inline F32x16 float_from_fp8(I32x16 byte) {
  const I32x16 magnitude = bit_and(byte, set_i(0x7F));
  const F32x16 count = to_float(magnitude);
  const F32x16 normal = bits_as_float(add(shift_left<20>(magnitude), set_i(120 << 23)));
  const F32x16 value = select_less(count, set_f(8.0f), mul(count, set_f(0x1p-9f)), normal);
  const I32x16 sign = shift_left<24>(bit_and(byte, set_i(0x80)));
  return bits_as_float(bit_or(float_bits(value), sign));
}

inline F32x16 load_scales(const LinearView& w, int64_t index) {
  switch (w.scale_kind) {
    case ScaleKind::kBf16:
      return load_bf16(static_cast<const uint16_t*>(w.scales) + index);
    case ScaleKind::kFp16:
      return load_fp16(static_cast<const uint16_t*>(w.scales) + index);
    case ScaleKind::kFp32:
      break;
  }
  return load_f(static_cast<const float*>(w.scales) + index);
}

// Functions that only fetch are inlined at once: GCC 12 takes others for functions without effect
// and drops their calls.
inline __attribute__((always_inline)) void fetch_scales(const LinearView& w, int64_t index) {
  const int64_t bytes = w.scale_kind == ScaleKind::kFp32 ? 4 : 2;
  __builtin_prefetch(static_cast<const uint8_t*>(w.scales) + index * bytes, 0, 2);
}

// Codes of one panel, one per byte, as quads of columns.
template <int kBits>
inline void decode_bits(const uint8_t* blocks, int64_t num_columns, uint8_t* codes) {
  for (int64_t k = 0; k < num_columns; k += kBlockColumns) {
    unroll<kQuads>([&](auto quad) {
      store_u8(codes + quad.value * 64, quad_codes<kBits, quad.value>(blocks));
    });
    blocks += kBlockColumns * kLanes / 8 * kBits;
    codes += kBlockColumns * kLanes;
  }
}

inline const uint8_t* packed_columns(const LinearView& w, int64_t panel, int64_t first) {
  return static_cast<const uint8_t*>(w.values) +
         (panel * w.num_columns + first) / kBlockColumns * block_bytes(w.kind);
}

// The functions of this file that are not inline are shared by all kinds: a form per kind would
// multiply what has to be compiled.
__attribute__((noinline)) void decode_codes(WeightKind kind, const uint8_t* blocks,
                                            int64_t num_columns, uint8_t* codes) {
  switch (kind) {
    case WeightKind::kInt2:
      return decode_bits<2>(blocks, num_columns, codes);
    case WeightKind::kInt3:
      return decode_bits<3>(blocks, num_columns, codes);
    case WeightKind::kInt4:
      return decode_bits<4>(blocks, num_columns, codes);
    case WeightKind::kInt5:
      return decode_bits<5>(blocks, num_columns, codes);
    case WeightKind::kInt6:
      return decode_bits<6>(blocks, num_columns, codes);
    default:
      return decode_bits<8>(blocks, num_columns, codes);
  }
}

// int4 codes with steps as int8 codes: columns [first, first + num_columns) of a panel.
__attribute__((noinline)) void decode_stepped(const LinearView& w, int64_t panel, int64_t first,
                                              int64_t num_columns, uint8_t* codes) {
  const int64_t panel_steps = panel * w.num_steps;
  const uint8_t* block = static_cast<const uint8_t*>(w.values) + (panel * w.num_columns + first) /
                                                                     kBlockColumns *
                                                                     block_bytes(WeightKind::kInt4);
  for (int64_t k = first; k < first + num_columns; k += kBlockColumns) {
    const StepBytes step = load_steps(w, (panel_steps + k / w.step_size) * kLanes);
    unroll<kQuads>([&](auto quad) {
      store_u8(codes + quad.value * 64, stepped_quad<quad.value>(block, step));
    });
    block += block_bytes(WeightKind::kInt4);
    codes += kBlockColumns * kLanes;
  }
}

// A block of fp8 as floats [32 columns][16 rows], without their scale.
__attribute__((noinline)) void decode_fp8_floats(const uint8_t* block, float* columns) {
  for (int quad = 0; quad < kQuads; ++quad, columns += 4 * kLanes) {
    const U8x64 codes = load_u8(block + quad * 64);
    store_f(columns, float_from_fp8(byte_of<0>(codes)));
    store_f(columns + kLanes, float_from_fp8(byte_of<2>(codes)));
    store_f(columns + 2 * kLanes, float_from_fp8(byte_of<1>(codes)));
    store_f(columns + 3 * kLanes, float_from_fp8(byte_of<3>(codes)));
  }
}

}  // namespace
}  // namespace paredown
