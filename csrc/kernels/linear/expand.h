// Weights whose zeros are a bit each (kernels/bitmap.h), as dense blocks. Include after a simd
// header.
#pragma once

#include "kernels/bitmap.h"
#include "kernels/decode.h"

namespace paredown {
namespace {

#if !defined(PAREDOWN_HAS_EXPAND)
inline U8x64 expand_bytes(const uint8_t* bytes, uint64_t mask, U8x64 rest) {
  uint8_t numbers[kMaskNumbers];
  store_u8(numbers, rest);
  for (uint64_t left = mask; left != 0; left &= left - 1) {
    numbers[__builtin_ctzll(left)] = *bytes++;
  }
  return load_u8(numbers);
}

// Numbers of 16 bits, the others zero.
inline I32x16 expand_words(const uint8_t* words, uint32_t mask) {
  uint16_t numbers[2 * kLanes] = {};
  for (uint32_t left = mask; left != 0; left &= left - 1, words += 2) {
    __builtin_memcpy(numbers + __builtin_ctz(left), words, 2);
  }
  return load_i(numbers);
}

// Numbers of 16 bits from their lower bytes and, in four bits, the places of their upper bytes
// among 16: of two pairs of columns, the others zero.
inline void expand_short(const uint8_t* lower, const uint8_t* places, uint64_t mask,
                         const uint8_t* upper_bytes, I32x16& first, I32x16& second) {
  uint16_t numbers[kMaskNumbers] = {};
  int64_t rank = 0;
  for (uint64_t left = mask; left != 0; left &= left - 1, ++rank) {
    const int64_t place = place_of_bit(WeightKind::kBf16ShortBitmap, false, __builtin_ctzll(left));
    const uint8_t upper = upper_bytes[places[rank / 2] >> 4 * (rank % 2) & 0xF];
    numbers[place] = static_cast<uint16_t>(upper << 8 | lower[rank]);
  }
  first = load_i(numbers);
  second = load_i(numbers + 2 * kLanes);
}
#endif

inline uint64_t load_mask(const uint8_t* masks, int64_t number) {
  uint64_t mask;
  __builtin_memcpy(&mask, masks + number * 8, sizeof(mask));
  return mask;
}

// A block that is being read, mask after mask.
struct BitmapBlock {
  const uint8_t* masks;
  const uint8_t* numbers;

  // The codes of the next quad.
  template <int kQuad>
  U8x64 quad() {
    const uint64_t mask = load_mask(masks, kQuad);
    const U8x64 codes = expand_bytes(numbers, mask, set_u8(kZeroCode));
    numbers += __builtin_popcountll(mask);
    return codes;
  }
  // Both pairs of the next mask, of numbers as they are or short.
  template <int kMask>
  void words(I32x16& first, I32x16& second) {
    const uint64_t mask = load_mask(masks, kMask);
    const auto low = static_cast<uint32_t>(mask);
    first = expand_words(numbers, low);
    second = expand_words(numbers + 2 * __builtin_popcount(low), static_cast<uint32_t>(mask >> 32));
    numbers += 2 * __builtin_popcountll(mask);
  }
  template <int kMask>
  void shorts(const uint8_t* upper_bytes, I32x16& first, I32x16& second) {
    const uint64_t mask = load_mask(masks, kMask);
    const int64_t count = __builtin_popcountll(mask);
    expand_short(numbers, numbers + count, mask, upper_bytes, first, second);
    numbers += count + (count + 1) / 2;
  }
};
// Of blocks without the byte that says whether they are wide.
inline BitmapBlock block_at(const uint8_t* masks) { return {masks, masks + kMaskBytes}; }

inline const uint8_t* block_after(WeightKind kind, const uint8_t* block) {
  const bool is_wide = has_wide_byte(kind) && *block == 1;
  const uint8_t* masks = block + (has_wide_byte(kind) ? 1 : 0);
  const uint8_t* next = masks + kMaskBytes;
  for (int64_t i = 0; i < kMasks; ++i) {
    next += numbers_bytes(kind, is_wide, __builtin_popcountll(load_mask(masks, i)));
  }
  return next;
}

// The block of a panel that begins at `column`.
inline const uint8_t* bitmap_columns(const LinearView& w, int64_t panel, int64_t column) {
  const int64_t block = column / kBlockColumns;
  const int64_t run = panel * num_runs(w.num_columns) + block / kRunBlocks;
  const uint8_t* found = static_cast<const uint8_t*>(w.values) + w.bitmap.runs[run];
  for (int64_t left = block % kRunBlocks; left > 0; --left) found = block_after(w.kind, found);
  return found;
}

// Columns [first, first + num_columns) of a panel of int8 as codes, one to a byte.
__attribute__((noinline)) void expand_codes(const LinearView& w, int64_t panel, int64_t first,
                                            int64_t num_columns, uint8_t* codes) {
  const uint8_t* at = bitmap_columns(w, panel, first);
  for (int64_t k = 0; k < num_columns; k += kBlockColumns, codes += kBlockColumns * kLanes) {
    BitmapBlock block = block_at(at);
    unroll<kQuads>([&](auto quad) { store_u8(codes + quad.value * 64, block.quad<quad.value>()); });
    at = block.numbers;
  }
}

// A block as bf16; returns the one after it.
inline const uint8_t* expand_words_block(const uint8_t* masks, uint8_t* pairs) {
  BitmapBlock block = block_at(masks);
  unroll<kMasks>([&](auto mask) {
    I32x16 first;
    I32x16 second;
    block.words<mask.value>(first, second);
    store_i(pairs + mask.value * 128, first);
    store_i(pairs + mask.value * 128 + 64, second);
  });
  return block.numbers;
}
inline const uint8_t* expand_short_block(const uint8_t* at, const uint8_t* upper_bytes,
                                         uint8_t* pairs) {
  if (*at == 1) return expand_words_block(at + 1, pairs);
  BitmapBlock block = block_at(at + 1);
  unroll<kMasks>([&](auto mask) {
    I32x16 first;
    I32x16 second;
    block.shorts<mask.value>(upper_bytes, first, second);
    store_i(pairs + mask.value * 128, first);
    store_i(pairs + mask.value * 128 + 64, second);
  });
  return block.numbers;
}

// Columns [first, first + num_columns) of a panel as blocks of bf16.
__attribute__((noinline)) void expand_pairs(const LinearView& w, int64_t panel, int64_t first,
                                            int64_t num_columns, uint8_t* pairs) {
  const uint8_t* at = bitmap_columns(w, panel, first);
  const uint8_t* upper_bytes = w.bitmap.upper_bytes + panel * kUpperBytes;
  const bool is_short = w.kind == WeightKind::kBf16ShortBitmap;
  for (int64_t k = 0; k < num_columns; k += kBlockColumns) {
    at = is_short ? expand_short_block(at, upper_bytes, pairs) : expand_words_block(at, pairs);
    pairs += block_bytes(WeightKind::kBf16);
  }
}

}  // namespace
}  // namespace paredown
