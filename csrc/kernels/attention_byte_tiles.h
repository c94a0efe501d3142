// Attention products of int8 and int4 pages on matrix tiles of bytes: the digits of
// attention_digits.h, 64 dims or keys deep, and int8 keys where they lie. The digits of few rows
// share one tile.
#pragma once

#include "attention_digits.h"
#include "attention_steps.h"
#include "decode.h"

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

// A product of digits in steps of a right column. See multiply_digits.
struct DigitProduct {
  const uint8_t* left;
  int num_planes;
  int64_t plane_tiles;
  int64_t depth;
  const uint8_t* right[4];
  int num_right;
  int32_t* products;
  int64_t stride;
  int next;  // step

  int64_t num_steps() const { return num_right; }
  void step() {
    unroll<4>([this](auto n) {
      if (n.value != next) return;
      multiply_planes<kDigits, n.value * kDigits % 4>(left, plane_tiles, depth, right[n.value],
                                                      products + n.value * kLanes, stride);
    });
    ++next;
  }
  void run() const {
    multiply_digits(left, num_planes, plane_tiles, depth, right, num_right, products, stride);
  }
};

template <KvKind kKind>
class AttentionByteTiles {
 public:
  static constexpr bool kScaled = true;
  static constexpr bool kOnTiles = true;
  static constexpr bool kDigital = true;

  // Rows of a digit follow each other at once, so that few rows make few tiles.
  AttentionByteTiles(const KvView& kv, const AttentionScratch& scratch, int64_t num_rows)
      : head_dim_(kv.head_dim),
        depth_((kv.head_dim + 63) / 64),
        digit_rows_(num_rows < kTileRows ? static_cast<int>(num_rows) : kTileRows),
        num_planes_((kDigits * digit_rows_ + kTileRows - 1) / kTileRows),
        scratch_(scratch),
        overlaps_(num_rows > kTileRows),
        scope_(num_planes_ == 1 ? kDigits * digit_rows_ : kTileRows) {}

  // Where tiles overlap, the matrix unit has no time to fall asleep.
  void keep_awake() const {
    if (!overlaps_) keep_tiles_awake();
  }

  int64_t head_dim() const { return head_dim_; }

