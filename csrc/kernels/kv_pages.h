// How keys and values get into pages and out of them again (layout: KvView in kernels.h).
#pragma once

#include "math.h"

namespace paredown {
namespace {

constexpr int64_t kPairElements = 2 * kLanes;  // two dims of 16 keys, or two keys of 16 dims

inline uint8_t* page_head(const KvView& kv, int64_t page, int64_t head) {
  return kv.data + (page * kv.num_kv_heads + head) * kv_head_bytes(kv.kind, kv.head_dim);
}
inline int64_t key_bytes(KvKind kind, int64_t head_dim) {
  const int64_t num_elements = head_dim * kPageSize;
  if (kind == KvKind::kFp32) return 4 * num_elements;
  if (kind == KvKind::kBf16) return 2 * num_elements;
  return kind == KvKind::kInt8 ? num_elements : num_elements / 2;
}

// What a page can hold: NaN becomes the lowest number, infinities the largest ones of bf16.
inline F32x16 load_finite(const float* p) {
  const F32x16 limit = set_f(3.38e38f);
  return min(max(load_f(p), sub(zero_f(), limit)), limit);
}

// Where element (dim, slot) of a page's keys and of its values lies.
inline int64_t key_index(int64_t dim, int64_t slot) {
  return dim / 2 * kPairElements + slot * 2 + dim % 2;
}
inline int64_t value_index(int64_t dim, int64_t slot) {
  return (dim / kLanes * (kPageSize / 2) + slot / 2) * kPairElements + dim % kLanes * 2 + slot % 2;
}

inline void write_fp32(const KvView& kv, uint8_t* head, int64_t slot, const float* key,
                       const float* value) {
  auto* keys = reinterpret_cast<float*>(head);
  float* values = keys + kv.head_dim * kPageSize;
  for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
    float lanes[kLanes];
    store_f(lanes, load_finite(key + d));
    for (int i = 0; i < kLanes; ++i) keys[(d + i) * kPageSize + slot] = lanes[i];
    store_f(values + d * kPageSize + slot * kLanes, load_finite(value + d));
  }
}

inline void write_bf16(const KvView& kv, uint8_t* head, int64_t slot, const float* key,
                       const float* value) {
  auto* keys = reinterpret_cast<uint16_t*>(head);
  uint16_t* values = keys + kv.head_dim * kPageSize;
  for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
    uint16_t lanes[kLanes];
    store_bf16(lanes, load_finite(key + d));
    for (int i = 0; i < kLanes; ++i) keys[key_index(d + i, slot)] = lanes[i];
    store_bf16(lanes, load_finite(value + d));
    for (int i = 0; i < kLanes; ++i) values[value_index(d + i, slot)] = lanes[i];
  }
}

// The scale of a head's codes, rounded to bf16, and 1 / scale; both 0 for a head of zeros.
struct CodeScale {
  uint16_t bits;
  float inverse;
};

// int8: the largest magnitude becomes 127. int4: the element of largest magnitude becomes -8, which
// uses all 16 codes.
inline CodeScale choose_scale(const float* x, int64_t size, KvKind kind) {
  F32x16 largest = set_f(-3.4e38f);
  F32x16 smallest = set_f(3.4e38f);
  for (int64_t i = 0; i < size; i += kLanes) {
    largest = max(largest, load_finite(x + i));
    smallest = min(smallest, load_finite(x + i));
  }
  const float top = max_lanes(largest);
  const float bottom = -max_lanes(sub(zero_f(), smallest));
  const float extreme = top > -bottom ? top : bottom;
  const float magnitude = extreme < 0.0f ? -extreme : extreme;
  // Below this the inverse of the scale would overflow; such a head counts as zeros.
  if (magnitude < 1e-30f) return {0, 0.0f};
  const float scale = kind == KvKind::kInt8 ? magnitude / 127.0f : extreme / -8.0f;
  uint16_t lanes[kLanes];
  store_bf16(lanes, set_f(scale));
  float rounded[kLanes];
  store_f(rounded, load_bf16(lanes));
  return {lanes[0], 1.0f / rounded[0]};
}

// 16 codes, shifted to be unsigned.
inline void quantize_lanes(const float* x, float inverse, int bits, uint8_t* codes) {
  const float zero = bits == 8 ? 128.0f : 8.0f;
  F32x16 scaled = mul(load_finite(x), set_f(inverse));
  scaled = min(max(scaled, set_f(-zero)), set_f(zero - 1.0f));
  int8_t lanes[kLanes];
  store_i8(lanes, to_int(scaled));
  for (int i = 0; i < kLanes; ++i) {
    codes[i] = static_cast<uint8_t>(lanes[i] + static_cast<int>(zero));
  }
}

