#include "model/model.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>

#include "machine/round_up.h"

namespace paredown {
namespace {

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

// Floats from one row to the next, and columns that a linear layer reads or writes at most.
struct RowSizes {
  int64_t max_columns;
  int64_t wide_stride;
  int64_t hidden_stride;
};

RowSizes row_sizes(const ModelConfig& config) {
  const int64_t q_size = config.num_heads * config.head_dim;
  const int64_t qkv_size = q_size + 2 * config.num_kv_heads * config.head_dim;
  const int64_t up_size = config.intermediate_size * (config.gated ? 2 : 1);
  const ExpertShape& experts = config.experts;
  const int64_t expert_size = std::max(experts.intermediate_size, experts.shared_intermediate_size);
  const int64_t columns =
      round_up(std::max({config.hidden_size, q_size, qkv_size, up_size, expert_size}), 32);
  // A cache line more than a power of two: rows side by side do not share their cache sets.
  return {columns, columns + kLanes, config.hidden_size + kLanes};
}

AttentionShape attention_shape(const ModelConfig& config, int64_t window) {
  return {config.num_heads, config.num_kv_heads, config.head_dim, window, config.num_sinks};
}

MlpShape mlp_shape(const ModelConfig& config) {
  return {config.hidden_size, config.gated, config.activation};
}

// Bytes of the buffers of a step.
struct StepMemory {
  int64_t hidden;
  int64_t wide;    // each of three
  int64_t angles;  // each of cosines and sines
  int64_t sink_queries;
  int64_t sink_angles;  // each
  LinearMemory linears;
  int64_t attention;  // of the runners of all windows
  ExpertMemory experts;

