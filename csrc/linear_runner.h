// Runs linear layers over token rows: puts the input into the form a weight wants, then splits the
// weight's panels over the threads. Owns the working memory for it.
#pragma once

#include <vector>

#include "kernels.h"
#include "packed_linear.h"
#include "thread_pool.h"

namespace paredown {

// Fewer rows than this are not worth waking the helpers for elementwise work.
inline constexpr int64_t kMinParallelRows = 8;

// Linear layers that read the same input and write side by side: q, k, v or gate, up. Parts of one
// weight format are merged by the loader; several parts remain when their formats differ.
struct LinearGroup {
  std::vector<PackedLinear> parts;
};

class LinearRunner {
 public:
  LinearRunner(const KernelTable& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  // Room for num_tokens rows of up to max_columns columns (a multiple of 32).
  void reserve(int64_t num_tokens, int64_t max_columns);

  // output += or = input @ weight.T + bias. Input rows are max_columns floats apart; what follows a
  // row's columns up to the next multiple of 32 must be zero.
  void run(const LinearGroup& group, const float* input, int64_t num_tokens, OutputRows output);

 private:
  const KernelTable& kernels_;
  ThreadPool& pool_;
  int64_t max_columns_ = 0;
  AlignedBuffer codes_;   // [T][columns]
  AlignedBuffer scales_;  // [T][columns / 32]
  AlignedBuffer sums_;    // [T][columns / 32]
  AlignedBuffer pairs_;   // [T][columns]
};

}  // namespace paredown
