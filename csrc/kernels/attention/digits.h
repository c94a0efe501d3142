// Attention products of int8 and int4 pages on byte dot products. Queries and weights are cut into
// three signed digits of a byte each, whose products with codes are exact sums of integers: nothing
// is unpacked to a wider format, and no order of summation can be told from the result.
#pragma once

#include "kernels/attention/scratch.h"

namespace paredown {
namespace {

constexpr int kDigits = 3;

// A number x of a row is scale * (65536 d0 + 256 d1 + d2), where scale is a power of two such that
// 22 bits and a sign are left of the largest number of a row.
struct DigitScale {
  float up;  // 1 / scale
  float scale;
};

// Numbers below 2^-105 count as zeros from 2^-127 on.
inline DigitScale digit_scale(float largest) {
  if (!(largest > 0x1p-105f)) largest = 0x1p-105f;
  uint32_t exponent;
  __builtin_memcpy(&exponent, &largest, sizeof(exponent));
  exponent &= 0x7F800000u;
  const uint32_t up = (275u << 23) - exponent;
  const uint32_t down = exponent - (21u << 23);
  DigitScale result;
  __builtin_memcpy(&result.up, &up, sizeof(up));
  __builtin_memcpy(&result.scale, &down, sizeof(down));
  return result;
}

// Each byte of a number plus this, less 128, is a signed digit.
constexpr int32_t kDigitBias = 0x808080;

// The digits of 16 numbers in units of the last, digit i at place + i * stride; adds them up by
// lane.
inline void store_digits(F32x16 x, int8_t* place, int64_t stride, I32x16 (&sums)[kDigits]) {
  const I32x16 biased = add(to_int(x), set_i(kDigitBias));
  const I32x16 low = set_i(0xFF);
  const I32x16 zero = set_i(-128);
  const I32x16 digits[kDigits] = {add(shift_right<16>(biased), zero),
                                  add(bit_and(shift_right<8>(biased), low), zero),
                                  add(bit_and(biased, low), zero)};
  for (int i = 0; i < kDigits; ++i) {
    store_i8(place + i * stride, digits[i]);
    sums[i] = add(sums[i], digits[i]);
  }
}

// The number that sums of products with digits make up, before its scale.
inline F32x16 join_digits(I32x16 first, I32x16 second, I32x16 third) {
  const F32x16 lower = fma(to_float(second), set_f(256.0f), to_float(third));
  return fma(to_float(first), set_f(65536.0f), lower);
}

template <KvKind kKind>
class AttentionDigits {
 public:
  static constexpr bool kScaled = true;
  static constexpr bool kCopies = false;  // values of a block, when its pages are loaded
  static constexpr bool kDigital = true;

  AttentionDigits(const KvView& kv, const AttentionScratch& scratch, int64_t)
      : head_dim_(kv.head_dim), scratch_(scratch) {}

  static void keep_awake() {}

  void load_query(int64_t row, const float* query, float factor) {
    F32x16 largest = zero_f();
    for (int64_t d = 0; d < head_dim_; d += kLanes) largest = max(largest, abs(load_f(query + d)));
    const DigitScale scale = digit_scale(max_lanes(largest));
    I32x16 sums[kDigits] = {zero_i(), zero_i(), zero_i()};
    for (int64_t d = 0; d < head_dim_; d += kLanes) {
      store_digits(mul(load_f(query + d), set_f(scale.up)), query_digits(row) + d, head_dim_, sums);
    }
    scratch_.query_scales[row] = scale.scale * factor;
    store_sums(sums, scratch_.query_sums + row * kDigits);
  }

  void load_page(int page, const uint8_t* head) {
    const int64_t size = head_dim_ * kPageSize;
    keys_[page] = head;
    values_[page] = head + size;
    if constexpr (kKind == KvKind::kInt4) {
      auto* keys = reinterpret_cast<uint8_t*>(scratch_.keys) + page * size;
      auto* values = reinterpret_cast<uint8_t*>(scratch_.values) + page * size;
      unpack_page(head_dim_, head, keys, values);
      keys_[page] = keys;
      values_[page] = values;
    }
  }

  template <class Fetch>
  void score(const TileWork& work, Fetch&& fetch) {
    for_row_groups(work.row_begin, work.row_end, [&]<int kRows>(int row) {
      for (int page = work.page_begin; page < work.page_end; ++page) {
        if (page % 2 == 0) fetch();
        score_page<kRows>(work.tile * kTileRows + row, keys_[page],
                          row_scores(row) + page * kPageSize);
      }
    });
  }

  F32x16 load_score(const TileWork&, int row, int page) const {
    return load_f(row_scores(row) + page * kPageSize);
  }

