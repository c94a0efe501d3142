// Runs the attention of a step: cuts its query rows into tasks once, balances them over the
// threads, and runs them for each layer. Owns the working memory for it.
#pragma once

#include <compare>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"
#include "machine/aligned_buffer.h"
#include "machine/thread_pool.h"

namespace paredown {

// Consecutive tokens of one sequence.
struct AttentionSlice {
  const int32_t* pages;
  int64_t start;  // position of the first token
  int64_t num_tokens;
  int64_t num_released = 0;  // see AttentionTask
  // Of the whole text. Read where the shape is not causal.
  int64_t num_keys = 0;
};

struct AttentionShape {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t window;  // 0: none
  int64_t num_sinks = 0;
  float soft_cap = 0.0f;  // of scores; 0: none
  bool is_causal = true;

  auto operator<=>(const AttentionShape&) const = default;
};

// Bytes of the buffers of an AttentionRunner. `partials` is the most that any step of num_tokens
// tokens takes, none of which stands behind position max_keys.
struct AttentionMemory {
  int64_t partials;
  int64_t thread_scratch;  // of each thread
  int64_t scratch;
};
AttentionMemory attention_memory(const AttentionShape& shape, int num_threads, int64_t num_tokens,
                                 int64_t max_keys);

// What RelativeView has, of [heads][2 max_distance + 1] numbers by distance from query to key, the
// farthest key before the query first.
std::vector<float> relative_rows(std::span<const float> values, int64_t max_distance);

class AttentionRunner {
 public:
  AttentionRunner(const KernelTable& kernels, ThreadPool& pool, AttentionShape shape);

  // Slices in the order of their rows. Valid until the slices' page lists go.
  void plan(std::span<const AttentionSlice> slices);
  // `partials` of the rows is filled in.
  void run(const KvView& kv, AttentionRows rows);
  int64_t num_bytes() const { return partials_.num_bytes() + scratch_.num_bytes(); }

 private:
  int64_t cost(const AttentionTask& task) const;
  void add_tasks(const AttentionTask& whole, int64_t max_cost);
  void share_tasks(int64_t total);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  AttentionShape shape_;
  std::vector<AttentionTask> wholes_;  // all chunks of their rows
  std::vector<AttentionTask> tasks_;
  std::vector<AttentionTask> split_;  // those of wholes_ that several tasks share
  std::vector<int64_t> shares_;       // [threads + 1] first task of a share
  int64_t num_partial_floats_ = 0;
  AlignedBuffer partials_;
  AlignedBuffer scratch_;  // per thread
};

}  // namespace paredown
