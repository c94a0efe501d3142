// Weights of which many are zero (kernels/bitmap.h): chosen, packed, checked, and read row by row.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/bitmap.h"
#include "kernels/kernel_table.h"
#include "machine/thread_pool.h"
#include "weights/packed_shape.h"

namespace paredown {

// Whether a weight with so many zeros is read faster with a bit for each number
// (docs/internals/sparse.md). value_bits: of a number of the dense weight.
bool bitmap_pays(int value_bits, int64_t num_numbers, int64_t num_zeros);

// Whether a dense weight of this shape can be packed so: int8 with one zero point and int8 inputs,
// or bf16 with bf16 inputs.
bool may_be_bitmap(const PackedShape& dense);

// Zeros of both signs, among the first num_columns of each row.
int64_t count_zeros(const LinearView& dense, int64_t num_columns, ThreadPool& pool);

// A panel on its way into a weight.
struct BitmapPanel {
  std::vector<uint8_t> bytes;
  std::vector<int64_t> runs;  // in bytes from the panel's first
  std::array<uint8_t, kUpperBytes> upper_bytes;
};

// Panels of a weight of `kind` from the same one in its dense kind. What lies behind its rows and
// its first num_columns is zero.
std::vector<BitmapPanel> bitmap_panels(const LinearView& dense, WeightKind kind,
                                       int64_t num_columns, ThreadPool& pool);

// Whether blocks follow each other as the runs say and fill bitmap_bytes: a file may say anything.
bool bitmap_holds(const LinearView& w, int64_t bitmap_bytes);

// num_columns numbers as the dense weight has them: codes, or words.
void copy_bitmap_row(const LinearView& w, int64_t row, uint8_t* numbers);

}  // namespace paredown