inline void write_codes(const KvView& kv, uint8_t* head, int64_t slot, const float* key,
                        const float* value) {
  uint8_t* keys = head;
  uint8_t* values = keys + key_bytes(kv.kind, kv.head_dim);
  auto* scales = reinterpret_cast<uint16_t*>(values + key_bytes(kv.kind, kv.head_dim));
  const int bits = kv.kind == KvKind::kInt8 ? 8 : 4;
  const CodeScale key_scale = choose_scale(key, kv.head_dim, kv.kind);
  const CodeScale value_scale = choose_scale(value, kv.head_dim, kv.kind);
  scales[slot] = key_scale.bits;
  scales[kPageSize + slot] = value_scale.bits;
  for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
    uint8_t k[kLanes];
    uint8_t v[kLanes];
    quantize_lanes(key + d, key_scale.inverse, bits, k);
    quantize_lanes(value + d, value_scale.inverse, bits, v);
    if (bits == 8) {
      for (int i = 0; i < kLanes; ++i) keys[key_index(d + i, slot)] = k[i];
      for (int i = 0; i < kLanes; ++i) values[value_index(d + i, slot)] = v[i];
      continue;
    }
    // Both nibbles of a byte are of this slot: tokens written by different threads share no byte.
    for (int i = 0; i < kLanes / 2; ++i) {
      const int dim = i / 2 * 4 + i % 2;
      keys[d / 4 * kPairElements + i / 2 * kPairElements + slot * 2 + i % 2] =
          static_cast<uint8_t>(k[dim] | k[dim + 2] << 4);
      values[d * (kPageSize / 2) + slot / 2 * kLanes + i * 2 + slot % 2] =
          static_cast<uint8_t>(v[i] | v[i + 8] << 4);
    }
  }
}

void write_kv(const KvView& kv, int32_t page, int64_t slot, const float* key, const float* value) {
  for (int64_t head = 0; head < kv.num_kv_heads; ++head) {
    uint8_t* data = page_head(kv, page, head);
    const float* head_key = key + head * kv.head_dim;
    const float* head_value = value + head * kv.head_dim;
    if (kv.kind == KvKind::kFp32) {
      write_fp32(kv, data, slot, head_key, head_value);
    } else if (kv.kind == KvKind::kBf16) {
      write_bf16(kv, data, slot, head_key, head_value);
    } else {
      write_codes(kv, data, slot, head_key, head_value);
    }
  }
}

// Codes as bf16 numbers, exactly; one output per code, in order. count: multiple of 16.
inline void unpack_int8(const uint8_t* codes, int64_t count, uint16_t* output) {
  for (int64_t i = 0; i < count; i += kLanes) {
    store_bf16(output + i, sub(to_float(load_u8_as_i32(codes + i)), set_f(128.0f)));
  }
}

// 16 bytes: the low nibbles to `low`, the high ones to `high`.
inline void unpack_nibbles(const uint8_t* bytes, uint16_t* low, uint16_t* high) {
  const F32x16 both = to_float(load_u8_as_i32(bytes));
  // (16 h + l - 7.5) / 16 is within a half of h.
  const F32x16 upper = to_float(to_int(fma(both, set_f(0.0625f), set_f(-0.46875f))));
  store_bf16(low, sub(fma(upper, set_f(-16.0f), both), set_f(8.0f)));
  store_bf16(high, sub(upper, set_f(8.0f)));
}

// The keys of a page's head as bf16 in the element order of bf16 pages.
inline void unpack_keys(KvKind kind, int64_t head_dim, const uint8_t* codes, uint16_t* output) {
  if (kind == KvKind::kInt8) return unpack_int8(codes, head_dim * kPageSize, output);
  for (int64_t i = 0; i < head_dim / 4; ++i) {
    for (int64_t half = 0; half < kPairElements; half += kLanes) {
      uint16_t* low = output + 2 * i * kPairElements + half;
      unpack_nibbles(codes + i * kPairElements + half, low, low + kPairElements);
    }
  }
}

// 16 dims of the values of a page's head: [8 key pairs][16 dims][2 keys].
inline void unpack_values(KvKind kind, const uint8_t* codes, uint16_t* output) {
  if (kind == KvKind::kInt8) return unpack_int8(codes, kPageSize * kLanes, output);
  for (int64_t pair = 0; pair < kPageSize / 2; ++pair) {
    uint16_t* low = output + pair * kPairElements;
    unpack_nibbles(codes + pair * kLanes, low, low + kLanes);
  }
}

}  // namespace
}  // namespace paredown
