// 16 lanes in plain C++: the readable meaning of every operation, for any processor.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "simd/fp8_subnormals.h"
#include "simd/two_by_two.h"

namespace paredown {
namespace {

struct F32x16 {
  float v[16];
};
struct I32x16 {
  int32_t v[16];
};
struct U8x64 {
  uint8_t v[64];
};

// Sums that grow side by side where peaks are measured: no more than the registers hold.
constexpr int kPeakChains = 3;
// Query rows that attention takes through a pass over the keys.
constexpr int kAttentionRows = 2;
constexpr int kAttentionSums = 2;  // of rows by vectors
// Group sums are read as the bits of floats.
constexpr bool kReadsBits = false;
// Up to this many tokens codes are decoded in registers; for more, once to memory.
constexpr int kFewTokens = 4;
constexpr int kFewTokensShortRows = 4;
constexpr int kFewTokensShortGroups = 4;
constexpr int kFewTokensSteps = kFewTokens;
// Products of codes below 8 bits are made differently.
constexpr bool kHasSmallDot = false;
// dot4 of 8-bit codes costs no more than a float product.
constexpr bool kHasByteDot = false;

template <class Result, class Function>
inline Result each_lane(Function function) {
  Result result;
  for (int i = 0; i < 16; ++i) result.v[i] = function(i);
  return result;
}

inline F32x16 set_f(float x) {
  return each_lane<F32x16>([&](int) { return x; });
}
inline F32x16 zero_f() { return set_f(0.0f); }
inline F32x16 load_f(const float* p) {
  return each_lane<F32x16>([&](int i) { return p[i]; });
}
inline void store_f(float* p, F32x16 a) { std::memcpy(p, a.v, sizeof(a.v)); }
// Sets that can store past the caches do.
inline void stream_f(float* p, F32x16 a) { store_f(p, a); }
inline void stream_fence() {}
inline F32x16 add(F32x16 a, F32x16 b) {
  return each_lane<F32x16>([&](int i) { return a.v[i] + b.v[i]; });
}
inline F32x16 sub(F32x16 a, F32x16 b) {
  return each_lane<F32x16>([&](int i) { return a.v[i] - b.v[i]; });
}
inline F32x16 mul(F32x16 a, F32x16 b) {
  return each_lane<F32x16>([&](int i) { return a.v[i] * b.v[i]; });
}
inline F32x16 div(F32x16 a, F32x16 b) {
  return each_lane<F32x16>([&](int i) { return a.v[i] / b.v[i]; });
}
// Two roundings: processors without a fused multiply-add would emulate one very slowly.
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return each_lane<F32x16>([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return each_lane<F32x16>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return each_lane<F32x16>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline F32x16 abs(F32x16 a) {
  return each_lane<F32x16>([&](int i) { return std::fabs(a.v[i]); });
}
inline F32x16 select_less(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
  return each_lane<F32x16>([&](int i) { return x.v[i] < y.v[i] ? a.v[i] : b.v[i]; });
}
inline float sum_lanes(F32x16 a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] += a.v[i + width];
  }
  return a.v[0];
}
inline float max_lanes(F32x16 a) {
  float largest = a.v[0];
  for (int i = 1; i < 16; ++i) largest = a.v[i] > largest ? a.v[i] : largest;
  return largest;
}

inline float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t bits_from_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float float_from_fp16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t fraction = half & 0x3FFu;
  if (exponent == 0x1F) return float_from_bits(sign | 0x7F800000u | (fraction << 13));
  if (exponent != 0) return float_from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float subnormal = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -subnormal : subnormal;
}
inline F32x16 load_fp16(const uint16_t* p) {
  return each_lane<F32x16>([&](int i) { return float_from_fp16(p[i]); });
}
inline F32x16 load_bf16(const uint16_t* p) {
  return each_lane<F32x16>(
      [&](int i) { return float_from_bits(static_cast<uint32_t>(p[i]) << 16); });
}
inline void store_bf16(uint16_t* p, F32x16 a) {
  for (int i = 0; i < 16; ++i) {
    const uint32_t bits = bits_from_float(a.v[i]);
    p[i] = static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
  }
}

inline I32x16 set_i(int32_t x) {
  return each_lane<I32x16>([&](int) { return x; });
}
inline I32x16 zero_i() { return set_i(0); }
inline I32x16 load_i(const void* p) {
  I32x16 result;
  std::memcpy(result.v, p, sizeof(result.v));
  return result;
}
// Sums wrap modulo 2^32, as they do in vector registers.
inline uint32_t unsigned_of(int32_t x) { return static_cast<uint32_t>(x); }
inline int32_t wrap(uint32_t x) { return static_cast<int32_t>(x); }
inline I32x16 add(I32x16 a, I32x16 b) {
  return each_lane<I32x16>([&](int i) { return wrap(unsigned_of(a.v[i]) + unsigned_of(b.v[i])); });
}
inline I32x16 mul(I32x16 a, I32x16 b) {
  return each_lane<I32x16>([&](int i) { return wrap(unsigned_of(a.v[i]) * unsigned_of(b.v[i])); });
}
inline I32x16 max(I32x16 a, I32x16 b) {
  return each_lane<I32x16>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline I32x16 min(I32x16 a, I32x16 b) {
  return each_lane<I32x16>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline I32x16 load_u8_as_i32(const uint8_t* p) {
  return each_lane<I32x16>([&](int i) { return static_cast<int32_t>(p[i]); });
}
inline void store_i(void* p, I32x16 a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline I32x16 bit_and(I32x16 a, I32x16 b) {
  return each_lane<I32x16>([&](int i) { return a.v[i] & b.v[i]; });
}
inline I32x16 bit_or(I32x16 a, I32x16 b) {
  return each_lane<I32x16>([&](int i) { return a.v[i] | b.v[i]; });
}
template <int kShift>
inline I32x16 shift_left(I32x16 a) {
  return each_lane<I32x16>([&](int i) { return wrap(unsigned_of(a.v[i]) << kShift); });
}
template <int kShift>
inline I32x16 shift_right(I32x16 a) {
  return each_lane<I32x16>([&](int i) { return wrap(unsigned_of(a.v[i]) >> kShift); });
}
inline F32x16 bits_as_float(I32x16 a) {
  F32x16 result;
  std::memcpy(result.v, a.v, sizeof(a.v));
  return result;
}
inline I32x16 float_bits(F32x16 a) {
  I32x16 result;
  std::memcpy(result.v, a.v, sizeof(a.v));
  return result;
}
inline int32_t max_lanes(I32x16 a) {
  int32_t largest = a.v[0];
  for (int32_t lane : a.v) largest = lane > largest ? lane : largest;
  return largest;
}
inline int32_t sum_lanes(I32x16 a) {
  int32_t total = 0;
  for (int32_t lane : a.v) total += lane;
  return total;
}
inline F32x16 to_float(I32x16 a) {
  return each_lane<F32x16>([&](int i) { return static_cast<float>(a.v[i]); });
}
// Round to nearest even by the magic-number trick; far out of range and NaN clamp first, since the
// conversion of such a float is undefined in C++.
inline I32x16 to_int(F32x16 a) {
  return each_lane<I32x16>([&](int i) {
    const float x = a.v[i];
    const float clamped = x > 4.0e6f ? 4.0e6f : (x > -4.0e6f ? x : -4.0e6f);
    return static_cast<int32_t>((clamped + 12582912.0f) - 12582912.0f);
  });
}
inline void store_i8(int8_t* p, I32x16 a) {
  for (int i = 0; i < 16; ++i) {
    const int32_t x = a.v[i];
    p[i] = static_cast<int8_t>(x > 127 ? 127 : (x < -128 ? -128 : x));
  }
}
inline F32x16 scale_by_power(F32x16 a, I32x16 n) {
  return each_lane<F32x16>([&](int i) {
    return float_from_bits(bits_from_float(a.v[i]) + (static_cast<uint32_t>(n.v[i]) << 23));
  });
}

inline U8x64 load_u8(const uint8_t* p) {
  U8x64 result;
  std::memcpy(result.v, p, sizeof(result.v));
  return result;
}
inline void store_u8(uint8_t* p, U8x64 a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline U8x64 set_u8(uint8_t x) {
  U8x64 result;
  std::memset(result.v, x, sizeof(result.v));
  return result;
}
inline U8x64 sub(U8x64 a, U8x64 b) {
  for (int i = 0; i < 64; ++i) a.v[i] = static_cast<uint8_t>(a.v[i] - b.v[i]);
  return a;
}
// 32 bytes as 64 codes of four bits: the low nibbles, then the high ones.
inline U8x64 load_nibbles(const uint8_t* p) {
  U8x64 result;
  for (int i = 0; i < 32; ++i) {
    result.v[i] = p[i] & 0x0F;
    result.v[32 + i] = static_cast<uint8_t>(p[i] >> 4);
  }
  return result;
}
// Bytes of 16 rows, each four times: what belongs to a row at its place in a quad of columns.
inline U8x64 repeat_4(const uint8_t* p) {
  U8x64 result;
  for (int i = 0; i < 64; ++i) result.v[i] = p[i / 4];
  return result;
}
// Bytes of 16 rows in the form that multiply_add_codes takes factors in.
inline U8x64 step_factors(const uint8_t* p) { return repeat_4(p); }
// codes * factors + offsets in every byte; products and sums fit a byte.
inline U8x64 multiply_add_codes(U8x64 codes, U8x64 factors, U8x64 offsets) {
  for (int i = 0; i < 64; ++i) {
    codes.v[i] = static_cast<uint8_t>(codes.v[i] * factors.v[i] + offsets.v[i]);
  }
  return codes;
}
// kBits bits of every byte, from bit kFirst on.
template <int kFirst, int kBits>
inline U8x64 bit_field(U8x64 a) {
  for (uint8_t& byte : a.v) byte = static_cast<uint8_t>(byte >> kFirst & ((1 << kBits) - 1));
  return a;
}
// a | b << kShift in every byte; nothing may be shifted out of a byte.
template <int kShift>
inline U8x64 or_shifted(U8x64 a, U8x64 b) {
  for (int i = 0; i < 64; ++i) a.v[i] = static_cast<uint8_t>(a.v[i] | b.v[i] << kShift);
  return a;
}
// The bytes of a table of 16 at the places that codes of four bits name.
inline U8x64 look_up(const uint8_t* table, U8x64 codes) {
  for (uint8_t& byte : codes.v) byte = table[byte];
  return codes;
}
// Byte kByte of every four.
template <int kByte>
inline I32x16 byte_of(U8x64 a) {
  return each_lane<I32x16>([&](int i) { return static_cast<int32_t>(a.v[4 * i + kByte]); });
}
template <int kByte>
inline I32x16 signed_byte_of(U8x64 a) {
  return each_lane<I32x16>(
      [&](int i) { return static_cast<int32_t>(static_cast<int8_t>(a.v[4 * i + kByte])); });
}
template <int kBits>
inline I32x16 dot4(I32x16 acc, U8x64 w, I32x16 x) {
  int8_t bytes[4];
  std::memcpy(bytes, x.v, sizeof(bytes));
  return each_lane<I32x16>([&](int i) {
    int32_t total = 0;
    for (int j = 0; j < 4; ++j) total += static_cast<int32_t>(w.v[4 * i + j]) * bytes[j];
    return wrap(unsigned_of(acc.v[i]) + unsigned_of(total));
  });
}

// Exponents that bf16 numbers name in four bits.
struct ShortExponents {
  uint8_t v[16];
};
inline ShortExponents load_exponents(const uint8_t* p) {
  ShortExponents exponents;
  std::memcpy(exponents.v, p, sizeof(exponents.v));
  return exponents;
}
// The exponents of a quad of pairs, by their names of four bits.
struct QuadExponents {
  I32x16 names;
  ShortExponents exponents;
};
inline QuadExponents quad_exponents(const uint8_t* names, ShortExponents exponents) {
  return {load_i(names), exponents};
}
// The pairs of 16 rows from their signs and mantissas, a byte each.
template <int kPlace>
inline I32x16 widen_bf16(const uint8_t* bytes, const QuadExponents& quad) {
  return each_lane<I32x16>([&](int i) {
    const uint32_t pair = unsigned_of(quad.names.v[i]) >> 4 * kPlace;
    auto number = [&](uint32_t byte, uint32_t name) {
      return (byte & 0x80u) << 8 | uint32_t{quad.exponents.v[name]} << 7 | (byte & 0x7Fu);
    };
    return wrap(number(bytes[2 * i + 1], pair >> 16 & 0xFu) << 16 |
                number(bytes[2 * i], pair & 0xFu));
  });
}

constexpr bool kPrefersShortBf16 = false;
inline F32x16 even_bf16(I32x16 pairs) {
  return each_lane<F32x16>(
      [&](int i) { return float_from_bits(static_cast<uint32_t>(pairs.v[i]) << 16); });
}
inline F32x16 odd_bf16(I32x16 pairs) {
  return each_lane<F32x16>(
      [&](int i) { return float_from_bits(static_cast<uint32_t>(pairs.v[i]) & 0xFFFF0000u); });
}

inline uint16_t bf16_bits_of_fp8(uint8_t code) {
  const int magnitude = code & 0x7F;
  int bits = (magnitude << 4) + (kNormalHigh << 8);
  if (magnitude < 8) bits = kSubnormalHigh[magnitude] << 8 | kSubnormalLow[magnitude];
  return static_cast<uint16_t>(bits | (code & 0x80) << 8);
}
// fp8 codes as bf16: the even bytes' and the odd bytes' numbers.
inline void bf16_from_fp8(U8x64 codes, I32x16& even, I32x16& odd) {
  auto pair = [&](int first, int second) {
    return wrap(uint32_t{bf16_bits_of_fp8(codes.v[second])} << 16 |
                bf16_bits_of_fp8(codes.v[first]));
  };
  for (int i = 0; i < 16; ++i) {
    even.v[i] = pair(4 * i, 4 * i + 2);
    odd.v[i] = pair(4 * i + 1, 4 * i + 3);
  }
}

}  // namespace
}  // namespace paredown
