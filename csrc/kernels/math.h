// Elementwise functions on 16 lanes. Include after a simd header.
#pragma once

#include "kernels/kernel_table.h"

namespace paredown {
namespace {

// What sets do without instructions of their own for it.
#if !defined(PAREDOWN_HAS_ADD_PRODUCT)
// sum + a * b, and sum - whole.
inline F32x16 add_product(F32x16 sum, F32x16 a, F32x16 b) { return fma(a, b, sum); }
inline F32x16 take_off(F32x16 sum, F32x16 whole) { return sub(sum, whole); }
#endif
#if !defined(PAREDOWN_HAS_FOLD_EACH)
// What the lanes of each of 16 registers come to.
inline F32x16 max_of_each(const F32x16 (&rows)[kLanes]) {
  float largest[kLanes];
  for (int i = 0; i < kLanes; ++i) largest[i] = max_lanes(rows[i]);
  return load_f(largest);
}
inline I32x16 max_of_each(const I32x16 (&rows)[kLanes]) {
  int32_t largest[kLanes];
  for (int i = 0; i < kLanes; ++i) largest[i] = max_lanes(rows[i]);
  return load_i(largest);
}
inline I32x16 sum_of_each(const I32x16 (&rows)[kLanes]) {
  int32_t sums[kLanes];
  for (int i = 0; i < kLanes; ++i) sums[i] = sum_lanes(rows[i]);
  return load_i(sums);
}
#endif
#if defined(PAREDOWN_HAS_BF16_DOT)
constexpr bool kHasBf16Dot = true;
#else
constexpr bool kHasBf16Dot = false;
inline F32x16 dot_bf16(F32x16 acc, I32x16, uint32_t) { return acc; }
#endif

// e^x to about 2 ulp (Cephes expf: range reduction by ln 2 in two parts, degree-5 polynomial).
// x is clamped to [-87, 88].
inline F32x16 exp(F32x16 x) {
  x = max(set_f(-87.0f), min(set_f(88.0f), x));
  const I32x16 n = to_int(mul(x, set_f(1.44269504088896341f)));
  const F32x16 whole = to_float(n);
  F32x16 r = fma(whole, set_f(-0.693359375f), x);
  r = fma(whole, set_f(2.12194440e-4f), r);
  F32x16 poly = set_f(1.9875691500e-4f);
  poly = fma(poly, r, set_f(1.3981999507e-3f));
  poly = fma(poly, r, set_f(8.3334519073e-3f));
  poly = fma(poly, r, set_f(4.1665795894e-2f));
  poly = fma(poly, r, set_f(1.6666665459e-1f));
  poly = fma(poly, r, set_f(5.0000001201e-1f));
  const F32x16 result = add(fma(poly, mul(r, r), r), set_f(1.0f));
  return scale_by_power(result, n);
}

#if !defined(PAREDOWN_HAS_EXP2)
// 2^x for x <= 0 to about 2 ulp, exactly 1 at 0 and exactly 0 below -125 (minimax polynomial of
// degree 5 on [-0.5, 0.5] with its constant term held at 1).
inline F32x16 exp2_or_zero(F32x16 x) {
  const I32x16 n = to_int(x);
  const F32x16 r = sub(x, to_float(n));
  F32x16 poly = set_f(0x1.5bba0ep-10f);
  poly = fma(poly, r, set_f(0x1.3cea88p-7f));
  poly = fma(poly, r, set_f(0x1.c6b752p-5f));
  poly = fma(poly, r, set_f(0x1.ebf9bcp-3f));
  poly = fma(poly, r, set_f(0x1.62e42ap-1f));
  poly = fma(poly, r, set_f(1.0f));
  return select_less(x, set_f(-125.0f), zero_f(), scale_by_power(poly, n));
}
#endif

inline F32x16 sigmoid(F32x16 x) {
  return div(set_f(1.0f), add(set_f(1.0f), exp(sub(zero_f(), x))));
}

inline F32x16 tanh(F32x16 x) {
  const F32x16 doubled = exp(mul(set_f(2.0f), max(set_f(-10.0f), min(set_f(10.0f), x))));
  return sub(set_f(1.0f), div(set_f(2.0f), add(doubled, set_f(1.0f))));
}

// cap * tanh(x / cap) to a few ulp of the cap, and `inverse` is 1 / cap.
inline F32x16 soft_capped(F32x16 x, F32x16 cap, F32x16 inverse) {
  return mul(cap, tanh(mul(x, inverse)));
}

// In place; size: any.
void soft_cap(float* numbers, int64_t size, float cap) {
  const F32x16 caps = set_f(cap);
  const F32x16 inverse = set_f(1.0f / cap);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    store_f(numbers + i, soft_capped(load_f(numbers + i), caps, inverse));
  }
  float rest[kLanes] = {};
  for (int64_t j = i; j < size; ++j) rest[j - i] = numbers[j];
  store_f(rest, soft_capped(load_f(rest), caps, inverse));
  for (int64_t j = i; j < size; ++j) numbers[j] = rest[j - i];
}

// Abramowitz and Stegun 7.1.26, absolute error below 1.5e-7.
inline F32x16 erf(F32x16 x) {
  const F32x16 magnitude = abs(x);
  const F32x16 t = div(set_f(1.0f), fma(set_f(0.3275911f), magnitude, set_f(1.0f)));
  F32x16 poly = set_f(1.061405429f);
  poly = fma(poly, t, set_f(-1.453152027f));
  poly = fma(poly, t, set_f(1.421413741f));
  poly = fma(poly, t, set_f(-0.284496736f));
  poly = fma(poly, t, set_f(0.254829592f));
  const F32x16 decay = exp(sub(zero_f(), mul(x, x)));
  const F32x16 positive = sub(set_f(1.0f), mul(mul(poly, t), decay));
  return select_less(x, zero_f(), sub(zero_f(), positive), positive);
}

template <Activation kActivation>
inline F32x16 activation(F32x16 x) {
  if constexpr (kActivation == Activation::kSilu) return mul(x, sigmoid(x));
  if constexpr (kActivation == Activation::kRelu) return max(x, zero_f());
  if constexpr (kActivation == Activation::kTanh) return tanh(x);
  if constexpr (kActivation == Activation::kSigmoid) return sigmoid(x);
  if constexpr (kActivation == Activation::kGelu) {
    const F32x16 half = mul(set_f(0.5f), x);
    return fma(half, erf(mul(x, set_f(0.70710678118654752f))), half);
  }
  if constexpr (kActivation == Activation::kGeluTanh) {
    const F32x16 cubic = fma(mul(mul(x, x), x), set_f(0.044715f), x);
    const F32x16 half = mul(set_f(0.5f), x);
    return fma(half, tanh(mul(cubic, set_f(0.79788456080286536f))), half);
  }
}

template <Activation kActivation>
void activate_with(const float* gate, const float* up, float* output, int64_t size) {
  for (int64_t i = 0; i < size; i += kLanes) {
    F32x16 y = activation<kActivation>(load_f(gate + i));
    if (up != nullptr) y = mul(y, load_f(up + i));
    store_f(output + i, y);
  }
}

// output = activation(gate) * up; without `up` just activation(gate). size: multiple of 16.
void activate(Activation kind, const float* gate, const float* up, float* output, int64_t size) {
  switch (kind) {
    case Activation::kSilu:
      return activate_with<Activation::kSilu>(gate, up, output, size);
    case Activation::kGelu:
      return activate_with<Activation::kGelu>(gate, up, output, size);
    case Activation::kGeluTanh:
      return activate_with<Activation::kGeluTanh>(gate, up, output, size);
    case Activation::kRelu:
      return activate_with<Activation::kRelu>(gate, up, output, size);
    case Activation::kTanh:
      return activate_with<Activation::kTanh>(gate, up, output, size);
    case Activation::kSigmoid:
      return activate_with<Activation::kSigmoid>(gate, up, output, size);
  }
}

template <Activation kActivation>
void activate_rows_with(float* rows, int64_t row_stride, int64_t num_rows, int64_t size) {
  for (int64_t r = 0; r < num_rows; ++r) {
    float* row = rows + r * row_stride;
    for (int64_t i = 0; i < size; i += kLanes) {
      store_f(row + i, activation<kActivation>(load_f(row + i)));
    }
  }
}

// The first numbers of some rows in place. size: multiple of 16.
void activate_rows(Activation kind, float* rows, int64_t row_stride, int64_t num_rows,
                   int64_t size) {
  switch (kind) {
    case Activation::kSilu:
      return activate_rows_with<Activation::kSilu>(rows, row_stride, num_rows, size);
    case Activation::kGelu:
      return activate_rows_with<Activation::kGelu>(rows, row_stride, num_rows, size);
    case Activation::kGeluTanh:
      return activate_rows_with<Activation::kGeluTanh>(rows, row_stride, num_rows, size);
    case Activation::kRelu:
      return activate_rows_with<Activation::kRelu>(rows, row_stride, num_rows, size);
    case Activation::kTanh:
      return activate_rows_with<Activation::kTanh>(rows, row_stride, num_rows, size);
    case Activation::kSigmoid:
      return activate_rows_with<Activation::kSigmoid>(rows, row_stride, num_rows, size);
  }
}

inline float square_root(float x) { return __builtin_sqrtf(x); }

// RMSNorm (arXiv 1910.07467) or LayerNorm (arXiv 1607.06450) of one row; size: multiple of 16.
void norm(const NormView& view, const float* input, float* output, int64_t size) {
  const float count = static_cast<float>(size);
  float mean = 0.0f;
  if (view.kind == NormKind::kLayer) {
    F32x16 total = zero_f();
    for (int64_t i = 0; i < size; i += kLanes) total = add(total, load_f(input + i));
    mean = sum_lanes(total) / count;
  }
  F32x16 squares = zero_f();
  for (int64_t i = 0; i < size; i += kLanes) {
    const F32x16 centred = sub(load_f(input + i), set_f(mean));
    squares = fma(centred, centred, squares);
  }
  const F32x16 scale = set_f(1.0f / square_root(sum_lanes(squares) / count + view.eps));
  for (int64_t i = 0; i < size; i += kLanes) {
    F32x16 y = mul(sub(load_f(input + i), set_f(mean)), scale);
    y = mul(y, load_f(view.weight + i));
    if (view.bias != nullptr) y = add(y, load_f(view.bias + i));
    store_f(output + i, y);
  }
}

struct RotatedLanes {
  F32x16 first;
  F32x16 second;
};
inline RotatedLanes rotated(const float* head, const float* cos, const float* sin, int64_t half) {
  const F32x16 a = load_f(head);
  const F32x16 b = load_f(head + half);
  const F32x16 c = load_f(cos);
  const F32x16 s = load_f(sin);
  return {sub(mul(a, c), mul(b, s)), add(mul(b, c), mul(a, s))};
}

// Rotary positions of one head, rotate-half form (arXiv 2104.09864): pairs (d, d + half).
inline void rotate(float* head, const float* cos, const float* sin, int64_t half) {
  auto place = [head, half](int64_t i, const RotatedLanes& lanes) {
    store_f(head + i, lanes.first);
    store_f(head + half + i, lanes.second);
  };
  if (half < kLanes) {
    for (int64_t i = 0; i < half; ++i) {
      const float a = head[i];
      const float b = head[half + i];
      head[i] = a * cos[i] - b * sin[i];
      head[half + i] = b * cos[i] + a * sin[i];
    }
    return;
  }
  // The last lanes may lie among those before them: turned before these are.
  const int64_t last = half - kLanes;
  const RotatedLanes end = rotated(head + last, cos + last, sin + last, half);
  for (int64_t i = 0; i < last; i += kLanes) place(i, rotated(head + i, cos + i, sin + i, half));
  place(last, end);
}

// Norm, rotary positions and scale of each head while it is in the nearest cache.
void prepare_heads(const HeadsView& view, float* heads, int64_t num_heads) {
  for (float* head = heads; head < heads + num_heads * view.head_dim; head += view.head_dim) {
    if (view.norm != nullptr) norm(*view.norm, head, head, view.head_dim);
    if (view.cos != nullptr) rotate(head, view.cos, view.sin, view.num_turned);
    if (view.scale == 1.0f) continue;
    for (int64_t i = 0; i < view.head_dim; i += kLanes) {
      store_f(head + i, mul(load_f(head + i), set_f(view.scale)));
    }
  }
}

// One row of an embedding table as float; size: multiple of 16.
void embed(WeightKind kind, const void* row, float* output, int64_t size, bool accumulate) {
  for (int64_t i = 0; i < size; i += kLanes) {
    F32x16 x;
    if (kind == WeightKind::kFp32) {
      x = load_f(static_cast<const float*>(row) + i);
    } else if (kind == WeightKind::kFp16) {
      x = load_fp16(static_cast<const uint16_t*>(row) + i);
    } else {
      x = load_bf16(static_cast<const uint16_t*>(row) + i);
    }
    store_f(output + i, accumulate ? add(load_f(output + i), x) : x);
  }
}

}  // namespace
}  // namespace paredown
