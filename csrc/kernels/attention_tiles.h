// Attention products of bf16 pages on matrix tiles, and of fp8 pages, whose numbers bf16 holds
// exactly. Queries and weights are each the sum of two bf16 numbers, so that only the pages' own
// rounding is seen. A decode of few rows runs the same products with fewer rows: the same bits.
#pragma once

#include "attention_steps.h"

namespace paredown {
namespace {

constexpr int64_t kTileElements = 16 * 32;  // bf16 of a tile

// products[row][16 n + lane] = sum over k tiles of (high[k] + low[k]) @ right[n][k], for up to four
// n. left: [high, low][left_tiles][16][32]; a right operand's k tiles are kTileElements apart.
struct TileProduct {
  const uint16_t* left;
  int64_t left_tiles;
  int64_t k_begin;
  int64_t k_end;
  const uint16_t* right[4];
  int num_right;
  float* products;
  int64_t stride;
  int64_t k;     // of the next step
  int pair;      // the same

  int num_pairs() const { return (num_right + 1) / 2; }
  int64_t num_steps() const { return num_pairs() * (k_end - k_begin); }
  void step();
};

// A k tile of right operands 2 kPair and 2 kPair + 1. A step of the first pair comes before the one
// of the second and leaves the left tiles to it. Products of two sums take turns: each waits for
// its own last one.
template <int kPair>
inline void multiply_pair(const TileProduct& product) {
  constexpr int kFirst = 2 * kPair;
  const int64_t k = product.k;
  const bool two = product.num_right > kFirst + 1;
  if (k == product.k_begin) {
    tile_zero<kFirst>();
    tile_zero<kFirst + 1>();
  }
  if constexpr (kPair == 0) {
    tile_load<4>(product.left + k * kTileElements, 64);
    tile_load<5>(product.left + (product.left_tiles + k) * kTileElements, 64);
  }
  tile_load<6>(product.right[kFirst] + k * kTileElements, 64);
  if (two) tile_load<7>(product.right[kFirst + 1] + k * kTileElements, 64);
  tile_dot_bf16<kFirst, 4, 6>();
  if (two) tile_dot_bf16<kFirst + 1, 4, 7>();
  tile_dot_bf16<kFirst, 5, 6>();
  if (two) tile_dot_bf16<kFirst + 1, 5, 7>();
  if (k + 1 < product.k_end) return;
  float* place = product.products + kFirst * kLanes;
  tile_store<kFirst>(place, product.stride * 4);
  if (two) tile_store<kFirst + 1>(place + kLanes, product.stride * 4);
}

inline void TileProduct::step() {
  if (pair == 0) {
    multiply_pair<0>(*this);
  } else {
    multiply_pair<1>(*this);
  }
  if (++pair < num_pairs()) return;
  pair = 0;
  ++k;
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
  static constexpr bool kOnTiles = true;
  static constexpr bool kDigital = false;

  AttentionTiles(const KvView& kv, const AttentionScratch& scratch, int64_t num_rows)
      : head_dim_(kv.head_dim),
        query_tiles_((kv.head_dim + 31) / 32),
        scratch_(scratch),
        overlaps_(num_rows > kTileRows),
        scope_(static_cast<int>(num_rows < kTileRows ? num_rows : kTileRows)) {
    if (kKind != KvKind::kFp8 || head_dim_ % 32 == 0) return;
    // The last key tile of a page reads on behind what is unpacked.
    for (uint16_t* keys : scratch.keys) {
      for (int64_t i = 0; i < kBlockPages * page_keys(); i += kPairElements) {
        store_i(keys + i, zero_i());
      }
    }
  }

  // Where tiles overlap, the matrix unit has no time to fall asleep.
  void keep_awake() const {
    if (!overlaps_) keep_tiles_awake();
  }

  int64_t head_dim() const { return head_dim_; }

  void load_query(int64_t row, const float* query) {
    uint16_t* tile = query_tile(row / kTileRows) + row % kTileRows * 32;
    const int64_t low = query_tiles_ * kTileElements;
    const F32x16 factor = set_f(kLog2E);
    for (int64_t d = 0; d < head_dim_; d += 32) {
      uint16_t* place = tile + d / 32 * kTileElements;
      const F32x16 second = d + kLanes < head_dim_ ? load_f(query + d + kLanes) : zero_f();
      store_two_bf16(mul(load_f(query + d), factor), mul(second, factor), place, place + low);
    }
  }

  // The last key tile of a head_dim that is no multiple of 32 reads on into finite numbers, which
  // meet queries of zero.
  void load_page(int block, int page, const uint8_t* head) {
    const int64_t size = head_dim_ * kPageSize;
    if constexpr (kKind == KvKind::kFp8) {
      uint16_t* keys = scratch_.keys[block] + page * page_keys();
      unpack_fp8(size, head, keys);
      keys_[block][page] = keys;
      for (int64_t i = 0; i < head_dim_ / kLanes; ++i) {
        unpack_fp8(kTileElements / 2, head + size + i * kTileElements / 2,
                   value_place(block, page, i));
      }
      return;
    }
    const auto* keys = reinterpret_cast<const uint16_t*>(head);
    keys_[block][page] = keys;
    const uint16_t* values = keys + size;
    for (int64_t i = 0; i < head_dim_ / kLanes; ++i, values += kTileElements / 2) {
      uint16_t* place = value_place(block, page, i);
      for (int64_t j = 0; j < kTileElements / 2; j += kPairElements) {
        store_i(place + j, load_i(values + j));
      }
    }
  }

  // Weights of zero meet the values of pages that no row sees: what has been there may be NaN.
  void skip_page(int block, int page) {
    for (int64_t i = 0; i < head_dim_ / kLanes; ++i) {
      uint16_t* place = value_place(block, page, i);
      for (int64_t j = 0; j < kTileElements / 2; j += kPairElements) store_i(place + j, zero_i());
    }
  }

  void begin_scores(const TileWork& work) { steps_.begin_scores(*this, work); }
  void begin_values(const TileWork& work) { steps_.begin_values(*this, work); }
  void run_steps(int64_t part, int64_t num_parts) { steps_.run(*this, part, num_parts); }

  template <class Fetch>
  void score(const TileWork& work, Fetch&& fetch) {
    fetch();
    begin_scores(work);
    run_steps(1, 1);
  }

  void weigh_values(const TileWork& work) {
    begin_values(work);
    run_steps(1, 1);
  }

  F32x16 load_score(const TileWork& work, int row, int page) const {
    return load_f(scratch_.scores[work.slot] + row * kBlockKeys + page * kPageSize);
  }

  // Weights of pages that no row sees are zeros: their values, whatever they are, add nothing.
  void store_weights(const TileWork& work, int row, int page,
                     const F32x16 (&weights)[kWeightPages]) {
    for (int i = 0; i < kWeightPages; i += 2) {
      uint16_t* high = scratch_.weights[work.slot] + (page + i) / 2 * kTileElements + row * 32;
      store_two_bf16(weights[i], weights[i + 1], high, high + kBlockTiles * kTileElements);
    }
  }

  // A sum of nothing but masked keys may be -0 where other rows share the tile: adding 0 makes it
  // +0.
  F32x16 load_product(const TileWork&, int row, int64_t d) const {
    return add(load_f(scratch_.products + row * head_dim_ + d), zero_f());
  }

  int64_t num_score_steps(const TileWork& work) const {
    return query_tiles_ * ((work.page_end - work.page_begin + 1) / 2);
  }
  int64_t num_value_steps(const TileWork& work) const {
    return (head_dim_ / kLanes + 1) / 2 * ((work.page_end + 1) / 2 - work.page_begin / 2);
  }

  void make_score_product(const TileWork& work, TileProduct& product) const {
    product.left = query_tile(work.tile);
    product.left_tiles = query_tiles_;
    product.k = product.k_begin = 0;
    product.k_end = query_tiles_;
    product.num_right = work.page_end - work.page_begin;
    for (int i = 0; i < product.num_right; ++i) {
      product.right[i] = keys_[work.block][work.page_begin + i];
    }
    product.products = scratch_.scores[work.slot] + work.page_begin * kPageSize;
    product.stride = kBlockKeys;
    product.pair = 0;
  }

  // Of up to four times 16 dims from `dim` on.
  void make_value_product(const TileWork& work, int64_t dim, TileProduct& product) const {
    const int64_t left = (head_dim_ - dim) / kLanes;
    product.left = scratch_.weights[work.slot];
    product.left_tiles = kBlockTiles;
    product.k = product.k_begin = work.page_begin / 2;
    product.k_end = (work.page_end + 1) / 2;
    product.num_right = left < 4 ? static_cast<int>(left) : 4;
    for (int i = 0; i < product.num_right; ++i) {
      product.right[i] = value_place(work.block, 0, dim / kLanes + i);
    }
    product.products = scratch_.products + dim;
    product.stride = head_dim_;
    product.pair = 0;
  }

 private:
  static constexpr int kBlockTiles = kBlockPages / 2;

  // Numbers from the unpacked keys of a page to those of the next: whole tiles.
  int64_t page_keys() const { return query_tiles_ * kTileElements; }
  uint16_t* query_tile(int64_t tile) const {
    return reinterpret_cast<uint16_t*>(scratch_.queries) + tile * 2 * query_tiles_ * kTileElements;
  }
  // Values: [head_dim/16][tiles of two pages][16 key pairs][16 dims][2 keys].
  uint16_t* value_place(int block, int page, int64_t dim_tile) const {
    return scratch_.values[block] + (dim_tile * kBlockTiles + page / 2) * kTileElements +
           page % 2 * (kTileElements / 2);
  }

  int64_t head_dim_;
  int64_t query_tiles_;
  const AttentionScratch& scratch_;
  bool overlaps_;
  TileScope scope_;
  const uint16_t* keys_[2][kBlockPages] = {};
  TileSteps<AttentionTiles, TileProduct> steps_;
};

}  // namespace
}  // namespace paredown
