// How keys and values get into pages and out of them again (layout: KvView in kernels.h).
#pragma once

#include "math.h"

namespace paredown {
namespace {

constexpr int64_t kPairElements = 2 * kLanes;  // two dims of 16 keys, or two keys of 16 dims
constexpr int64_t kQuadBytes = 4 * kLanes;     // four dims of 16 keys, or four keys of 16 dims

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

// Where element (dim, slot) of a page's keys and of its values lies, `group` neighbours together.
inline int64_t key_index(int64_t dim, int64_t slot, int64_t group) {
  return (dim / group * kPageSize + slot) * group + dim % group;
}
inline int64_t value_index(int64_t dim, int64_t slot, int64_t group) {
  const int64_t row = dim / kLanes * (kPageSize / group) + slot / group;
  return (row * kLanes + dim % kLanes) * group + slot % group;
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
    for (int i = 0; i < kLanes; ++i) keys[key_index(d + i, slot, 2)] = lanes[i];
    store_bf16(lanes, load_finite(value + d));
    for (int i = 0; i < kLanes; ++i) values[value_index(d + i, slot, 2)] = lanes[i];
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

// 16 signed codes.
inline void quantize_lanes(const float* x, float inverse, int bits, int8_t* codes) {
  const float limit = bits == 8 ? 128.0f : 8.0f;
  F32x16 scaled = mul(load_finite(x), set_f(inverse));
  scaled = min(max(scaled, set_f(-limit)), set_f(limit - 1.0f));
  store_i8(codes, to_int(scaled));
}

inline uint8_t two_nibbles(int8_t low, int8_t high) {
  return static_cast<uint8_t>((low + 8) | (high + 8) << 4);
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
    int8_t k[kLanes];
    int8_t v[kLanes];
    quantize_lanes(key + d, key_scale.inverse, bits, k);
    quantize_lanes(value + d, value_scale.inverse, bits, v);
    if (bits == 8) {
      for (int i = 0; i < kLanes; ++i) {
        keys[key_index(d + i, slot, 4)] = static_cast<uint8_t>(k[i]);
        values[value_index(d + i, slot, 4)] = static_cast<uint8_t>(v[i]);
      }
      continue;
    }
    // Both nibbles of a byte are of this slot: tokens written by different threads share no byte.
    for (int i = 0; i < kLanes / 2; ++i) {
      const int dim = i / 4 * 8 + i % 4;
      keys[((d / 8 + i / 4) * kPageSize + slot) * 4 + i % 4] = two_nibbles(k[dim], k[dim + 4]);
      values[d * (kPageSize / 2) + (slot / 4 * (kLanes / 2) + i) * 4 + slot % 4] =
          two_nibbles(v[i], v[i + 8]);
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

// int4 keys of a page's head as the codes of int8 pages.
inline void unpack_keys(int64_t head_dim, const uint8_t* nibbles, uint8_t* codes) {
  const U8x64 zero = set_u8(8);
  for (int64_t i = 0; i < head_dim / 8; ++i, nibbles += kQuadBytes, codes += 2 * kQuadBytes) {
    const U8x64 both = load_u8(nibbles);
    store_u8(codes, sub(bit_field<0, 4>(both), zero));
    store_u8(codes + kQuadBytes, sub(bit_field<4, 4>(both), zero));
  }
}

// 16 dims of four int4 values, the same.
inline U8x64 unpack_values(const uint8_t* nibbles) { return sub(load_nibbles(nibbles), set_u8(8)); }

// The keys and values of one kv head of an int4 page as int8 codes.
inline void unpack_page(int64_t head_dim, const uint8_t* head, uint8_t* keys, uint8_t* values) {
  const int64_t size = head_dim * kPageSize;
  unpack_keys(head_dim, head, keys);
  for (int64_t i = 0; i < size; i += kQuadBytes) {
    store_u8(values + i, unpack_values(head + size / 2 + i / 2));
  }
}

}  // namespace
}  // namespace paredown
