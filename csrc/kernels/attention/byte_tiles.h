// Attention products of int8 and int4 pages on matrix tiles of bytes: the digits of
// attention_digits.h, 64 dims or keys deep, and int8 keys where they lie. The digits of few rows
// share one tile.
#pragma once

#include "kernels/attention/digits.h"
#include "kernels/decode.h"

namespace paredown {
namespace {

constexpr int64_t kByteTile = 16 * 64;  // bytes of a tile

// Digits of 4 x 16 numbers in units of the last, [digit][64]. Fours of numbers stay together, but
// four i of vector v comes as four 4 i + v.
inline void split_digits(const F32x16* x, __m512i (&digits)[kDigits]) {
  // In each four numbers the bytes of a digit side by side, the highest digit first.
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, 3, 7, 11, 15));
  const __m512i bias = _mm512_set1_epi32(kDigitBias);
  __m512i fours[4];
  for (int v = 0; v < 4; ++v) {
    const __m512i number = _mm512_cvtps_epi32(x[v].v);
    fours[v] = _mm512_shuffle_epi8(_mm512_xor_si512(_mm512_add_epi32(number, bias), bias), order);
  }
  const __m512i low01 = _mm512_unpacklo_epi32(fours[0], fours[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(fours[2], fours[3]);
  const __m512i high01 = _mm512_unpackhi_epi32(fours[0], fours[1]);
  const __m512i high23 = _mm512_unpackhi_epi32(fours[2], fours[3]);
  digits[0] = _mm512_unpacklo_epi64(low01, low23);
  digits[1] = _mm512_unpackhi_epi64(low01, low23);
  digits[2] = _mm512_unpacklo_epi64(high01, high23);
}

// One left tile, `depth` deep, times kCount right columns of the same depth.
template <int kCount>
inline void multiply_bytes(const uint8_t* left, int64_t depth, const uint8_t* const* right,
                           int32_t* products, int64_t stride) {
  unroll<kCount>([](auto n) { tile_zero<n.value>(); });
  for (int64_t k = 0; k < depth * kByteTile; k += kByteTile) {
    tile_load<4>(left + k, 64);
    unroll<kCount>([&](auto n) {
      constexpr int kRight = 6 + n.value % 2;
      tile_load<kRight>(right[n.value] + k, 64);
      tile_dot_ss<n.value, 4, kRight>();
    });
  }
  unroll<kCount>([&](auto n) { tile_store<n.value>(products + n.value * kLanes, stride * 4); });
}

// Two or three planes of left tiles, plane_tiles long, times one right column. kFirst: tile of the
// first sum.
template <int kPlanes, int kFirst>
inline void multiply_planes(const uint8_t* left, int64_t plane_tiles, int64_t depth,
                            const uint8_t* right, int32_t* products, int64_t stride) {
  unroll<kPlanes>([](auto plane) { tile_zero<(kFirst + plane.value) % 4>(); });
  for (int64_t k = 0; k < depth; ++k) {
    tile_load<7>(right + k * kByteTile, 64);
    unroll<kPlanes>([&](auto plane) {
      constexpr int kLeft = 4 + plane.value;
      tile_load<kLeft>(left + (plane.value * plane_tiles + k) * kByteTile, 64);
      tile_dot_ss<(kFirst + plane.value) % 4, kLeft, 7>();
    });
  }
  unroll<kPlanes>([&](auto plane) {
    tile_store<(kFirst + plane.value) % 4>(products + plane.value * kTileRows * stride, stride * 4);
  });
}

// products[digit row][16 n + lane] = sum over the depth of left * right[n]; num_planes tiles of
// digit rows, up to four n.
inline void multiply_digits(const uint8_t* left, int num_planes, int64_t plane_tiles, int64_t depth,
                            const uint8_t* const* right, int num_right, int32_t* products,
                            int64_t stride) {
  asm volatile("" : : : "memory");
  if (num_planes == 1) {
    if (num_right == 4) multiply_bytes<4>(left, depth, right, products, stride);
    if (num_right == 3) multiply_bytes<3>(left, depth, right, products, stride);
    if (num_right == 2) multiply_bytes<2>(left, depth, right, products, stride);
    if (num_right == 1) multiply_bytes<1>(left, depth, right, products, stride);
  } else {
    unroll<4>([&](auto n) {
      if (n.value >= num_right) return;
      int32_t* place = products + n.value * kLanes;
      if (num_planes == 2) {
        multiply_planes<2, n.value % 2 * 2>(left, plane_tiles, depth, right[n.value], place,
                                            stride);
      } else {
        multiply_planes<3, n.value * 3 % 4>(left, plane_tiles, depth, right[n.value], place,
                                            stride);
      }
    });
  }
  asm volatile("" : : : "memory");
}

template <KvKind kKind>
class AttentionByteTiles {
 public:
  static constexpr bool kScaled = true;
  static constexpr bool kCopies = true;  // values of a block, when its pages are loaded
  static constexpr bool kDigital = true;

  // Rows of a digit follow each other at once, so that few rows make few tiles.
  AttentionByteTiles(const KvView& kv, const AttentionScratch& scratch, int64_t num_rows)
      : head_dim_(kv.head_dim),
        depth_((kv.head_dim + 63) / 64),
        digit_rows_(num_rows < kTileRows ? static_cast<int>(num_rows) : kTileRows),
        num_planes_((kDigits * digit_rows_ + kTileRows - 1) / kTileRows),
        scratch_(scratch),
        is_alone_(num_rows <= kTileRows),
        scope_(num_planes_ == 1 ? kDigits * digit_rows_ : kTileRows) {}

  // Several tiles of rows leave the matrix unit no time to fall asleep.
  void keep_awake() const {
    if (is_alone_) keep_tiles_awake();
  }

  void load_query(int64_t row, const float* query, float factor) {
    F32x16 largest = zero_f();
    for (int64_t d = 0; d < head_dim_; d += kLanes) largest = max(largest, abs(load_f(query + d)));
    const DigitScale scale = digit_scale(max_lanes(largest));
    scratch_.query_scales[row] = scale.scale * factor;
    const __m512i natural = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (int64_t k = 0; k < depth_; ++k) {
      F32x16 x[4];
      for (int64_t v = 0; v < 4; ++v) {
        const int64_t d = k * 64 + v * kLanes;
        x[v] = d < head_dim_ ? mul(load_f(query + d), set_f(scale.up)) : zero_f();
      }
      __m512i digits[kDigits];
      split_digits(x, digits);
      for (int i = 0; i < kDigits; ++i) {
        const int64_t slot = i * digit_rows_ + row % kTileRows;
        _mm512_storeu_si512(query_tile(row / kTileRows) +
                                (slot / kTileRows * depth_ + k) * kByteTile + slot % kTileRows * 64,
                            _mm512_permutexvar_epi32(natural, digits[i]));
      }
    }
  }

  // A last key tile of less than 64 dims reads on, in the page or in the scratch, and meets digits
  // of zero.
  void load_page(int page, const uint8_t* head) {
    const int64_t size = head_dim_ * kPageSize;
    const uint8_t* values = head + key_bytes(kKind, head_dim_);
    keys_[page] = head;
    if (kKind == KvKind::kInt4 || head_dim_ < kLeastDims) {
      uint8_t* keys = reinterpret_cast<uint8_t*>(scratch_.keys) + page * size;
      keys_[page] = keys;
      if constexpr (kKind == KvKind::kInt4) {
        unpack_keys(head_dim_, head, keys);
      } else {
        for (int64_t i = 0; i < size; i += kQuadBytes) store_u8(keys + i, load_u8(head + i));
      }
    }
    // The order of split_digits: [16 dims][four pages][four of a page][page].
    uint8_t* place = block_values() + page / 4 * kByteTile + page % 4 * kQuadBytes;
    for (int64_t i = 0; i < head_dim_ / kLanes; ++i) {
      for (int64_t j = 0; j < kPageSize / 4;
           ++j, values += key_bytes(kKind, kQuadBytes / kPageSize)) {
        U8x64 codes;
        if constexpr (kKind == KvKind::kInt4) {
          codes = unpack_values(values);
        } else {
          codes = load_u8(values);
        }
        store_u8(place + i * kBlockKeys * kLanes + j * 4 * kQuadBytes, codes);
      }
    }
  }

  template <class Fetch>
  void score(const TileWork& work, Fetch&& fetch) {
    for (int page = work.page_begin; page < work.page_end; page += 4) {
      fetch();
      const int left = work.page_end - page;
      multiply_digits(query_tile(work.tile), num_planes_, depth_, depth_, keys_ + page,
                      left < 4 ? left : 4, scores() + page * kPageSize, kBlockKeys);
    }
  }

  F32x16 load_score(const TileWork& work, int row, int page) const {
    const int32_t* sums = scores() + row * kBlockKeys + page * kPageSize;
    const int64_t stride = digit_rows_ * kBlockKeys;
    return mul(join_digits(load_i(sums), load_i(sums + stride), load_i(sums + 2 * stride)),
               set_f(scratch_.query_scales[work.tile * kTileRows + row]));
  }

  void begin_weights(int row, float scale) { scratch_.weight_scales[row] = scale; }
  // In units of their last digit. Weights of pages that no row sees are zeros: their values,
  // whatever they are, add nothing.
  void store_weights(int row, int page, const F32x16 (&weights)[kWeightPages]) {
    __m512i digits[kDigits];
    split_digits(weights, digits);
    for (int i = 0; i < kDigits; ++i) {
      const int slot = i * digit_rows_ + row;
      const int tile = slot / kTileRows * kBlockTiles + page / 4;
      _mm512_storeu_si512(weight_tiles() + tile * kByteTile + slot % kTileRows * 64, digits[i]);
    }
  }
  void end_weights(int) {}

  void weigh_values(const TileWork& work) {
    const int first = work.page_begin / 4;
    for (int64_t d = 0; d < head_dim_; d += 4 * kLanes) {
      const int64_t left = (head_dim_ - d) / kLanes;
      const int count = left < 4 ? static_cast<int>(left) : 4;
      const uint8_t* right[4];
      for (int n = 0; n < count; ++n) {
        right[n] = block_values() + ((d / kLanes + n) * kBlockTiles + first) * kByteTile;
      }
      multiply_digits(weight_tiles() + first * kByteTile, num_planes_, kBlockTiles,
                      tiles_end(work) - first, right, count, products() + d, head_dim_);
    }
  }

  F32x16 load_product(int row, int64_t d) const {
    const int32_t* sums = products() + row * head_dim_ + d;
    const int64_t stride = digit_rows_ * head_dim_;
    return mul(join_digits(load_i(sums), load_i(sums + stride), load_i(sums + 2 * stride)),
               set_f(scratch_.weight_scales[row]));
  }

 private:
  static constexpr int kBlockTiles = kBlockPages / 4;  // of 64 keys
  static constexpr int64_t kLeastDims = 32;            // whose int8 page is longer than a tile

  // [plane][depth][16 rows of digits][64 dims]
  uint8_t* query_tile(int64_t tile) const {
    return reinterpret_cast<uint8_t*>(scratch_.queries) + tile * kDigits * depth_ * kByteTile;
  }
  int32_t* scores() const { return reinterpret_cast<int32_t*>(scratch_.scores); }
  // [plane][tiles of a block][16 rows of digits][64 keys]
  uint8_t* weight_tiles() const { return reinterpret_cast<uint8_t*>(scratch_.weights); }
  int32_t* products() const { return reinterpret_cast<int32_t*>(scratch_.products); }
  uint8_t* block_values() const { return reinterpret_cast<uint8_t*>(scratch_.values); }
  static int tiles_end(const TileWork& work) { return (work.page_end + 3) / 4; }

  int64_t head_dim_;
  int64_t depth_;   // key tiles
  int digit_rows_;  // from a digit of a row to its next digit
  int num_planes_;  // tiles of left operands for 16 query rows, or fewer
  const AttentionScratch& scratch_;
  bool is_alone_;  // the only tile of rows
  TileScope scope_;
  const uint8_t* keys_[kBlockPages] = {};
};

}  // namespace
}  // namespace paredown
