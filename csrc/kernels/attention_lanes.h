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
    for (int64_t d = 0; d < head_dim_; d += kLanes) {
      store_f(copy + d, mul(load_f(query + d), set_f(kLog2E)));
    }
  }

  // `head` is the data of page `slot` of the batch.
  void load_page(int slot, const uint8_t* head) {
    const int64_t size = head_dim_ * kPageSize;
    if constexpr (kScaled) {
      uint16_t* keys = scratch_.keys + slot * size;
      uint16_t* values = scratch_.values + slot * size;
      const int64_t bytes = key_bytes(kKind, head_dim_);
      unpack_keys(kKind, head_dim_, head, keys);
      for (int64_t d = 0; d < head_dim_; d += kLanes) {
        unpack_values(kKind, head + bytes + d * bytes / head_dim_, values + d * kPageSize);
      }
      keys_[slot] = keys;
      values_[slot] = values;
    } else {
      keys_[slot] = reinterpret_cast<const Element*>(head);
      values_[slot] = keys_[slot] + size;
    }
  }

  // Only sets with matrix tiles take pages two by two.
  void load_no_page(int) {}

  void score(int index, const TileWork& work) {
    for_row_groups(work.row_begin, work.row_end, [&]<int kRows>(int row) {
      const float* query = scratch_.queries + (work.tile * kTileRows + row) * head_dim_;
      const Element* const* keys = keys_ + work.block * kBlockPages;
      float* scores = row_scores(index, row);
      int page = work.page_begin;
      for (; page + vectors(kRows) <= work.page_end; page += vectors(kRows)) {
        score_pages<kRows, vectors(kRows)>(query, keys + page, scores + page * kPageSize);
      }
      for (; page < work.page_end; ++page) {
        score_pages<kRows, 1>(query, keys + page, scores + page * kPageSize);
      }
    });
  }

  // Weights take the place of the scores.
  void store_weights(int index, int row, int page, const F32x16 (&weights)[kPageStep]) {
    store_f(row_scores(index, row) + page * kPageSize, weights[0]);
  }

  void weigh_values(int index, const TileWork& work) {
    for_row_groups(work.row_begin, work.row_end, [&]<int kRows>(int row) {
      int64_t d = 0;
      for (; d + vectors(kRows) * kLanes <= head_dim_; d += vectors(kRows) * kLanes) {
        weigh_dims<kRows, vectors(kRows)>(index, work, row, d);
      }
      for (; d < head_dim_; d += kLanes) weigh_dims<kRows, 1>(index, work, row, d);
    });
  }

 private:
  float* row_scores(int index, int row) const {
    return scratch_.scores + (index * kTileRows + row) * kBlockKeys;
  }

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
  void score_pages(const float* query, const Element* const* keys, float* scores) {
    F32x16 sums[kRows][kVectors];
    for (auto& row : sums) {
      for (F32x16& sum : row) sum = zero_f();
    }
    multiply_pairs<Pairs, kRows, kVectors>(query, head_dim_, keys, head_dim_ / 2, sums);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) store_f(scores + r * kBlockKeys + v * kLanes, sums[r][v]);
    }
  }

  template <int kRows, int kVectors>
  void weigh_dims(int index, const TileWork& work, int row, int64_t d) {
    F32x16 sums[kRows][kVectors];
    for (auto& lanes : sums) {
      for (F32x16& sum : lanes) sum = zero_f();
    }
    for (int page = work.page_begin; page < work.page_end; ++page) {
      const Element* values[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        values[v] = values_[work.block * kBlockPages + page] + (d + v * kLanes) * kPageSize;
      }
      multiply_pairs<Pairs, kRows, kVectors>(row_scores(index, row) + page * kPageSize, kBlockKeys,
                                             values, kPageSize / 2, sums);
    }
    float* products = scratch_.products + (index * kTileRows + row) * head_dim_ + d;
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) store_f(products + r * head_dim_ + v * kLanes, sums[r][v]);
    }
  }

  int64_t head_dim_;
  const AttentionScratch& scratch_;
  const Element* keys_[kBatchBlocks * kBlockPages] = {};
  const Element* values_[kBatchBlocks * kBlockPages] = {};
};

}  // namespace
}  // namespace paredown
