#include "model/attention_runner.h"

#include <algorithm>
#include <numbers>

#include "machine/round_up.h"

namespace paredown {
namespace {

// A task of more than this part of a thread's share is split over its chunks, so that the shares of
// a few long contexts come out even.
constexpr int64_t kTasksPerThread = 4;

// The first key, sinks apart, that the first row of a task sees.
int64_t first_key(const AttentionTask& task) {
  const int64_t position = task.start + task.row_begin / task.heads_per_kv;
  return std::max(task.num_sinks, task.window > 0 ? position - task.window + 1 : 0);
}

// The key behind the last one that its last row sees.
int64_t end_key(const AttentionTask& task) {
  const int64_t end = task.start + (task.row_end - 1) / task.heads_per_kv + 1;
  if (task.num_keys == 0) return end;
  return task.window > 0 ? std::min(end + task.window - 1, task.num_keys) : task.num_keys;
}

}  // namespace

// Each whole that is split costs more than its part of the total, so that fewer than as many are.
AttentionMemory attention_memory(const AttentionShape& shape, int num_threads, int64_t num_tokens,
                                 int64_t max_keys) {
  AttentionMemory memory{};
  memory.thread_scratch =
      attention_scratch_floats(shape.head_dim) * static_cast<int64_t>(sizeof(float));
  memory.scratch = num_threads * memory.thread_scratch;
  const int64_t heads_per_kv = shape.num_heads / shape.num_kv_heads;
  int64_t num_chunks = divide_up(max_keys, kChunkKeys);
  if (shape.window > 0) {
    // The keys of all tokens of a task begin anywhere in a chunk.
    const int64_t task_tokens = std::min(num_tokens, divide_up(kTaskRows - 1, heads_per_kv) + 1);
    const int64_t num_keys = (shape.is_causal ? 1 : 2) * shape.window + task_tokens - 1;
    num_chunks = std::min(num_chunks, divide_up(num_keys - 1, kChunkKeys) + 1);
  }
  if (num_threads == 1 || num_chunks < 2) return memory;
  if (shape.num_sinks > 0) ++num_chunks;
  const int64_t whole_rows = std::min<int64_t>(kTaskRows, num_tokens * heads_per_kv);
  const int64_t most_rows = (kTasksPerThread * num_threads - 1) * whole_rows;
  memory.partials = std::min(most_rows, num_tokens * shape.num_heads) * num_chunks *
                    partial_floats(shape.head_dim) * static_cast<int64_t>(sizeof(float));
  return memory;
}

// Scores are kept in powers of two (kernels/attention/scratch.h).
std::vector<float> relative_rows(std::span<const float> values, int64_t max_distance) {
  const int64_t num_distances = 2 * max_distance + 1;
  std::vector<float> rows;
  for (auto head = values.begin(); head != values.end(); head += num_distances) {
    for (int64_t i = 1 - kLanes; i < num_distances + kLanes - 1; ++i) {
      const double value = head[std::clamp<int64_t>(i, 0, num_distances - 1)];
      rows.push_back(static_cast<float>(value * std::numbers::log2e));
    }
  }
  return rows;
}

AttentionRunner::AttentionRunner(const KernelTable& kernels, ThreadPool& pool, AttentionShape shape)
    : kernels_(kernels),
      pool_(pool),
      shape_(shape),
      scratch_(attention_memory(shape, pool.max_threads(), 0, 0).scratch) {}

// Tiles times blocks, and one more tile for loading a block.
int64_t AttentionRunner::cost(const AttentionTask& task) const {
  const int64_t first = std::max(task.chunk_begin * kChunkKeys, first_key(task));
  const int64_t end = std::min(end_key(task), task.chunk_end * kChunkKeys);
  int64_t num_blocks = std::max<int64_t>(0, divide_up(end, kBlockKeys) - first / kBlockKeys);
  if (task.has_sinks) num_blocks += divide_up(task.num_sinks, kBlockKeys);
  return num_blocks * (divide_up(task.row_end - task.row_begin, kTileRows) + 1);
}

void AttentionRunner::plan(std::span<const AttentionSlice> slices) {
  const int64_t heads_per_kv = shape_.num_heads / shape_.num_kv_heads;
  wholes_.clear();
  tasks_.clear();
  split_.clear();
  num_partial_floats_ = 0;
  int64_t token = 0;
  int64_t total = 0;
  for (const AttentionSlice& slice : slices) {
    const int64_t num_rows = slice.num_tokens * heads_per_kv;
    for (int64_t kv_head = 0; kv_head < shape_.num_kv_heads; ++kv_head) {
      for (int64_t row = 0; row < num_rows; row += kTaskRows) {
        AttentionTask task{};
        task.pages = slice.pages;
        task.num_released = slice.num_released;
        task.start = slice.start;
        task.token = token;
        task.window = shape_.window;
        task.num_keys = shape_.is_causal ? 0 : slice.num_keys;
        task.num_sinks = shape_.num_sinks;
        task.kv_head = kv_head;
        task.heads_per_kv = heads_per_kv;
        task.row_begin = row;
        task.row_end = std::min(num_rows, row + kTaskRows);
        task.has_sinks = shape_.num_sinks > 0;
        task.partial = -1;
        task.soft_cap = shape_.soft_cap;
        task.chunk_begin = first_key(task) / kChunkKeys;
        task.chunk_end = divide_up(end_key(task), kChunkKeys);
        total += cost(task);
        wholes_.push_back(task);
      }
    }
    token += slice.num_tokens;
  }
  const int64_t max_cost = divide_up(total, kTasksPerThread * pool_.num_threads());
  for (const AttentionTask& whole : wholes_) add_tasks(whole, max_cost);
  const int64_t num_bytes = num_partial_floats_ * static_cast<int64_t>(sizeof(float));
  if (num_bytes > partials_.num_bytes()) partials_ = AlignedBuffer(num_bytes);
  share_tasks(total);
}

void AttentionRunner::add_tasks(const AttentionTask& whole, int64_t max_cost) {
  const int64_t num_chunks = whole.chunk_end - whole.chunk_begin;
  const int64_t num_tasks = std::min(num_chunks, divide_up(cost(whole), max_cost));
  if (pool_.num_threads() == 1 || num_tasks < 2) {
    tasks_.push_back(whole);
    return;
  }
  const int64_t chunk_floats = (whole.row_end - whole.row_begin) * partial_floats(shape_.head_dim);
  split_.push_back(whole);
  split_.back().partial = num_partial_floats_;
  for (int64_t i = 0; i < num_tasks; ++i) {
    AttentionTask part = whole;
    part.chunk_begin = whole.chunk_begin + num_chunks * i / num_tasks;
    part.chunk_end = whole.chunk_begin + num_chunks * (i + 1) / num_tasks;
    part.has_sinks = whole.has_sinks && i == 0;
    part.partial = num_partial_floats_;
    tasks_.push_back(part);
    num_partial_floats_ += (part.chunk_end - part.chunk_begin + part.has_sinks) * chunk_floats;
  }
}

// Contiguous shares of about equal cost: neighbours read the same pages.
void AttentionRunner::share_tasks(int64_t total) {
  const int64_t num_shares = pool_.num_threads();
  shares_.assign(static_cast<size_t>(num_shares) + 1, static_cast<int64_t>(tasks_.size()));
  shares_[0] = 0;
  int64_t share = 1;
  int64_t done = 0;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const int64_t task_cost = cost(tasks_[i]);
    while (share < num_shares && 2 * done + task_cost > 2 * total * share / num_shares) {
      shares_[static_cast<size_t>(share++)] = static_cast<int64_t>(i);
    }
    done += task_cost;
  }
}

void AttentionRunner::run(const KvView& kv, AttentionRows rows) {
  rows.partials = partials_.as<float>();
  const auto range_of = [&](int share, int) {
    const auto index = static_cast<size_t>(share);
    return Range{shares_[index], shares_[index + 1]};
  };
  pool_.run_ranges(range_of, [&](int share, const Range& tasks) {
    float* scratch = scratch_.as<float>() + share * attention_scratch_floats(shape_.head_dim);
    for (int64_t i = tasks.begin; i < tasks.end; ++i) {
      kernels_.attend(kv, rows, tasks_[static_cast<size_t>(i)], scratch);
    }
  });
  if (split_.empty()) return;
  pool_.run_items(static_cast<int64_t>(split_.size()), [&](int, const Range& wholes) {
    for (int64_t i = wholes.begin; i < wholes.end; ++i) {
      kernels_.merge(kv, rows, split_[static_cast<size_t>(i)]);
    }
  });
}

}  // namespace paredown
