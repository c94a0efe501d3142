#include "model/step_memory.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <vector>

#include "machine/aligned_buffer.h"
#include "machine/round_up.h"
#include "model/head_runner.h"
#include "model/rotary_table.h"

namespace paredown {
namespace {

constexpr int64_t kMaxPlannedTokens = int64_t{1} << 20;  // bytes of all buffers stay in 64 bits

void check_plan(const ModelConfig& config, int num_threads, int64_t num_tokens) {
  check_config(config);
  if (num_threads < 1 || num_threads > ThreadPool::kMaxThreads || num_tokens < 0 ||
      num_tokens > kMaxPlannedTokens) {
    throw std::invalid_argument("a step is planned for 0 to 2^20 tokens on threads that may be");
  }
}

void add_attention(StepMemory& memory, const AttentionShape& shape, int num_threads,
                   int64_t num_tokens, int64_t max_keys) {
  const AttentionMemory part = attention_memory(shape, num_threads, num_tokens, max_keys);
  memory.attention += AlignedBuffer::padded(part.partials) + AlignedBuffer::padded(part.scratch);
}

}  // namespace

RowSizes row_sizes(const ModelConfig& config) {
  int64_t widest = config.hidden_size;
  int64_t q_size = 0;
  for (const LayerConfig& layer : config.layers) {
    const AttentionConfig& attention = layer.attention;
    q_size = std::max(q_size, attention.q_size());
    widest = std::max(widest, attention.q_size() + 2 * attention.kv_size());
    if (layer.cross) {
      widest = std::max({widest, layer.cross->q_size(), 2 * layer.cross->kv_size()});
    }
    if (layer.mlp) widest = std::max(widest, layer.mlp->up_size());
    if (layer.experts) widest = std::max({widest, layer.experts->size, layer.experts->shared_size});
  }
  if (config.head) {
    widest = std::max(widest, head_sizes(*config.head, config.hidden_size).max_columns);
  }
  const int64_t columns = round_up(widest, 32);
  // A cache line more than a power of two: rows side by side do not share their cache sets.
  return {columns, columns + kLanes, config.hidden_size + kLanes,
          config.num_sinks > 0 ? q_size + kLanes : 0};
}

AttentionShape attention_shape(const AttentionConfig& attention, int64_t num_sinks) {
  return {attention.num_heads, attention.num_kv_heads, attention.head_dim, attention.window,
          num_sinks,           attention.soft_cap,     attention.is_causal};
}

StepMemory step_memory(const ModelConfig& config, int num_threads, int64_t num_tokens) {
  const RowSizes sizes = row_sizes(config);
  // What has no pages encodes whole texts.
  const int64_t num_kept = config.num_pages > 0 ? config.num_pages * kPageSize : num_tokens;
  const int64_t max_keys = std::min(config.max_positions, num_kept);
  StepMemory memory{};
  memory.hidden = num_tokens * sizes.hidden_stride * 4;
  memory.wide = num_tokens * sizes.wide_stride * 4;
  memory.sink_queries = num_tokens * sizes.sink_query_stride * 4;
  memory.linears = linear_memory(num_threads, num_tokens, sizes.max_columns);
  std::set<Turns> tables;
  std::set<AttentionShape> shapes;
  for (const LayerConfig& layer : config.layers) {
    const std::vector<float>& frequencies = layer.attention.inverse_frequencies;
    if (!frequencies.empty() && tables.insert(layer.attention.turns()).second) {
      const int64_t num_buffers = config.num_sinks > 0 ? 4 : 2;
      memory.rotary += num_buffers * AlignedBuffer::padded(RotaryTable::num_buffer_bytes(
                                         static_cast<int64_t>(frequencies.size()), num_tokens));
    }
    const AttentionShape shape = attention_shape(layer.attention, config.num_sinks);
    if (layer.cross) {
      const AttentionShape across = attention_shape(*layer.cross, 0);
      if (shapes.insert(across).second)
        add_attention(memory, across, num_threads, num_tokens, max_keys);
    }
    if (!shapes.insert(shape).second) continue;
    // Where pages are released, positions go on beyond what the pages hold.
    const int64_t last = shape.window > 0 && config.num_pages > 0 ? config.max_positions : max_keys;
    add_attention(memory, shape, num_threads, num_tokens, last);
  }
  memory.experts = expert_memory(expert_sizes(config), num_tokens);
  return memory;
}

int64_t StepMemory::total() const {
  int64_t sum = attention + rotary;
  for (const int64_t bytes :
       {hidden, wide, wide, wide, sink_queries, linears.values, linears.codes, linears.scales,
        linears.corrections, linears.buffers, linears.scratch, linears.sums, experts.hidden,
        experts.hidden, experts.wide, experts.activated, experts.shares}) {
    sum += AlignedBuffer::padded(bytes);
  }
  return sum;
}

int64_t largest_page_bytes(const ModelConfig& config) {
  int64_t largest = 0;
  for (const LayerConfig& layer : config.layers) largest = std::max(largest, layer.page_bytes());
  return largest;
}

bool TextGroup::takes(int64_t num_tokens) {
  const int64_t num_pages = divide_up(num_tokens, int64_t{kPageSize});
  const bool is_full =
      num_tokens_ > 0 && (num_tokens_ + num_tokens > kTokens || num_pages_ + num_pages > kPages);
  if (is_full) return false;
  num_tokens_ += num_tokens;
  num_pages_ += num_pages;
  return true;
}

int64_t encode_bytes(const ModelConfig& config, int num_threads, int64_t max_tokens) {
  check_plan(config, num_threads, max_tokens);
  const int64_t num_tokens = std::max(TextGroup::kTokens, max_tokens);
  const int64_t num_pages = std::max(TextGroup::kPages, divide_up(max_tokens, int64_t{kPageSize}));
  int64_t sum = step_memory(config, num_threads, num_tokens).total() +
                AlignedBuffer::padded(num_pages * largest_page_bytes(config));
  if (config.head) {
    const HeadMemory head = head_memory(*config.head, config.hidden_size, num_tokens, num_pages);
    sum += 2 * (AlignedBuffer::padded(head.tokens) + AlignedBuffer::padded(head.texts));
  }
  return sum;
}

int64_t step_bytes(const ModelConfig& config, int num_threads, int64_t num_tokens) {
  check_plan(config, num_threads, num_tokens);
  return step_memory(config, num_threads, num_tokens).total();
}

}  // namespace paredown
