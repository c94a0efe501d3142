// Codes of a packed weight, in registers. Include after a simd header.
#pragma once

#include "math.h"

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
  return bit_field<kPlaneBits * (kQuad % kPerByte), kPlaneBits>(
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

// fp8 e4m3 in the low byte of each lane: shifted into the place of a float's exponent and
// mantissa it is 2^-120 of its value, subnormals too.
inline F32x16 float_from_fp8(I32x16 byte) {
  const I32x16 sign = shift_left<24>(bit_and(byte, set_i(0x80)));
  const I32x16 magnitude = shift_left<20>(bit_and(byte, set_i(0x7F)));
  return mul(bits_as_float(bit_or(sign, magnitude)), set_f(0x1p120f));
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

// Column kColumn of a block as float; codes without their scale, their zero point taken off.
template <WeightKind kKind, int kColumn>
inline F32x16 block_column(const void* block, F32x16 zero_point) {
  if constexpr (kKind == WeightKind::kFp32) {
    return load_f(static_cast<const float*>(block) + kColumn * kLanes);
  } else if constexpr (kKind == WeightKind::kFp16) {
    return load_fp16(static_cast<const uint16_t*>(block) + kColumn * kLanes);
  } else if constexpr (kKind == WeightKind::kBf16) {
    const I32x16 pairs = load_i(static_cast<const uint16_t*>(block) + kColumn / 2 * 2 * kLanes);
    return kColumn % 2 == 0 ? even_bf16(pairs) : odd_bf16(pairs);
  } else if constexpr (kKind == WeightKind::kFp8) {
    constexpr int kByte = kColumn % 4 == 1 ? 2 : (kColumn % 4 == 2 ? 1 : kColumn % 4);
    return float_from_fp8(byte_of<kByte>(load_u8(static_cast<const uint8_t*>(block) +
                                                 kColumn / 4 * 64)));
  } else {
    const U8x64 codes =
        quad_codes<weight_bits(kKind), kColumn / 4>(static_cast<const uint8_t*>(block));
    return sub(to_float(byte_of<kColumn % 4>(codes)), zero_point);
  }
}

}  // namespace
}  // namespace paredown