  void load_query(int64_t row, const float* query) {
    F32x16 largest = zero_f();
    for (int64_t d = 0; d < head_dim_; d += kLanes) largest = max(largest, abs(load_f(query + d)));
    const DigitScale scale = digit_scale(max_lanes(largest));
    scratch_.query_scales[row] = scale.scale * kLog2E;
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
  void load_page(int block, int page, const uint8_t* head) {
    const int64_t size = head_dim_ * kPageSize;
    const uint8_t* values = head + key_bytes(kKind, head_dim_);
    keys_[block][page] = head;
    if (kKind == KvKind::kInt4 || head_dim_ < kLeastDims) {
      uint8_t* keys = reinterpret_cast<uint8_t*>(scratch_.keys[block]) + page * size;
      keys_[block][page] = keys;
      if constexpr (kKind == KvKind::kInt4) {
        unpack_keys(head_dim_, head, keys);
      } else {
        for (int64_t i = 0; i < size; i += kQuadBytes) store_u8(keys + i, load_u8(head + i));
      }
    }
    // The order of split_digits: [16 dims][four pages][four of a page][page].
    uint8_t* place = block_values(block) + page / 4 * kByteTile + page % 4 * kQuadBytes;
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

  // Weights of zero meet codes, whatever they are.
  static void skip_page(int, int) {}

  void begin_scores(const TileWork& work) { steps_.begin_scores(*this, work); }
  void begin_values(const TileWork& work) { steps_.begin_values(*this, work); }
  void run_steps(int64_t part, int64_t num_parts) { steps_.run(*this, part, num_parts); }

  template <class Fetch>
  void score(const TileWork& work, Fetch&& fetch) {
    fetch();
    DigitProduct product;
    make_score_product(work, product);
    product.run();
  }

  F32x16 load_score(const TileWork& work, int row, int page) const {
    const int32_t* sums = scores(work) + row * kBlockKeys + page * kPageSize;
    const int64_t stride = digit_rows_ * kBlockKeys;
    return mul(join_digits(load_i(sums), load_i(sums + stride), load_i(sums + 2 * stride)),
               set_f(scratch_.query_scales[work.tile * kTileRows + row]));
  }

  void begin_weights(const TileWork& work, int row, float scale) {
    scratch_.weight_scales[work.slot][row] = scale;
  }
  // In units of their last digit. Weights of pages that no row sees are zeros: their values,
  // whatever they are, add nothing.
  void store_weights(const TileWork& work, int row, int page,
                     const F32x16 (&weights)[kWeightPages]) {
    __m512i digits[kDigits];
    split_digits(weights, digits);
    for (int i = 0; i < kDigits; ++i) {
      const int slot = i * digit_rows_ + row;
      const int tile = slot / kTileRows;
      _mm512_storeu_si512(weight_tiles(work) + tile * kByteTile + slot % kTileRows * 64, digits[i]);
    }
  }
  void end_weights(int) {}

  void weigh_values(const TileWork& work) {
    for (int64_t d = 0; d < head_dim_; d += 4 * kLanes) {
      DigitProduct product;
      make_value_product(work, d, product);
      product.run();
    }
  }

  F32x16 load_product(const TileWork& work, int row, int64_t d) const {
    const int32_t* sums = products() + row * head_dim_ + d;
    const int64_t stride = digit_rows_ * head_dim_;
    return mul(join_digits(load_i(sums), load_i(sums + stride), load_i(sums + 2 * stride)),
               set_f(scratch_.weight_scales[work.slot][row]));
  }

  int64_t num_score_steps(const TileWork& work) const { return work.page_end - work.page_begin; }
  int64_t num_value_steps(const TileWork&) const { return head_dim_ / kLanes; }

  void make_score_product(const TileWork& work, DigitProduct& product) const {
    product.left = query_tile(work.tile);
    product.num_planes = num_planes_;
    product.plane_tiles = product.depth = depth_;
    product.num_right = work.page_end - work.page_begin;
    for (int i = 0; i < product.num_right; ++i) {
      product.right[i] = keys_[work.block][work.page_begin + i];
    }
    product.products = scores(work) + work.page_begin * kPageSize;
    product.stride = kBlockKeys;
    product.next = 0;
  }

  // Of up to four times 16 dims from `dim` on.
  void make_value_product(const TileWork& work, int64_t dim, DigitProduct& product) const {
    const int64_t left = (head_dim_ - dim) / kLanes;
    product.left = weight_tiles(work);
    product.num_planes = num_planes_;
    product.plane_tiles = product.depth = 1;
    product.num_right = left < 4 ? static_cast<int>(left) : 4;
    for (int i = 0; i < product.num_right; ++i) {
      product.right[i] = block_values(work.block) + (dim / kLanes + i) * kByteTile;
    }
    product.products = products() + dim;
    product.stride = head_dim_;
    product.next = 0;
  }

 private:
  static_assert(kBlockKeys == 64);  // a tile deep  // of 64 keys
  static constexpr int64_t kLeastDims = 32;            // whose int8 page is longer than a tile

  // [plane][depth][16 rows of digits][64 dims]
  uint8_t* query_tile(int64_t tile) const {
    return reinterpret_cast<uint8_t*>(scratch_.queries) + tile * kDigits * depth_ * kByteTile;
  }
  int32_t* scores(const TileWork& work) const {
    return reinterpret_cast<int32_t*>(scratch_.scores[work.slot]);
  }
  // [plane][16 rows of digits][64 keys]
  uint8_t* weight_tiles(const TileWork& work) const {
    return reinterpret_cast<uint8_t*>(scratch_.weights[work.slot]);
  }
  int32_t* products() const { return reinterpret_cast<int32_t*>(scratch_.products); }
  uint8_t* block_values(int block) const {
    return reinterpret_cast<uint8_t*>(scratch_.values[block]);
  }

  int64_t head_dim_;
  int64_t depth_;   // key tiles
  int digit_rows_;  // from a digit of a row to its next digit
  int num_planes_;  // tiles of left operands for 16 query rows, or fewer
  const AttentionScratch& scratch_;
  bool overlaps_;
  TileScope scope_;
  const uint8_t* keys_[2][kBlockPages] = {};
  TileSteps<AttentionByteTiles, DigitProduct> steps_;
};

}  // namespace
}  // namespace paredown
