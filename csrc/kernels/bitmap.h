// Weights of which many are zero: a bit for each number, and the numbers that are none.
//
// The values of a panel are a stream of its blocks, ascending, without gaps. A block is
//   one byte                 kBf16ShortBitmap only: 1 where the block is wide, else 0
//   eight masks of 64 bits   one for each 64 numbers of the dense block: bit 1, the number is there
//   the numbers of each mask, in the order of its bits
//     int8                   a byte each
//     bf16, and wide blocks  two bytes each
//     bf16 short             the lower bytes, then four bits each, two to a byte, the lower ones
//                            first: which of the panel's 16 upper bytes
// A mask of int8 is the quad of columns as it lies in the dense block. A mask of bf16 is two pairs
// of columns: first those of the one, then of the other; in blocks of short numbers eight by turns,
// which is how bytes interleave to words.
#pragma once

#include <cstdint>

#include "kernels/weight_kinds.h"

namespace paredown {

inline constexpr int64_t kMasks = 8;  // of a block
inline constexpr int64_t kMaskNumbers = 64;
inline constexpr int64_t kMaskBytes = kMasks * kMaskNumbers / 8;
// Blocks from one place that is written down (LinearView::bitmap) to the next.
inline constexpr int64_t kRunBlocks = 16;
// Kernels read as many bytes at once: no stream ends closer to the end of its memory.
inline constexpr int64_t kBitmapTailBytes = 64;
inline constexpr int kUpperBytes = 16;
inline constexpr uint8_t kZeroCode = 128;  // of int8

constexpr int64_t num_runs(int64_t num_columns) {
  return (num_columns / kBlockColumns + kRunBlocks - 1) / kRunBlocks;
}

constexpr bool has_wide_byte(WeightKind kind) { return kind == WeightKind::kBf16ShortBitmap; }

// Bytes of the numbers of one mask.
constexpr int64_t numbers_bytes(WeightKind kind, bool is_wide, int64_t count) {
  if (kind == WeightKind::kInt8Bitmap) return count;
  return kind == WeightKind::kBf16Bitmap || is_wide ? 2 * count : count + (count + 1) / 2;
}

// Where a bit's number stands among the 64 that its mask has in the dense block.
constexpr int64_t place_of_bit(WeightKind kind, bool is_wide, int64_t bit) {
  if (kind != WeightKind::kBf16ShortBitmap || is_wide) return bit;
  return bit / 8 % 2 * 32 + bit / 16 * 8 + bit % 8;
}

}  // namespace paredown
