#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <stdexcept>

namespace paredown {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

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
  if (config_.sparse_layers.size() != num_flags) fail("sparse_layers has the wrong length");
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
    if (!config_.sparse_layers[i]) continue;
    layers_[i].sparse.experts.resize(static_cast<size_t>(experts.num_experts));
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
  if (num_tokens > max_tokens_) {
    max_tokens_ = num_tokens;
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
  }
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

template <class Body>
void Model::for_rows(int64_t num_rows, Body&& body) {
  paredown::for_rows(pool_, num_rows, body);
}

NormView Model::norm_view(const Norm& norm) const {
  return {config_.norm, config_.norm_eps, norm.weight.data(),
          norm.bias.empty() ? nullptr : norm.bias.data()};
}

KvView Model::kv_view(int64_t layer) const {
  const auto index = static_cast<size_t>(layer);
  const KvFormat format = config_.kv[index];
  return {format.kind, kv_.as<uint8_t>() + kv_offsets_[index], config_.num_kv_heads,
          config_.head_dim, format.is_static ? kv_scales_[index].data() : nullptr};
}

void Model::embed_rows(const StepInput& input) {
  float* hidden = hidden_.as<float>();
  for_rows(num_tokens_, [&](int64_t t) {
    float* row = hidden + t * hidden_stride_;
    const int64_t position = rows_[static_cast<size_t>(t)].position;
    kernels_.embed(
        embedding_.kind,
        embedding_row(input.tokens[static_cast<size_t>(t)], wide_.as<float>() + t * wide_stride_),
        row, config_.hidden_size, false);
    if (positions_.num_rows > 0) {
      kernels_.embed(positions_.kind,
                     positions_.values + (position + position_offset_) * positions_.row_bytes, row,
                     config_.hidden_size, true);
    }
    turn(t, position);
  });
}

void Model::turn(int64_t t, int64_t position) {
  const int64_t half = config_.head_dim / 2;
  const int64_t last = config_.num_sinks + kept_window_ - 1;
  const int64_t num_frequencies = static_cast<int64_t>(config_.inverse_frequencies.size());
  for (int64_t i = 0; i < num_frequencies; ++i) {
    const float frequency = config_.inverse_frequencies[static_cast<size_t>(i)];
    const int64_t place = t * half + i;
    if (config_.num_sinks == 0) {
      const float angle = static_cast<float>(position) * frequency;
      cos_.as<float>()[place] = std::cos(angle);
      sin_.as<float>()[place] = std::sin(angle);
      continue;
    }
    // A text without end has positions whose angles a float would be off by whole radians.
    const double angle = static_cast<double>(position) * frequency;
    const double sink_angle = static_cast<double>(std::min(position, last)) * frequency;
    cos_.as<float>()[place] = static_cast<float>(std::cos(angle));
    sin_.as<float>()[place] = static_cast<float>(std::sin(angle));
    sink_cos_.as<float>()[place] = static_cast<float>(std::cos(sink_angle));
    sink_sin_.as<float>()[place] = static_cast<float>(std::sin(sink_angle));
  }
}

void Model::rotate_and_store(const Layer& layer, int64_t index) {
  const KvView kv = kv_view(index);
  const int64_t head_dim = config_.head_dim;
  const int64_t q_size = config_.num_heads * head_dim;
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  const bool has_norm = !layer.q_norm.weight.empty();
  const bool is_rotary = !config_.inverse_frequencies.empty();
  const NormView q_norm = norm_view(layer.q_norm);
  const NormView k_norm = norm_view(layer.k_norm);
  for_rows(num_tokens_, [&](int64_t t) {
    const Row& row = rows_[static_cast<size_t>(t)];
    float* query = wide_.as<float>() + t * wide_stride_;
    float* key = query + q_size;
    const float* cos = is_rotary ? cos_.as<float>() + t * head_dim / 2 : nullptr;
    const float* sin = is_rotary ? sin_.as<float>() + t * head_dim / 2 : nullptr;
    if (config_.num_sinks > 0) {
      float* sink_query = sink_queries_.as<float>() + t * (q_size + kLanes);
      std::copy_n(query, q_size, sink_query);
      kernels_.prepare_heads(
          {has_norm ? &q_norm : nullptr, sink_cos_.as<float>() + t * head_dim / 2,
           sink_sin_.as<float>() + t * head_dim / 2, query_scale, head_dim},
          sink_query, config_.num_heads);
    }
    kernels_.prepare_heads({has_norm ? &q_norm : nullptr, cos, sin, query_scale, head_dim}, query,
                           config_.num_heads);
    kernels_.prepare_heads({has_norm ? &k_norm : nullptr, cos, sin, 1.0f, head_dim}, key,
                           config_.num_kv_heads);
    kernels_.write_kv(kv, row.pages[row.position / kPageSize - row.num_released],
                      row.position % kPageSize, key, key + config_.num_kv_heads * head_dim);
  });
}

void Model::activate() {
  const int64_t size = config_.intermediate_size;
  for_rows(num_tokens_, [&](int64_t t) {
    const float* gate = wide_.as<float>() + t * wide_stride_;
    kernels_.activate(config_.activation, gate, config_.gated ? gate + size : nullptr,
                      activated_.as<float>() + t * wide_stride_, size);
  });
}

// The linear layers of `group` on the normed rows of hidden_: a row is normed and put into the form
// of its kernel while it is in the cache.
void Model::run_normed(const LinearGroup& group, const Norm& norm, int64_t num_rows,
                       const OutputRows& output) {
  const NormView view = norm_view(norm);
  const int64_t size = config_.hidden_size;
  auto normed = [&](int64_t t, float* row) {
    kernels_.norm(view, hidden_.as<float>() + t * hidden_stride_, row, size);
    std::fill(row + size, row + round_up(size, kBlockColumns), 0.0f);
    return row;
  };
  linears_.run(group, num_rows, normed, output);
}

void Model::run_layer(int64_t index) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  float* hidden = hidden_.as<float>();
  const OutputRows wide{wide_.as<float>(), wide_stride_, false, false, false, config_.activation};
  const OutputRows residual{hidden, hidden_stride_, true, false, false, config_.activation};
  run_normed(layer.qkv, layer.attention_norm, num_tokens_, wide);
  rotate_and_store(layer, index);
  attentions_.at(config_.windows[static_cast<size_t>(index)])
      .run(kv_view(index),
           {wide_.as<float>(), wide_stride_, attended_.as<float>(), wide_stride_, nullptr,
            sink_queries_.as<float>(), config_.num_heads * config_.head_dim + kLanes});
  auto attended = [&](int64_t t, float*) { return attended_.as<float>() + t * wide_stride_; };
  linears_.run(layer.out, num_tokens_, attended, residual);
  if (config_.is_sparse(index)) {
    experts_.run(layer.sparse, norm_view(layer.mlp_norm), residual, num_tokens_);
    return;
  }
  if (layer.up.parts.front().gated()) {
    run_normed(layer.up, layer.mlp_norm, num_tokens_,
               {activated_.as<float>(), wide_stride_, false, false, true, config_.activation});
  } else {
    run_normed(layer.up, layer.mlp_norm, num_tokens_, wide);
    activate();
  }
  auto activated = [&](int64_t t, float*) { return activated_.as<float>() + t * wide_stride_; };
  linears_.run(layer.down, num_tokens_, activated, residual);
}

