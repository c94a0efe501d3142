// Vectors of an index in the panels of a weight (kernels/kernel_table.h): a product of queries with
// all of them is a linear layer.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"
#include "machine/round_up.h"

namespace paredown {

// Rows are padded to so many: as many panels as any form multiplies together.
inline constexpr int64_t kVectorUnit = 64;
// Sums of int8 products of longer ones could overflow.
inline constexpr int64_t kMaxVectorDims = 65536;
inline constexpr int64_t kMaxVectors = int64_t{1} << 32;

// Vectors of so many numbers in fp32, bf16, or int8 with a scale for each.
struct VectorShape {
  WeightKind kind;
  int64_t num_vectors;
  int64_t num_dims;

  int64_t num_rows() const { return round_up(num_vectors, kVectorUnit); }
  int64_t num_columns() const { return round_up(num_dims, kBlockColumns); }
  bool has_scales() const { return kind == WeightKind::kInt8; }
  int64_t panel_bytes() const { return num_columns() / kBlockColumns * block_bytes(kind); }
  int64_t num_bytes() const { return num_rows() / kLanes * panel_bytes(); }
  int64_t num_scales() const { return has_scales() ? num_rows() : 0; }
};

// Throws std::invalid_argument for kinds and sizes that no index has.
void check_vectors(const VectorShape& shape);

// Packs [num_vectors][num_dims] finite floats into num_bytes() and num_scales(). int8: the largest
// magnitude becomes 127, and codes are rounded to nearest even.
void pack_vectors(const VectorShape& shape, const float* vectors, uint8_t* values, float* scales);

// The vectors as products meet them, [num_vectors][num_dims].
void unpack_vectors(const VectorShape& shape, const uint8_t* values, const float* scales,
                    float* vectors);

// values: 64-byte aligned. int8 queries meet them with a scale for each.
LinearView view_of(const VectorShape& shape, const uint8_t* values, const float* scales);

}  // namespace paredown