  void begin_weights(int row, float scale) {
    scratch_.weight_scales[row] = scale;
    for (I32x16& sum : weight_sums_) sum = zero_i();
  }
  // In units of their last digit.
  void store_weights(int row, int page, const F32x16 (&weights)[kWeightPages]) {
    int8_t* place = weight_digits(row) + page * kPageSize;
    for (int i = 0; i < kWeightPages; ++i) {
      store_digits(weights[i], place + i * kLanes, kBlockKeys, weight_sums_);
    }
  }
  void end_weights(int row) { store_sums(weight_sums_, scratch_.weight_sums + row * kDigits); }

  void weigh_values(const TileWork& work) {
    for_row_groups(work.row_begin, work.row_end, [&]<int kRows>(int row) {
      for (int64_t d = 0; d < head_dim_; d += kLanes) weigh_dims<kRows>(work, row, d);
    });
  }

  F32x16 load_product(int row, int64_t d) const {
    return load_f(scratch_.products + row * head_dim_ + d);
  }

 private:
  // Rows whose sums of three digits fit half the registers: with more, GCC 12 keeps them in memory.
  static constexpr int kRowGroup = kAttentionRows / 2;

  int8_t* query_digits(int64_t row) const {
    return reinterpret_cast<int8_t*>(scratch_.queries) + row * kDigits * head_dim_;
  }
  int8_t* weight_digits(int row) const {
    return reinterpret_cast<int8_t*>(scratch_.weights) + row * kDigits * kBlockKeys;
  }
  float* row_scores(int row) const { return scratch_.scores + row * kBlockKeys; }

  // dot4 takes unsigned codes, 128 too large: what that adds to a sum is subtracted beforehand.
  static void store_sums(const I32x16 (&sums)[kDigits], int32_t* place) {
    for (int i = 0; i < kDigits; ++i) place[i] = -128 * sum_lanes(sums[i]);
  }

  template <class Body>
  static void for_row_groups(int begin, int end, Body&& body) {
    int row = begin;
    for (; row + kRowGroup <= end; row += kRowGroup) body.template operator()<kRowGroup>(row);
    for (; row < end; ++row) body.template operator()<1>(row);
  }

  template <int kRows>
  static void begin_sums(const int32_t* corrections, I32x16 (&sums)[kRows][kDigits]) {
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kDigits; ++i) sums[r][i] = set_i(corrections[r * kDigits + i]);
    }
  }

  // sums[r][i] += codes (four by 16) times four of digit i of row r.
  template <int kRows>
  static void add_quad(const uint8_t* codes, const int8_t* digits, int64_t row_stride,
                       int64_t digit_stride, I32x16 (&sums)[kRows][kDigits]) {
    const U8x64 unsigned_codes = sub(load_u8(codes), set_u8(128));
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kDigits; ++i) {
        int32_t four;
        __builtin_memcpy(&four, digits + r * row_stride + i * digit_stride, sizeof(four));
        sums[r][i] = dot4<8>(sums[r][i], unsigned_codes, set_i(four));
      }
    }
  }

  template <int kRows>
  void score_page(int64_t row, const uint8_t* keys, float* scores) {
    I32x16 sums[kRows][kDigits];
    begin_sums<kRows>(scratch_.query_sums + row * kDigits, sums);
    const int8_t* digits = query_digits(row);
    for (int64_t d = 0; d < head_dim_; d += 4) {
      add_quad<kRows>(keys + d * kPageSize, digits + d, kDigits * head_dim_, head_dim_, sums);
    }
    const float* scales = scratch_.query_scales + row;
    for (int r = 0; r < kRows; ++r) {
      const F32x16 score = join_digits(sums[r][0], sums[r][1], sums[r][2]);
      store_f(scores + r * kBlockKeys, mul(score, set_f(scales[r])));
    }
  }

  template <int kRows>
  void weigh_dims(const TileWork& work, int row, int64_t d) {
    I32x16 sums[kRows][kDigits];
    begin_sums<kRows>(scratch_.weight_sums + row * kDigits, sums);
    const int8_t* digits = weight_digits(row);
    for (int page = work.page_begin; page < work.page_end; ++page) {
      const uint8_t* values = values_[page] + d * kPageSize;
      for (int key = 0; key < kPageSize; key += 4) {
        add_quad<kRows>(values + key * kLanes, digits + page * kPageSize + key,
                        kDigits * kBlockKeys, kBlockKeys, sums);
      }
    }
    float* products = scratch_.products + row * head_dim_ + d;
    for (int r = 0; r < kRows; ++r) {
      const F32x16 product = join_digits(sums[r][0], sums[r][1], sums[r][2]);
      store_f(products + r * head_dim_, mul(product, set_f(scratch_.weight_scales[row + r])));
    }
  }

  int64_t head_dim_;
  const AttentionScratch& scratch_;
  I32x16 weight_sums_[kDigits];
  const uint8_t* keys_[kBlockPages] = {};
  const uint8_t* values_[kBlockPages] = {};
};

}  // namespace
}  // namespace paredown
