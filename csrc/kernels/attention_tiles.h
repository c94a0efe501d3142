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

// 32 unsigned int8 codes as bf16. 2^23 + code is exact in float, and so is the code in bf16.
inline void unpack_32_int8(const uint8_t* codes, uint16_t* output) {
  const __m512i words =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  const __m512i magic = _mm512_set1_epi32(0x4B000000);
  const __m512 zero = _mm512_set1_ps(8388608.0f + 128.0f);
  const __m512i even = _mm512_or_si512(_mm512_and_si512(words, _mm512_set1_epi32(0xFF)), magic);
  const __m512i odd = _mm512_or_si512(_mm512_srli_epi32(words, 8), magic);
  const __m512 first = _mm512_sub_ps(_mm512_castsi512_ps(even), zero);
  const __m512 second = _mm512_sub_ps(_mm512_castsi512_ps(odd), zero);
  _mm512_storeu_si512(output, _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16),
                                              _mm512_castps_si512(second)));
}

// 32 words, of which the lowest four bits are a code, as bf16: a table of the 16 numbers, twice.
inline __m512i look_up_int4(__m512i words) {
  alignas(64) static constexpr uint16_t kNumbers[32] = {
      0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80, 0x0000, 0x3F80, 0x4000,
      0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0, 0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040,
      0xC000, 0xBF80, 0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0};
  return _mm512_permutexvar_epi16(words, _mm512_load_si512(kNumbers));
}

// As unpack_keys and unpack_values, on whole registers.
inline void unpack_keys_wide(KvKind kind, int64_t head_dim, const uint8_t* codes,
                             uint16_t* output) {
  const int64_t count = head_dim * kPageSize;
  if (kind == KvKind::kInt8) {
    for (int64_t i = 0; i < count; i += kPairElements) unpack_32_int8(codes + i, output + i);
    return;
  }
  for (int64_t i = 0; i < count; i += 2 * kPairElements) {
    const __m512i words =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i / 2)));
    _mm512_storeu_si512(output + i, look_up_int4(words));
    _mm512_storeu_si512(output + i + kPairElements, look_up_int4(_mm512_srli_epi16(words, 4)));
  }
}

inline void unpack_values_wide(KvKind kind, const uint8_t* codes, uint16_t* output) {
  for (int64_t i = 0; i < kPageSize * kLanes; i += kPairElements) {
    if (kind == KvKind::kInt8) {
      unpack_32_int8(codes + i, output + i);
      continue;
    }
    const __m256i words =
        _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i / 2)));
    const __m512i both =
        _mm512_inserti64x4(_mm512_castsi256_si512(words), _mm256_srli_epi16(words, 4), 1);
    _mm512_storeu_si512(output + i, look_up_int4(both));
  }
}

template <KvKind kKind>
class AttentionTiles {
 public:
  static constexpr bool kScaled = kKind == KvKind::kInt8 || kKind == KvKind::kInt4;
  static constexpr int kPageStep = 2;  // a tile of values holds the key pairs of two pages

  AttentionTiles(const KvView& kv, const AttentionScratch& scratch)
      : head_dim_(kv.head_dim), query_tiles_((kv.head_dim + 31) / 32), scratch_(scratch) {}

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
  void load_page(int slot, const uint8_t* head) {
    const int64_t size = head_dim_ * kPageSize;
    const uint8_t* values = head + key_bytes(kKind, head_dim_);
    if constexpr (kKind == KvKind::kBf16) {
      keys_[slot] = reinterpret_cast<const uint16_t*>(head);
    } else {
      uint16_t* keys = scratch_.keys + slot * size;
      unpack_keys_wide(kKind, head_dim_, head, keys);
      keys_[slot] = keys;
    }
    const int64_t step = key_bytes(kKind, head_dim_) / (head_dim_ / kLanes);
    for (int64_t i = 0; i < head_dim_ / kLanes; ++i) {
      uint16_t* place = value_place(slot, i);
      if constexpr (kKind == KvKind::kBf16) {
        const auto* source = reinterpret_cast<const uint16_t*>(values + i * step);
        for (int64_t j = 0; j < kTileElements / 2; j += kPairElements) {
          _mm512_storeu_si512(place + j, _mm512_loadu_si512(source + j));
        }
      } else {
        unpack_values_wide(kKind, values + i * step, place);
      }
    }
  }

  // The page that would fill a tile up is not there: its values are zeros, its scores are masked.
  void load_no_page(int slot) {
    keys_[slot] = keys_[slot - 1];
    for (int64_t i = 0; i < head_dim_ / kLanes; ++i) {
      for (int64_t j = 0; j < kTileElements / 2; j += kPairElements) {
        _mm512_storeu_si512(value_place(slot, i) + j, _mm512_setzero_si512());
      }
    }
  }

  void score(int index, const TileWork& work) {
    multiply_tiles(
        query_tile(work.tile), query_tiles_, 0, query_tiles_,
        keys_ + work.block * kBlockPages + work.page_begin, work.page_end - work.page_begin,
        scratch_.scores + index * kTileRows * kBlockKeys + work.page_begin * kPageSize, kBlockKeys);
  }

  void store_weights(int index, int row, int page, const F32x16 (&weights)[kPageStep]) {
    uint16_t* place = work_weights(index) + page / 2 * kTileElements + row * 32;
    store_two_bf16(weights[0], weights[1], place, place + kBlockPages / 2 * kTileElements);
  }

  void weigh_values(int index, const TileWork& work) {
    for (int64_t i = 0; i < head_dim_ / kLanes; i += 4) {
      const int64_t left = head_dim_ / kLanes - i;
      const int count = left < 4 ? static_cast<int>(left) : 4;
      const uint16_t* values[4];
      for (int j = 0; j < count; ++j) values[j] = value_place(work.block * kBlockPages, i + j);
      multiply_tiles(work_weights(index), kBlockPages / 2, work.page_begin / 2, work.page_end / 2,
                     values, count, scratch_.products + index * kTileRows * head_dim_ + i * kLanes,
                     head_dim_);
    }
  }

 private:
  uint16_t* query_tile(int64_t tile) const {
    return reinterpret_cast<uint16_t*>(scratch_.queries) + tile * 2 * query_tiles_ * kTileElements;
  }
  uint16_t* work_weights(int index) const {
    return scratch_.weights + index * 2 * kTileRows * kBlockKeys;
  }
  // Values: [block][head_dim/16][two tiles of two pages][16 key pairs][16 dims][2 keys].
  uint16_t* value_place(int slot, int64_t dim_tile) const {
    const int page = slot % kBlockPages;
    return scratch_.values + slot / kBlockPages * kBlockKeys * head_dim_ +
           (dim_tile * (kBlockPages / 2) + page / 2) * kTileElements +
           page % 2 * (kTileElements / 2);
  }

  int64_t head_dim_;
  int64_t query_tiles_;
  const AttentionScratch& scratch_;
  TileScope scope_;
  const uint16_t* keys_[kBatchBlocks * kBlockPages] = {};
};

}  // namespace
}  // namespace paredown
