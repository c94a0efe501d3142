// How keys and values get into pages and out of them again (layout: KvView in kernel_table.h).
#pragma once

#include "kernels/math.h"

namespace paredown {
namespace {

constexpr int64_t kPairElements = 2 * kLanes;  // two dims of 16 keys, or two keys of 16 dims
constexpr int64_t kQuadBytes = 4 * kLanes;     // four dims of 16 keys, or four keys of 16 dims

inline uint8_t* page_head(const KvView& kv, int64_t page, int64_t head) {
  return kv.data + (page * kv.num_kv_heads + head) * kv_head_bytes(kv);
}
inline int64_t key_bytes(KvKind kind, int64_t head_dim) {
  const int64_t num_elements = head_dim * kPageSize;
  if (kind == KvKind::kFp32) return 4 * num_elements;
  if (kind == KvKind::kBf16) return 2 * num_elements;
  return kind == KvKind::kInt4 ? num_elements / 2 : num_elements;
}

// What a page can hold: NaN becomes the lowest number, infinities the largest ones of bf16. Arm's
// max would keep NaN.
inline F32x16 load_finite(const float* p) {
  const F32x16 lowest = set_f(-3.38e38f);
  const F32x16 x = load_f(p);
  return min(select_less(lowest, x, x, lowest), set_f(3.38e38f));
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

#if defined(PAREDOWN_HAS_BF16_PAIRS)
// All slots of a page at once: pairs of slots of a value, and all slots of a pair of dims of a key,
// are one store each.
inline void write_bf16_page(const KvView& kv, uint8_t* head, const float* keys, const float* values,
                            int64_t row_stride) {
  auto* key_place = reinterpret_cast<uint16_t*>(head);
  uint16_t* value_place = key_place + kv.head_dim * kPageSize;
  for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
    F32x16 rows[kPageSize];
    for (int slot = 0; slot < kPageSize; ++slot) {
      rows[slot] = load_finite(keys + slot * row_stride + d);
    }
    store_bf16_columns(key_place + key_index(d, 0, 2), rows);
    for (int slot = 0; slot < kPageSize; slot += 2) {
      const float* value = values + slot * row_stride + d;
      store_bf16_pairs(value_place + value_index(d, slot, 2), load_finite(value),
                       load_finite(value + row_stride));
    }
  }
}
#endif

// How the numbers of a head become codes. Found for the token: the scale, rounded to bf16, and
// 1 / scale; both 0 for a head of zeros. Given: a divisor, as others who use such scales divide.
struct CodeScale {
  uint16_t bits;
  float inverse;
  float divisor;  // 0: none is given
};

constexpr float kMaxFp8 = 448.0f;

// int8: the largest magnitude becomes 127, fp8: 448. int4: the element of largest magnitude becomes
// -8, which uses all 16 codes.
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
  if (magnitude < 1e-30f) return {};
  float scale = extreme / -8.0f;
  if (kind == KvKind::kInt8) scale = magnitude / 127.0f;
  if (kind == KvKind::kFp8) scale = magnitude / kMaxFp8;
  uint16_t lanes[kLanes];
  store_bf16(lanes, set_f(scale));
  float rounded[kLanes];
  store_f(rounded, load_bf16(lanes));
  return {lanes[0], 1.0f / rounded[0], 0.0f};
}

// The nearest e4m3 codes of numbers within its range, ties to even, as signed bytes.
inline I32x16 fp8_from_float(F32x16 x) {
  const F32x16 magnitude = abs(x);
  const I32x16 bits = float_bits(magnitude);
  const I32x16 odd = bit_and(shift_right<20>(bits), set_i(1));
  const I32x16 rounded = shift_right<20>(add(bits, add(odd, set_i(0x7FFFF))));
  const I32x16 normal = add(rounded, set_i(-(120 << 3)));
  // Below 2^-6 codes count 2^-9.
  const I32x16 subnormal = to_int(mul(magnitude, set_f(0x1p9f)));
  const F32x16 code =
      select_less(magnitude, set_f(0x1p-6f), bits_as_float(subnormal), bits_as_float(normal));
  const I32x16 sign = bit_and(shift_right<24>(float_bits(x)), set_i(0x80));
  return add(float_bits(code), mul(sign, set_i(-1)));
}

// 16 codes as signed bytes; what lies beyond the codes becomes the last one.
inline void quantize_lanes(const float* x, const CodeScale& scale, KvKind kind, int8_t* codes) {
  const F32x16 numbers = load_finite(x);
  const F32x16 scaled = scale.divisor == 0.0f ? mul(numbers, set_f(scale.inverse))
                                              : div(numbers, set_f(scale.divisor));
  if (kind == KvKind::kFp8) {
    store_i8(codes, fp8_from_float(min(max(scaled, set_f(-kMaxFp8)), set_f(kMaxFp8))));
    return;
  }
  const float limit = kind == KvKind::kInt8 ? 128.0f : 8.0f;
  store_i8(codes, to_int(min(max(scaled, set_f(-limit)), set_f(limit - 1.0f))));
}

inline uint8_t two_nibbles(int8_t low, int8_t high) {
  return static_cast<uint8_t>((low + 8) | (high + 8) << 4);
}

// 16 codes of a byte each of one slot, from dimension `dim` on.
inline void place_bytes(KvKind kind, uint8_t* keys, uint8_t* values, int64_t dim, int64_t slot,
                        const int8_t* key_codes, const int8_t* value_codes) {
  // Of four numbers fp8 has the middle two the other way round.
  const auto place = [kind](int64_t index) {
    return kind == KvKind::kFp8 ? index / 4 * 4 + index % 2 * 2 + index % 4 / 2 : index;
  };
  for (int i = 0; i < kLanes; ++i) {
    keys[key_index(place(dim + i), slot, 4)] = static_cast<uint8_t>(key_codes[i]);
    values[value_index(dim + i, place(slot), 4)] = static_cast<uint8_t>(value_codes[i]);
  }
}

// 16 codes of 4 bits each, the same. Both nibbles of a byte are of this slot: tokens written by
// different threads share no byte.
inline void place_nibbles(uint8_t* keys, uint8_t* values, int64_t dim, int64_t slot,
                          const int8_t* key_codes, const int8_t* value_codes) {
  for (int i = 0; i < kLanes / 2; ++i) {
    const int low = i / 4 * 8 + i % 4;
    keys[((dim / 8 + i / 4) * kPageSize + slot) * 4 + i % 4] =
        two_nibbles(key_codes[low], key_codes[low + 4]);
    values[dim * (kPageSize / 2) + (slot / 4 * (kLanes / 2) + i) * 4 + slot % 4] =
        two_nibbles(value_codes[i], value_codes[i + 8]);
  }
}

inline void write_codes(const KvView& kv, int64_t head_index, uint8_t* head, int64_t slot,
                        const float* key, const float* value) {
  uint8_t* keys = head;
  uint8_t* values = keys + key_bytes(kv.kind, kv.head_dim);
  CodeScale key_scale{};
  CodeScale value_scale{};
  if (kv.static_scales != nullptr) {
    key_scale.divisor = kv.static_scales[head_index];
    value_scale.divisor = kv.static_scales[kv.num_kv_heads + head_index];
  } else {
    auto* scales = reinterpret_cast<uint16_t*>(values + key_bytes(kv.kind, kv.head_dim));
    key_scale = choose_scale(key, kv.head_dim, kv.kind);
    value_scale = choose_scale(value, kv.head_dim, kv.kind);
    scales[slot] = key_scale.bits;
    scales[kPageSize + slot] = value_scale.bits;
  }
  for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
    int8_t key_codes[kLanes];
    int8_t value_codes[kLanes];
    quantize_lanes(key + d, key_scale, kv.kind, key_codes);
    quantize_lanes(value + d, value_scale, kv.kind, value_codes);
    if (kv.kind == KvKind::kInt4) {
      place_nibbles(keys, values, d, slot, key_codes, value_codes);
    } else {
      place_bytes(kv.kind, keys, values, d, slot, key_codes, value_codes);
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
      write_codes(kv, head, data, slot, head_key, head_value);
    }
  }
}

// All slots of a page, the same: row_stride floats from the key, and the value, of one to the next.
void write_page(const KvView& kv, int32_t page, const float* keys, const float* values,
                int64_t row_stride) {
#if defined(PAREDOWN_HAS_BF16_PAIRS)
  if (kv.kind == KvKind::kBf16) {
    for (int64_t head = 0; head < kv.num_kv_heads; ++head) {
      write_bf16_page(kv, page_head(kv, page, head), keys + head * kv.head_dim,
                      values + head * kv.head_dim, row_stride);
    }
    return;
  }
#endif
  for (int64_t slot = 0; slot < kPageSize; ++slot) {
    write_kv(kv, page, slot, keys + slot * row_stride, values + slot * row_stride);
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

// fp8 keys or values, `size` of them, as those of a bf16 page.
inline void unpack_fp8(int64_t size, const uint8_t* codes, uint16_t* numbers) {
  for (int64_t i = 0; i < size; i += kQuadBytes) {
    I32x16 first;
    I32x16 second;
    bf16_from_fp8(load_u8(codes + i), first, second);
    store_i(numbers + i, first);
    store_i(numbers + i + kPairElements, second);
  }
}

}  // namespace
}  // namespace paredown