  int64_t total() const;
};

StepMemory step_memory(const ModelConfig& config, int num_threads, int64_t num_tokens) {
  const RowSizes sizes = row_sizes(config);
  const int64_t max_keys = std::min(config.max_positions, config.num_pages * kPageSize);
  StepMemory memory{};
  memory.hidden = num_tokens * sizes.hidden_stride * 4;
  memory.wide = num_tokens * sizes.wide_stride * 4;
  memory.angles = num_tokens * config.head_dim * 2;
  memory.linears = linear_memory(num_threads, num_tokens, sizes.max_columns);
  if (config.num_sinks > 0) {
    memory.sink_queries = num_tokens * (config.num_heads * config.head_dim + kLanes) * 4;
    memory.sink_angles = memory.angles;
  }
  for (const int64_t window : std::set(config.windows.begin(), config.windows.end())) {
    // Where pages are released, positions go on beyond what the pages hold.
    const int64_t last = window > 0 ? config.max_positions : max_keys;
    const AttentionMemory part =
        attention_memory(attention_shape(config, window), num_threads, num_tokens, last);
    memory.attention += AlignedBuffer::padded(part.partials) + AlignedBuffer::padded(part.scratch);
  }
  memory.experts = expert_memory(config.experts, mlp_shape(config), num_tokens);
  return memory;
}

int64_t StepMemory::total() const {
  int64_t sum = attention;
  for (const int64_t bytes : {hidden,
                              wide,
                              wide,
                              wide,
                              angles,
                              angles,
                              sink_queries,
                              sink_angles,
                              sink_angles,
                              linears.values,
                              linears.codes,
                              linears.scales,
                              linears.corrections,
                              linears.buffers,
                              linears.scratch,
                              experts.hidden,
                              experts.hidden,
                              experts.wide,
                              experts.activated,
                              experts.shares}) {
    sum += AlignedBuffer::padded(bytes);
  }
  return sum;
}

}  // namespace

int64_t step_bytes(const ModelConfig& config, int num_threads, int64_t num_tokens) {
  return step_memory(config, num_threads, num_tokens).total();
}

Model::Model(ModelConfig config, Isa isa, ThreadPlan threads)
    : config_(std::move(config)),
      kernels_(kernel_table(isa)),
      threads_(threads),
      pool_(std::max(threads.prefill, threads.decode)),
      linears_(kernels_, pool_),
      experts_(kernels_, pool_, linears_, config_.experts, mlp_shape(config_)),
      sampler_(kernels_, pool_) {
  const bool lanes_fit = config_.hidden_size % kLanes == 0 && config_.head_dim % kLanes == 0 &&
                         config_.intermediate_size % kLanes == 0;
  if (!lanes_fit) fail("hidden_size, head_dim and intermediate_size must be multiples of 16");
  const ExpertShape& experts = config_.experts;
  if (experts.intermediate_size % kLanes != 0 || experts.shared_intermediate_size % kLanes != 0) {
    fail("the intermediate sizes of experts must be multiples of 16");
  }
  if (experts.num_per_token < 0 || experts.num_per_token > experts.num_experts) {
    fail("a token is sent to at most as many experts as there are");
  }
  const size_t num_flags = experts.num_experts > 0 ? static_cast<size_t>(config_.num_layers) : 0;
  if (config_.expert_layers.size() != num_flags) fail("expert_layers has the wrong length");
  if (config_.num_kv_heads < 1 || config_.num_heads % config_.num_kv_heads != 0) {
    fail("num_heads must be a multiple of num_kv_heads");
  }
  if (static_cast<int64_t>(config_.kv.size()) != config_.num_layers) {
    fail("there must be a format of keys and values for each layer");
  }
  if (static_cast<int64_t>(config_.windows.size()) != config_.num_layers) {
    fail("there must be a window for each layer");
  }
  if (config_.num_sinks < 0 || config_.num_sinks > kChunkKeys) fail("too many sinks");
  for (const int64_t window : config_.windows) {
    if (window < 0) fail("a window must be positive, or 0 for none");
    attentions_.try_emplace(window, kernels_, pool_, attention_shape(config_, window));
  }
  if (!attentions_.empty() && attentions_.begin()->first > 0) {
    kept_window_ = attentions_.rbegin()->first;
  }
  if (config_.num_sinks > 0 &&
      (attentions_.size() != 1 || kept_window_ == 0 || config_.inverse_frequencies.empty())) {
    fail("sinks want one window of all layers and rotary positions");
  }
  layers_.resize(static_cast<size_t>(config_.num_layers));
  kv_scales_.assign(layers_.size(),
                    std::vector<float>(static_cast<size_t>(2 * config_.num_kv_heads)));
  int64_t kv_bytes = 0;
  for (const KvFormat& format : config_.kv) {
    kv_offsets_.push_back(kv_bytes);
    kv_bytes += config_.num_pages * config_.num_kv_heads * kv_head_bytes(format, config_.head_dim);
  }
  kv_ = AlignedBuffer(kv_bytes);
  for (size_t i = 0; i < num_flags; ++i) {
    if (!config_.expert_layers[i]) continue;
    layers_[i].moe.experts.resize(static_cast<size_t>(experts.num_experts));
  }
  const RowSizes sizes = row_sizes(config_);
  max_columns_ = sizes.max_columns;
  wide_stride_ = sizes.wide_stride;
  hidden_stride_ = sizes.hidden_stride;
}

void Model::check(const StepInput& input) const {
  const size_t num_slices = input.starts.size();
  if (input.lengths.size() != num_slices || input.num_logits.size() != num_slices ||
      input.num_released.size() != num_slices || input.page_offsets.size() != num_slices + 1) {
    fail("the slice arrays differ in length");
  }
  for (int32_t token : input.tokens) {
    if (token < 0 || token >= config_.vocab_size) {
      fail("token " + std::to_string(token) + " is outside the vocabulary");
    }
  }
  int64_t num_tokens = 0;
  for (size_t s = 0; s < num_slices; ++s) {
    const int64_t length = input.lengths[s];
    const int64_t end = int64_t{input.starts[s]} + length;
    const int64_t begin = input.page_offsets[s];
    const int64_t num_pages = int64_t{input.page_offsets[s + 1]} - begin;
    if (length < 1 || input.starts[s] < 0 || end > config_.max_positions) {
      fail("a slice of " + std::to_string(length) + " tokens at " +
           std::to_string(input.starts[s]) + " leaves the context of " +
           std::to_string(config_.max_positions));
    }
    if (input.num_logits[s] < 0 || input.num_logits[s] > length) fail("num_logits out of range");
    if (begin < 0 || (num_pages + input.num_released[s]) * kPageSize < end ||
        input.page_offsets[s + 1] > static_cast<int64_t>(input.pages.size())) {
      fail("a slice has too few pages");
    }
    check_released(input, s);
    num_tokens += length;
  }
  for (int32_t page : input.pages) {
    if (page < 0 || page >= config_.num_pages) fail("page " + std::to_string(page) + " is unknown");
  }
  if (num_tokens != static_cast<int64_t>(input.tokens.size())) {
    fail("the slices do not add up to the tokens");
  }
}

void Model::check_released(const StepInput& input, size_t slice) const {
  const int64_t num_released = input.num_released[slice];
  const int64_t sink_pages = (config_.num_sinks + kPageSize - 1) / kPageSize;
  const int64_t first = input.starts[slice] - kept_window_ + 1;
  const bool sees_them = kept_window_ == 0 || first < (sink_pages + num_released) * kPageSize;
  if (num_released < 0 || (num_released > 0 && sees_them)) {
    fail("a slice has released pages that it sees");
  }
}

void Model::copy_pages(std::span<const int32_t> pairs) {
  if (pairs.size() % 2 != 0) fail("a page to copy has no target");
  for (int32_t page : pairs) {
    if (page < 0 || page >= config_.num_pages) fail("page " + std::to_string(page) + " is unknown");
  }
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    const KvView kv = kv_view(layer);
    const int64_t page_bytes = config_.num_kv_heads * kv_head_bytes(kv);
    uint8_t* pages = kv.data;
    for (size_t i = 0; i < pairs.size(); i += 2) {
      std::memmove(pages + pairs[i + 1] * page_bytes, pages + pairs[i] * page_bytes,
                   static_cast<size_t>(page_bytes));
    }
  }
}

void Model::reserve(int64_t num_tokens) {
  if (num_tokens <= max_tokens_) return;
  max_tokens_ = 0;  // until all is there: of what follows, anything may find no memory
  const StepMemory memory = step_memory(config_, pool_.max_threads(), num_tokens);
  hidden_ = AlignedBuffer(memory.hidden);
  for (AlignedBuffer* buffer : {&wide_, &attended_, &activated_}) {
    *buffer = AlignedBuffer(memory.wide);
  }
  for (AlignedBuffer* buffer : {&cos_, &sin_}) *buffer = AlignedBuffer(memory.angles);
  for (AlignedBuffer* buffer : {&sink_cos_, &sink_sin_}) {
    *buffer = AlignedBuffer(memory.sink_angles);
  }
  sink_queries_ = AlignedBuffer(memory.sink_queries);
  linears_.reserve(num_tokens, max_columns_);
  if (config_.experts.num_experts > 0) experts_.reserve(num_tokens);
  max_tokens_ = num_tokens;
}

int64_t Model::step_bytes() const {
  int64_t sum = linears_.num_bytes() + experts_.num_bytes();
  for (const auto& [window, attention] : attentions_) sum += attention.num_bytes();
  for (const AlignedBuffer* buffer : {&hidden_, &wide_, &attended_, &activated_, &cos_, &sin_,
                                      &sink_queries_, &sink_cos_, &sink_sin_}) {
    sum += buffer->num_bytes();
  }
  return sum;
}

}  // namespace paredown
