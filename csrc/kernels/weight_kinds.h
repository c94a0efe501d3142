// The kinds of weights: one row for each of what the core knows of it. A kind that is added is a
// row here, its place in a block (weights/pack_block.cpp), a kernel and the kernel's row
// (kernels/linear/dispatch.h).
#pragma once

#include <cstdint>

namespace paredown {

inline constexpr int kLanes = 16;  // output rows of a panel, keys of a page
// Columns of a block: a panel is a run of equal blocks.
inline constexpr int64_t kBlockColumns = 32;
// Rows and columns of a weight at most, and of what a model works in: products of two, times the
// bytes of a number, stay in 64 bits.
inline constexpr int64_t kMaxSize = int64_t{1} << 28;

enum class WeightKind {
  kFp32,
  kFp16,
  kBf16,
  kBf16Short,
  kFp8,
  kInt2,
  kInt3,
  kInt4,
  kInt5,
  kInt6,
  kInt8,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Xs,
  kQ41,
  kQ51,
  kIq4Nl,
  kMxfp4,
  kInt8Bitmap,
  kBf16Bitmap,
  kBf16ShortBitmap
};

struct WeightTraits {
  WeightKind kind;
  const char* name;  // outside the core
  int bits;          // of a number
  bool is_integer;   // unsigned codes
  bool takes_bf16;   // inputs rounded to bf16
  // Columns of a block, bytes of a row of it before packing, and of 16 rows of it packed.
  int64_t block_columns;
  int64_t source_bytes;
  int64_t block_bytes;
  // Blocks have their own scales in them, and inputs in int8 with one scale for each
  // (kernels/block_forms.h).
  bool is_blocked = false;
  // Zeros are a bit each, and blocks as long as the numbers in them (kernels/bitmap.h).
  bool is_bitmap = false;

  constexpr bool has_scales() const { return bits <= 8 && !is_blocked; }
};

// A number of so many bits, in so many bytes before packing.
constexpr WeightTraits numbers(WeightKind kind, const char* name, int bits, int64_t bytes,
                               bool takes_bf16) {
  return {kind,
          name,
          bits,
          false,
          takes_bf16,
          kBlockColumns,
          kBlockColumns * bytes,
          kBlockColumns * kLanes / 8 * bits,
          false,
          false};
}
constexpr WeightTraits codes(WeightKind kind, const char* name, int bits) {
  WeightTraits traits = numbers(kind, name, bits, 1, true);
  traits.is_integer = true;
  return traits;
}
constexpr WeightTraits blocks(WeightKind kind, const char* name, int bits, int64_t columns,
                              int64_t source_bytes, int64_t row_bytes) {
  return {kind, name, bits, false, false, columns, source_bytes, row_bytes * kLanes, true, false};
}
constexpr WeightTraits bitmap(WeightTraits dense) {
  dense.block_bytes = 0;
  dense.is_bitmap = true;
  return dense;
}

// A packed weight is panels of 16 output rows, in a panel blocks, ascending. A block is
//   fp32, fp16  [32 columns][16 rows]
//   bf16        [16 pairs][16 rows][2 columns]
//   bf16 short  [4 quads of pairs]{[4 pairs][16 rows][2 columns] sign and mantissa in a byte,
//               [16 rows][2 columns][4 pairs] four bits: which of ShortBf16 the exponent is}
//   fp8         [8 quads][16 rows][4 columns in the order 0, 2, 1, 3]    e4m3
//   int8        [8 quads][16 rows][4 columns]                            unsigned codes
//   int2..int6  planes of 4, 2 and 1 bits, the low bits of a code first (6 = 4 + 2, 5 = 4 + 1,
//               3 = 2 + 1); a plane of b bits is [b][16 rows][4 bytes], the byte of quad q at
//               [q / (8 / b)] and bit b * (q % (8 / b))
//   q2_k...     see kernels/block_forms.h
//   ..._bitmap  see kernels/bitmap.h
// The bf16 pairs and the int8 quads are B tiles of AMX as they lie.
inline constexpr WeightTraits kWeightTraits[] = {
    numbers(WeightKind::kFp32, "fp32", 32, 4, false),
    numbers(WeightKind::kFp16, "fp16", 16, 2, false),
    numbers(WeightKind::kBf16, "bf16", 16, 2, true),
    numbers(WeightKind::kBf16Short, "bf16_short", 12, 2, true),
    numbers(WeightKind::kFp8, "fp8", 8, 1, true),
    codes(WeightKind::kInt2, "int2", 2),
    codes(WeightKind::kInt3, "int3", 3),
    codes(WeightKind::kInt4, "int4", 4),
    codes(WeightKind::kInt5, "int5", 5),
    codes(WeightKind::kInt6, "int6", 6),
    codes(WeightKind::kInt8, "int8", 8),
    blocks(WeightKind::kQ2K, "q2_k", 2, 256, 84, 84),
    blocks(WeightKind::kQ3K, "q3_k", 3, 256, 110, 110),
    blocks(WeightKind::kQ4K, "q4_k", 4, 256, 144, 144),
    blocks(WeightKind::kQ5K, "q5_k", 5, 256, 176, 176),
    blocks(WeightKind::kQ6K, "q6_k", 6, 256, 210, 210),
    blocks(WeightKind::kIq4Xs, "iq4_xs", 4, 256, 136, 138),
    blocks(WeightKind::kQ41, "q4_1", 4, kBlockColumns, 20, 20),
    blocks(WeightKind::kQ51, "q5_1", 5, kBlockColumns, 24, 24),
    blocks(WeightKind::kIq4Nl, "iq4_nl", 4, kBlockColumns, 18, 18),
    blocks(WeightKind::kMxfp4, "mxfp4", 4, kBlockColumns, 17, 18),
    bitmap(codes(WeightKind::kInt8Bitmap, "int8_bitmap", 8)),
    bitmap(numbers(WeightKind::kBf16Bitmap, "bf16_bitmap", 16, 2, true)),
    bitmap(numbers(WeightKind::kBf16ShortBitmap, "bf16_short_bitmap", 12, 2, true)),
};

constexpr bool are_in_order() {
  int next = 0;
  for (const WeightTraits& traits : kWeightTraits) {
    if (static_cast<int>(traits.kind) != next++) return false;
  }
  return true;
}
static_assert(are_in_order());

constexpr const WeightTraits& traits_of(WeightKind kind) {
  return kWeightTraits[static_cast<int>(kind)];
}
constexpr int weight_bits(WeightKind kind) { return traits_of(kind).bits; }
constexpr bool is_integer(WeightKind kind) { return traits_of(kind).is_integer; }
constexpr int64_t block_bytes(WeightKind kind) { return traits_of(kind).block_bytes; }

}  // namespace paredown