void Model::write_logits(const StepInput& input, float* logits) {
  // Rows that need logits move to the front, in order: a row never moves past its own place.
  float* hidden = hidden_.as<float>();
  int64_t num_rows = 0;
  int64_t first = 0;
  for (size_t s = 0; s < input.lengths.size(); ++s) {
    const int64_t end = first + input.lengths[s];
    for (int64_t t = end - input.num_logits[s]; t < end; ++t, ++num_rows) {
      std::memmove(hidden + num_rows * hidden_stride_, hidden + t * hidden_stride_,
                   static_cast<size_t>(config_.hidden_size) * sizeof(float));
    }
    first = end;
  }
  if (num_rows == 0) return;
  run_normed(output_, final_norm_, num_rows,
             {logits, config_.vocab_size, false, false, false, config_.activation});
}

void Model::step(const StepInput& input, float* logits) {
  num_tokens_ = static_cast<int64_t>(input.tokens.size());
  if (num_tokens_ == 0) return;
  pool_.use(num_tokens_ <= kMaxDecodeTokens ? threads_.decode : threads_.prefill);
  rows_.clear();
  slices_.clear();
  for (size_t s = 0; s < input.starts.size(); ++s) {
    const int32_t* pages = input.pages.data() + input.page_offsets[s];
    const int64_t released = input.num_released[s];
    for (int64_t j = 0; j < input.lengths[s]; ++j) {
      rows_.push_back({input.starts[s] + j, pages, released});
    }
    slices_.push_back({pages, input.starts[s], input.lengths[s], released});
  }
  reserve(num_tokens_);
  for (auto& [window, attention] : attentions_) attention.plan(slices_);
  embed_rows(input);
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) run_layer(layer);
  write_logits(input, logits);
}

}  // namespace paredown
