// Attention products on matrix tiles of bf16. Queries and weights are each the sum of two bf16
// numbers, so that only the pages' own rounding is seen; codes of int8 and int4 pages are exact in
// bf16. A decode of few rows runs the same products with fewer rows: the same bits.
#pragma once

#include "attention_scratch.h"

namespace paredown {
namespace {

constexpr int64_t kTileElements = 16 * 32;  // bf16 of a tile

// products[row][16 n + lane] = sum over k tiles of (high[k] + low[k]) @ right[n][k], for up to four
// n. left: [high, low][left_tiles][16][32]; a right operand's k tiles are kTileElements apart.
inline void multiply_tiles(const uint16_t* left, int64_t left_tiles, int64_t k_begin, int64_t k_end,
                           const uint16_t* const* right, int num_right, float* products,
                           int64_t stride) {
  // The intrinsics do not tell the compiler that tile loads read memory.
  asm volatile("" : : : "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = k_begin; k < k_end; ++k) {
    _tile_loadd(4, left + k * kTileElements, 64);
    _tile_loadd(5, left + (left_tiles + k) * kTileElements, 64);
    _tile_loadd(6, right[0] + k * kTileElements, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(0, 5, 6);
    if (num_right == 1) continue;
    _tile_loadd(7, right[1] + k * kTileElements, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(1, 5, 7);
    if (num_right == 2) continue;
    _tile_loadd(6, right[2] + k * kTileElements, 64);
    _tile_dpbf16ps(2, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    if (num_right == 3) continue;
    _tile_loadd(7, right[3] + k * kTileElements, 64);
    _tile_dpbf16ps(3, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  const int64_t bytes = stride * 4;
  _tile_stored(0, products, bytes);
  if (num_right > 1) _tile_stored(1, products + kLanes, bytes);
  if (num_right > 2) _tile_stored(2, products + 2 * kLanes, bytes);
  if (num_right > 3) _tile_stored(3, products + 3 * kLanes, bytes);
  asm volatile("" : : : "memory");
}

// x as high + low, 16 elements each.
inline void store_two_bf16(F32x16 x, uint16_t* high, uint16_t* low) {
  const __m256bh upper = _mm512_cvtneps_pbh(x.v);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), reinterpret_cast<__m256i>(upper));
  const __m512i bits =
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(upper)), 16);
  const __m256bh lower = _mm512_cvtneps_pbh(_mm512_sub_ps(x.v, _mm512_castsi512_ps(bits)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), reinterpret_cast<__m256i>(lower));
}

template <KvKind kKind>
class AttentionTiles {
 public:
  static constexpr bool kScaled = kKind == KvKind::kInt8 || kKind == KvKind::kInt4;
  static constexpr int kPageStep = 2;  // a tile of values holds the key pairs of two pages

  AttentionTiles(const KvView& kv, const AttentionScratch& scratch)
      : head_dim_(kv.head_dim), query_tiles_((kv.head_dim + 31) / 32), scratch_(scratch) {}

  void load_query(int64_t row, const float* query) {
    uint16_t* tile = query_tile(row) + row % kTileRows * 32;
    const int64_t low = query_tiles_ * kTileElements;
    for (int64_t d = 0; d < query_tiles_ * 32; d += kLanes) {
      uint16_t* place = tile + d / 32 * kTileElements + d % 32;
      store_two_bf16(d < head_dim_ ? load_f(query + d) : zero_f(), place, place + low);
    }
  }

  // The last key tile of a head_dim that is no multiple of 32 reads on into finite numbers, which
  // meet queries of zero.
  void load_page(int page, const uint8_t* head) {
    const int64_t size = head_dim_ * kPageSize;
    const uint8_t* values = head + key_bytes(kKind, head_dim_);
    if constexpr (kKind == KvKind::kBf16) {
      keys_[page] = reinterpret_cast<const uint16_t*>(head);
    } else {
      uint16_t* keys = scratch_.keys + page * size;
      unpack_keys(kKind, head_dim_, head, keys);
      keys_[page] = keys;
    }
    const int64_t step = key_bytes(kKind, head_dim_) / (head_dim_ / kLanes);
    for (int64_t i = 0; i < head_dim_ / kLanes; ++i) {
      uint16_t* place = value_place(page, i);
      if constexpr (kKind == KvKind::kBf16) {
        const auto* source = reinterpret_cast<const uint16_t*>(values + i * step);
        for (int64_t j = 0; j < kTileElements / 2; j += kPairElements) {
          _mm512_storeu_si512(place + j, _mm512_loadu_si512(source + j));
        }
      } else {
        unpack_values(kKind, values + i * step, place);
      }
    }
  }

  // The page that would fill a tile up is not there: its values are zeros, its scores are masked.
  void load_no_page(int page) {
    keys_[page] = keys_[page - 1];
    for (int64_t i = 0; i < head_dim_ / kLanes; ++i) {
      for (int64_t j = 0; j < kTileElements / 2; j += kPairElements) {
        _mm512_storeu_si512(value_place(page, i) + j, _mm512_setzero_si512());
      }
    }
  }

  void score(int64_t first_row, int, int, int page_begin, int page_end) {
    multiply_tiles(query_tile(first_row), query_tiles_, 0, query_tiles_, keys_ + page_begin,
                   page_end - page_begin, scratch_.scores + page_begin * kPageSize, kBlockKeys);
  }

  void store_weights(int row, int page, F32x16 weights) {
    uint16_t* place = scratch_.weights + page / 2 * kTileElements + row * 32 + page % 2 * kPageSize;
    store_two_bf16(weights, place, place + kBlockPages / 2 * kTileElements);
  }

  // outputs = outputs * factor + weights @ values, row by row.
  void accumulate(float* outputs, const float* factors, int row_begin, int row_end, int page_begin,
                  int page_end) {
    for (int64_t i = 0; i < head_dim_ / kLanes; i += 4) {
      const int64_t left = head_dim_ / kLanes - i;
      const int count = left < 4 ? static_cast<int>(left) : 4;
      const uint16_t* values[4];
      for (int j = 0; j < count; ++j) values[j] = value_place(0, i + j);
      multiply_tiles(scratch_.weights, kBlockPages / 2, page_begin / 2, page_end / 2, values, count,
                     scratch_.products + i * kLanes, head_dim_);
    }
    for (int row = row_begin; row < row_end; ++row) {
      float* output = outputs + row * head_dim_;
      const float* product = scratch_.products + row * head_dim_;
      for (int64_t d = 0; d < head_dim_; d += kLanes) {
        store_f(output + d, rescale_and_add(load_f(output + d), factors[row], load_f(product + d)));
      }
    }
  }

 private:
  uint16_t* query_tile(int64_t row) const {
    return reinterpret_cast<uint16_t*>(scratch_.queries) +
           row / kTileRows * 2 * query_tiles_ * kTileElements;
  }
  // Values: [head_dim/16][two tiles of two pages][16 key pairs][16 dims][2 keys].
  uint16_t* value_place(int page, int64_t dim_tile) const {
    return scratch_.values + (dim_tile * (kBlockPages / 2) + page / 2) * kTileElements +
           page % 2 * (kTileElements / 2);
  }

  int64_t head_dim_;
  int64_t query_tiles_;
  const AttentionScratch& scratch_;
  TileScope scope_;
  const uint16_t* keys_[kBlockPages] = {};
};

}  // namespace
}  // namespace paredown
