// Attention products on 16 float lanes: keys are lanes for the scores, head dimensions for the
// weighted sum. Any page format, any instruction set.
#pragma once

#include "kernels/attention/scratch.h"

namespace paredown {
namespace {

// Neighbours of 16 lanes each: two or four dims of 16 keys, or so many keys of 16 dims. As floats
// one by one, so that few registers hold them.
struct FloatPairs {
  using Element = float;
  static constexpr int kSize = 2;
  using Packed = const float*;
  static Packed load(const float* p) { return p; }
  template <int kNeighbour>
  static F32x16 neighbour(Packed pair) {
    return load_f(pair + kNeighbour * kLanes);
  }
};
struct Bf16Pairs {
  using Element = uint16_t;
  static constexpr int kSize = 2;
  using Packed = I32x16;
  static Packed load(const uint16_t* p) { return load_i(p); }
  template <int kNeighbour>
  static F32x16 neighbour(Packed pair) {
    return kNeighbour == 0 ? even_bf16(pair) : odd_bf16(pair);
  }
};
struct CodeQuads {
  using Element = uint8_t;
  static constexpr int kSize = 4;
  using Packed = U8x64;
  static Packed load(const uint8_t* p) { return load_u8(p); }
  template <int kNeighbour>
  static F32x16 neighbour(Packed codes) {
    return to_float(signed_byte_of<kNeighbour>(codes));
  }
};

// sums[r][v] += over groups of the sum of factors[r][kSize i + j] * neighbour j of group i.
template <class Groups, int kRows, int kVectors>
inline void multiply_groups(const float* factors, int64_t stride,
                            const typename Groups::Element* const* groups, int64_t count,
                            F32x16 (&sums)[kRows][kVectors]) {
  constexpr int kSize = Groups::kSize;
  for (int64_t i = 0; i < count; i += kSize) {
    for (int v = 0; v < kVectors; ++v) {
      const typename Groups::Packed packed = Groups::load(groups[v] + i * kLanes);
      unroll<kSize>([&](auto j) {
        const F32x16 x = Groups::template neighbour<j.value>(packed);
        for (int r = 0; r < kRows; ++r) {
          sums[r][v] = fma(set_f(factors[r * stride + i + j.value]), x, sums[r][v]);
        }
      });
    }
  }
}

template <KvKind kKind, class Groups>
class AttentionLanes {
 public:
  static constexpr bool kScaled = is_coded(kKind);
  static constexpr bool kCopies = false;  // values of a block, when its pages are loaded
  static constexpr bool kDigital = false;
  using Element = typename Groups::Element;

  AttentionLanes(const KvView& kv, const AttentionScratch& scratch, int64_t)
      : head_dim_(kv.head_dim), scratch_(scratch) {}

  static void keep_awake() {}

  void load_query(int64_t row, const float* query, float scale) {
    float* copy = scratch_.queries + row * head_dim_;
    for (int64_t d = 0; d < head_dim_; d += kLanes) {
      store_f(copy + d, mul(load_f(query + d), set_f(scale)));
    }
  }

  // `head` is the data of page `slot` of the batch.
  void load_page(int page, const uint8_t* head) {
    const int64_t size = head_dim_ * kPageSize;
    keys_[page] = reinterpret_cast<const Element*>(head);
    values_[page] = keys_[page] + size;
    if constexpr (kKind == KvKind::kInt4) {
      auto* keys = reinterpret_cast<uint8_t*>(scratch_.keys) + page * size;
      auto* values = reinterpret_cast<uint8_t*>(scratch_.values) + page * size;
      unpack_page(head_dim_, head, keys, values);
      keys_[page] = keys;
      values_[page] = values;
    }
    if constexpr (kKind == KvKind::kFp8) {
      unpack_fp8(size, head, scratch_.keys + page * size);
      unpack_fp8(size, head + size, scratch_.values + page * size);
      keys_[page] = scratch_.keys + page * size;
      values_[page] = scratch_.values + page * size;
    }
  }

  template <class Fetch>
  void score(const TileWork& work, Fetch&& fetch) {
    for_row_groups(work.row_begin, work.row_end, [&]<int kRows>(int row) {
      const float* query = scratch_.queries + (work.tile * kTileRows + row) * head_dim_;
      const Element* const* keys = keys_;
      float* scores = row_scores(row);
      int page = work.page_begin;
      for (; page + vectors(kRows) <= work.page_end; page += vectors(kRows)) {
        fetch();
        score_pages<kRows, vectors(kRows)>(query, keys + page, scores + page * kPageSize);
      }
      for (; page < work.page_end; ++page) {
        score_pages<kRows, 1>(query, keys + page, scores + page * kPageSize);
      }
    });
  }

  F32x16 load_score(const TileWork&, int row, int page) const {
    return load_f(row_scores(row) + page * kPageSize);
  }

  // Weights take the place of the scores.
  void store_weights(int row, int page, const F32x16 (&weights)[kWeightPages]) {
    float* place = row_scores(row) + page * kPageSize;
    for (int i = 0; i < kWeightPages; ++i) store_f(place + i * kLanes, weights[i]);
  }

  void weigh_values(const TileWork& work) {
    for_row_groups(work.row_begin, work.row_end, [&]<int kRows>(int row) {
      int64_t d = 0;
      for (; d + vectors(kRows) * kLanes <= head_dim_; d += vectors(kRows) * kLanes) {
        weigh_dims<kRows, vectors(kRows)>(work, row, d);
      }
      for (; d < head_dim_; d += kLanes) weigh_dims<kRows, 1>(work, row, d);
    });
  }

  F32x16 load_product(int row, int64_t d) const {
    return load_f(scratch_.products + row * head_dim_ + d);
  }

 private:
  float* row_scores(int row) const { return scratch_.scores + row * kBlockKeys; }

  // As many vectors as there are registers for their sums.
  static constexpr int vectors(int rows) { return 2 * rows <= kAttentionSums ? 2 : 1; }

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
    multiply_groups<Groups, kRows, kVectors>(query, head_dim_, keys, head_dim_, sums);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) store_f(scores + r * kBlockKeys + v * kLanes, sums[r][v]);
    }
  }

  template <int kRows, int kVectors>
  void weigh_dims(const TileWork& work, int row, int64_t d) {
    F32x16 sums[kRows][kVectors];
    for (auto& lanes : sums) {
      for (F32x16& sum : lanes) sum = zero_f();
    }
    for (int page = work.page_begin; page < work.page_end; ++page) {
      const Element* values[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        values[v] = values_[page] + (d + v * kLanes) * kPageSize;
      }
      multiply_groups<Groups, kRows, kVectors>(row_scores(row) + page * kPageSize, kBlockKeys,
                                               values, kPageSize, sums);
    }
    float* products = scratch_.products + row * head_dim_ + d;
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) store_f(products + r * head_dim_ + v * kLanes, sums[r][v]);
    }
  }

  int64_t head_dim_;
  const AttentionScratch& scratch_;
  const Element* keys_[kBlockPages] = {};
  const Element* values_[kBlockPages] = {};
};

}  // namespace
}  // namespace paredown
