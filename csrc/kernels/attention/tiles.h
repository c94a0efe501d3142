// Attention products of bf16 pages on matrix tiles, and of fp8 pages, whose numbers bf16 holds
// exactly. Queries and weights are each the sum of two bf16 numbers, so that only the pages' own
// rounding is seen. A decode of few rows runs the same products with fewer rows: the same bits.
#pragma once

#include "kernels/attention/scratch.h"

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
    if (num_right == 1) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(0, 5, 6);
      continue;
    }
    // Products of two sums take turns: each waits for its own last one.
    _tile_loadd(7, right[1] + k * kTileElements, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(0, 5, 6);
    _tile_dpbf16ps(1, 5, 7);
    if (num_right == 2) continue;
    _tile_loadd(6, right[2] + k * kTileElements, 64);
    if (num_right == 3) {
      _tile_dpbf16ps(2, 4, 6);
      _tile_dpbf16ps(2, 5, 6);
      continue;
    }
    _tile_loadd(7, right[3] + k * kTileElements, 64);
    _tile_dpbf16ps(2, 4, 6);
    _tile_dpbf16ps(3, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  const int64_t bytes = stride * 4;
  _tile_stored(0, products, bytes);
  if (num_right > 1) _tile_stored(1, products + kLanes, bytes);
  if (num_right > 2) _tile_stored(2, products + 2 * kLanes, bytes);
  if (num_right > 3) _tile_stored(3, products + 3 * kLanes, bytes);
  asm volatile("" : : : "memory");
}

// x0, x1 as high + low, both rounded to nearest: 2^-18 of x is lost. Whole cache lines are stored,
// since a tile load waits for narrower ones to leave the store buffer.
inline void store_two_bf16(F32x16 x0, F32x16 x1, uint16_t* high, uint16_t* low) {
  alignas(64) static constexpr uint16_t kUpperHalves[32] = {
      1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __m512i bits0 = _mm512_add_epi32(_mm512_castps_si512(x0.v), half);
  const __m512i bits1 = _mm512_add_epi32(_mm512_castps_si512(x1.v), half);
  _mm512_storeu_si512(high,
                      _mm512_permutex2var_epi16(bits0, _mm512_load_si512(kUpperHalves), bits1));
  const __m512 rest0 = _mm512_sub_ps(x0.v, _mm512_castsi512_ps(_mm512_and_si512(bits0, mask)));
  const __m512 rest1 = _mm512_sub_ps(x1.v, _mm512_castsi512_ps(_mm512_and_si512(bits1, mask)));
  _mm512_storeu_si512(low, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(rest1, rest0)));
}

template <KvKind kKind>
class AttentionTiles {
 public:
  static constexpr bool kScaled = is_coded(kKind);
  static constexpr bool kCopies = true;  // values of a block, when its pages are loaded
  static constexpr bool kDigital = false;

  AttentionTiles(const KvView& kv, const AttentionScratch& scratch, int64_t num_rows)
      : head_dim_(kv.head_dim),
        query_tiles_((kv.head_dim + 31) / 32),
        scratch_(scratch),
        is_alone_(num_rows <= kTileRows),
        scope_(static_cast<int>(num_rows < kTileRows ? num_rows : kTileRows)) {
    // Weights of zero meet what lies here for pages that no row sees. What another layer's pages of
    // codes have left may be NaN as bf16.
    for (int64_t i = 0; i < head_dim_ / kLanes * kBlockTiles * kTileElements; i += kPairElements) {
      store_i(scratch_.values + i, zero_i());
    }
    if constexpr (kKind != KvKind::kFp8) return;
    for (int64_t i = 0; i < kBlockPages * page_keys(); i += kPairElements) {
      store_i(scratch_.keys + i, zero_i());
    }
  }

  // Several tiles of rows leave the matrix unit no time to fall asleep.
  void keep_awake() const {
    if (is_alone_) keep_tiles_awake();
  }

  void load_query(int64_t row, const float* query, float scale) {
    uint16_t* tile = query_tile(row / kTileRows) + row % kTileRows * 32;
    const int64_t low = query_tiles_ * kTileElements;
    const F32x16 factor = set_f(scale);
    for (int64_t d = 0; d < head_dim_; d += 32) {
      uint16_t* place = tile + d / 32 * kTileElements;
      const F32x16 second = d + kLanes < head_dim_ ? load_f(query + d + kLanes) : zero_f();
      store_two_bf16(mul(load_f(query + d), factor), mul(second, factor), place, place + low);
    }
  }

  // The last key tile of a head_dim that is no multiple of 32 reads on into finite numbers, which
  // meet queries of zero.
  void load_page(int page, const uint8_t* head) {
    const int64_t size = head_dim_ * kPageSize;
    if constexpr (kKind == KvKind::kFp8) {
      uint16_t* keys = scratch_.keys + page * page_keys();
      unpack_fp8(size, head, keys);
      keys_[page] = keys;
      for (int64_t i = 0; i < head_dim_ / kLanes; ++i) {
        unpack_fp8(kTileElements / 2, head + size + i * kTileElements / 2, value_place(page, i));
      }
      return;
    }
    keys_[page] = reinterpret_cast<const uint16_t*>(head);
    const uint16_t* values = keys_[page] + size;
    for (int64_t i = 0; i < head_dim_ / kLanes; ++i, values += kTileElements / 2) {
      uint16_t* place = value_place(page, i);
      for (int64_t j = 0; j < kTileElements / 2; j += kPairElements) {
        _mm512_storeu_si512(place + j, _mm512_loadu_si512(values + j));
      }
    }
  }

  template <class Fetch>
  void score(const TileWork& work, Fetch&& fetch) {
    for (int page = work.page_begin; page < work.page_end; page += 4) {
      fetch();
      const int left = work.page_end - page;
      multiply_tiles(query_tile(work.tile), query_tiles_, 0, query_tiles_, keys_ + page,
                     left < 4 ? left : 4, scratch_.scores + page * kPageSize, kBlockKeys);
    }
  }

  F32x16 load_score(const TileWork&, int row, int page) const {
    return load_f(scratch_.scores + row * kBlockKeys + page * kPageSize);
  }

  // Weights of pages that no row sees are zeros: their values, whatever they are, add nothing.
  void store_weights(int row, int page, const F32x16 (&weights)[kWeightPages]) {
    for (int i = 0; i < kWeightPages; i += 2) {
      uint16_t* high = scratch_.weights + (page + i) / 2 * kTileElements + row * 32;
      store_two_bf16(weights[i], weights[i + 1], high, high + kBlockTiles * kTileElements);
    }
  }

  void weigh_values(const TileWork& work) {
    for (int64_t i = 0; i < head_dim_ / kLanes; i += 4) {
      const int64_t left = head_dim_ / kLanes - i;
      const int count = left < 4 ? static_cast<int>(left) : 4;
      const uint16_t* values[4];
      for (int j = 0; j < count; ++j) values[j] = value_place(0, i + j);
      multiply_tiles(scratch_.weights, kBlockTiles, work.page_begin / 2, (work.page_end + 1) / 2,
                     values, count, scratch_.products + i * kLanes, head_dim_);
    }
  }

  // A sum of nothing but masked keys may be -0 where other rows share the tile: adding 0 makes it
  // +0.
  F32x16 load_product(int row, int64_t d) const {
    return add(load_f(scratch_.products + row * head_dim_ + d), zero_f());
  }

 private:
  static constexpr int kBlockTiles = kBlockPages / 2;

  // Numbers from the unpacked keys of a page to those of the next: whole tiles.
  int64_t page_keys() const { return query_tiles_ * kTileElements; }
  uint16_t* query_tile(int64_t tile) const {
    return reinterpret_cast<uint16_t*>(scratch_.queries) + tile * 2 * query_tiles_ * kTileElements;
  }
  // Values: [head_dim/16][tiles of two pages][16 key pairs][16 dims][2 keys].
  uint16_t* value_place(int page, int64_t dim_tile) const {
    return scratch_.values + (dim_tile * kBlockTiles + page / 2) * kTileElements +
           page % 2 * (kTileElements / 2);
  }

  int64_t head_dim_;
  int64_t query_tiles_;
  const AttentionScratch& scratch_;
  bool is_alone_;  // the only tile of rows
  TileScope scope_;
  const uint16_t* keys_[kBlockPages] = {};
};

}  // namespace
}  // namespace paredown
