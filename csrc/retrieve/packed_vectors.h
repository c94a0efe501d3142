// Packed vectors, and the scores of queries against them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "machine/aligned_buffer.h"
#include "machine/thread_pool.h"
#include "retrieve/query_rows.h"
#include "retrieve/vectors.h"

namespace paredown {

// Vectors as they lie in files. values: shape.num_bytes(), 64-byte aligned, scales:
// shape.num_scales().
struct StoredVectors {
  VectorShape shape;
  std::span<const uint8_t> values;
  std::span<const float> scales;
};

// The scores of queries against some rows, [query][stride], and the kernels' scratch memory.
struct Scores {
  int64_t num_rows;
  int64_t stride;
  AlignedBuffer values;
  AlignedBuffer scratch;

  Scores(int64_t num_queries, int64_t rows);

  const float* row(int64_t query) const { return values.as<float>() + query * stride; }
};

// Scores of each share of a job; the same memory as in the last search of so many queries.
class ShareScores {
 public:
  const std::vector<Scores>& of(int num_shares, int64_t num_queries);

 private:
  std::vector<Scores> scores_;
  int64_t num_queries_ = 0;  // that they are for
};

// Vectors whose bytes outlive it.
class PackedVectors {
 public:
  // Throws std::invalid_argument for what does not fit.
  PackedVectors(const KernelTable& kernels, const StoredVectors& stored);

  const VectorShape& shape() const { return shape_; }

  // Takes [num_rows][num_dims] finite floats.
  QueryRows rows_of(const float* queries, int64_t num_rows) const {
    return {kernels_, view_, queries, num_rows, shape_.num_dims};
  }

  // Scores the queries against rows [begin, end), multiples of kVectorUnit.
  void score(const QueryRows& queries, Range rows, const Scores& scores) const;

 private:
  const KernelTable& kernels_;
  VectorShape shape_;
  LinearView view_;
};

}  // namespace paredown
