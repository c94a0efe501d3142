// Attention products on 16 float lanes: keys are lanes for the scores, head dimensions for the
// weighted sum. Any page format, any instruction set.
#pragma once

#include "attention_scratch.h"

namespace paredown {
namespace {

// Two neighbours of 16 lanes each, as float: two dims of 16 keys, or two keys of 16 dims.
struct FloatPairs {
  using Element = float;
  static F32x16 first(const float* p) { return load_f(p); }
  static F32x16 second(const float* p) { return load_f(p + kLanes); }
};
struct Bf16Pairs {
  using Element = uint16_t;
  static F32x16 first(const uint16_t* p) { return even_bf16(load_i(p)); }
  static F32x16 second(const uint16_t* p) { return odd_bf16(load_i(p)); }
};

// sums[r][v] += over pairs of factors[r][2 i] * first(pairs[v][i]) + the same of the second.
template <class Pairs, int kRows, int kVectors>
inline void multiply_pairs(const float* factors, int64_t stride,
                           const typename Pairs::Element* const* pairs, int64_t num_pairs,
                           F32x16 (&sums)[kRows][kVectors]) {
  for (int64_t i = 0; i < num_pairs; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      const F32x16 first = Pairs::first(pairs[v] + i * kPairElements);
      const F32x16 second = Pairs::second(pairs[v] + i * kPairElements);
      for (int r = 0; r < kRows; ++r) {
        const float* factor = factors + r * stride + 2 * i;
        sums[r][v] = fma(set_f(factor[0]), first, sums[r][v]);
        sums[r][v] = fma(set_f(factor[1]), second, sums[r][v]);
      }
    }
  }
}

template <KvKind kKind, class Pairs>
class AttentionLanes {
 public:
  static constexpr bool kScaled = kKind == KvKind::kInt8 || kKind == KvKind::kInt4;
  static constexpr int kPageStep = 1;  // pages that go together
  using Element = typename Pairs::Element;

  AttentionLanes(const KvView& kv, const AttentionScratch& scratch)
      : head_dim_(kv.head_dim), scratch_(scratch) {}

  void load_query(int64_t row, const float* query) {
    float* copy = scratch_.queries + row * head_dim_;
    for (int64_t d = 0; d < head_dim_; d += kLanes) store_f(copy + d, load_f(query + d));
  }

  // `head` is the data of the block's page `page`.
  void load_page(int page, const uint8_t* head) {
    const int64_t size = head_dim_ * kPageSize;
    if constexpr (kScaled) {
      uint16_t* keys = scratch_.keys + page * size;
      uint16_t* values = scratch_.values + page * size;
      const int64_t bytes = key_bytes(kKind, head_dim_);
      unpack_keys(kKind, head_dim_, head, keys);
      for (int64_t d = 0; d < head_dim_; d += kLanes) {
        unpack_values(kKind, head + bytes + d * bytes / head_dim_, values + d * kPageSize);
      }
      keys_[page] = keys;
      values_[page] = values;
    } else {
      keys_[page] = reinterpret_cast<const Element*>(head);
      values_[page] = keys_[page] + size;
    }
  }

  // Only sets with matrix tiles take pages two by two.
  void load_no_page(int) {}

  void score(int64_t first_row, int row_begin, int row_end, int page_begin, int page_end) {
    for_row_groups(row_begin, row_end, [&]<int kRows>(int row) {
      const float* query = scratch_.queries + (first_row + row) * head_dim_;
      float* scores = scratch_.scores + row * kBlockKeys;
      int page = page_begin;
      for (; page + vectors(kRows) <= page_end; page += vectors(kRows)) {
        score_pages<kRows, vectors(kRows)>(query, page, scores);
      }
      for (; page < page_end; ++page) score_pages<kRows, 1>(query, page, scores);
    });
  }

  void store_weights(int row, int page, F32x16 weights) {
    store_f(scratch_.scores + row * kBlockKeys + page * kPageSize, weights);
  }

  // outputs = outputs * factor + weights @ values, row by row.
  void accumulate(float* outputs, const float* factors, int row_begin, int row_end, int page_begin,
                  int page_end) {
    for_row_groups(row_begin, row_end, [&]<int kRows>(int row) {
      int64_t d = 0;
      for (; d + vectors(kRows) * kLanes <= head_dim_; d += vectors(kRows) * kLanes) {
        weigh_values<kRows, vectors(kRows)>(outputs, factors, row, d, page_begin, page_end);
      }
      for (; d < head_dim_; d += kLanes) {
        weigh_values<kRows, 1>(outputs, factors, row, d, page_begin, page_end);
      }
    });
  }

 private:
  // Fewer rows leave registers for more vectors.
  static constexpr int vectors(int rows) { return 2 * rows <= kAttentionRows ? 2 : 1; }

  template <class Body>
  static void for_row_groups(int begin, int end, Body&& body) {
    int row = begin;
    for (; row + kAttentionRows <= end; row += kAttentionRows) {
      body.template operator()<kAttentionRows>(row);
    }
    if constexpr (kAttentionRows > 4) {
      for (; row + 4 <= end; row += 4) body.template operator()<4>(row);
    }
    if constexpr (kAttentionRows > 2) {
      for (; row + 2 <= end; row += 2) body.template operator()<2>(row);
    }
    for (; row < end; ++row) body.template operator()<1>(row);
  }

  template <int kRows, int kVectors>
  void score_pages(const float* query, int page, float* scores) {
    F32x16 sums[kRows][kVectors];
    for (auto& row : sums) {
      for (F32x16& sum : row) sum = zero_f();
    }
    multiply_pairs<Pairs, kRows, kVectors>(query, head_dim_, keys_ + page, head_dim_ / 2, sums);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        store_f(scores + r * kBlockKeys + (page + v) * kPageSize, sums[r][v]);
      }
    }
  }

  template <int kRows, int kVectors>
  void weigh_values(float* outputs, const float* factors, int row, int64_t d, int page_begin,
                    int page_end) {
    F32x16 sums[kRows][kVectors];
    for (auto& lanes : sums) {
      for (F32x16& sum : lanes) sum = zero_f();
    }
    for (int page = page_begin; page < page_end; ++page) {
      const Element* values[kVectors];
      for (int v = 0; v < kVectors; ++v) values[v] = values_[page] + (d + v * kLanes) * kPageSize;
      multiply_pairs<Pairs, kRows, kVectors>(scratch_.scores + row * kBlockKeys + page * kPageSize,
                                             kBlockKeys, values, kPageSize / 2, sums);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        float* output = outputs + (row + r) * head_dim_ + d + v * kLanes;
        store_f(output, rescale_and_add(load_f(output), factors[row + r], sums[r][v]));
      }
    }
  }

  int64_t head_dim_;
  const AttentionScratch& scratch_;
  const Element* keys_[kBlockPages] = {};
  const Element* values_[kBlockPages] = {};
};

}  // namespace
}  // namespace paredown
