#include "model/model.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace paredown {
namespace {

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

ModelConfig checked(ModelConfig config) {
  check_config(config);
  return config;
}

}  // namespace

Model::Model(ModelConfig config, Isa isa, ThreadPlan threads)
    : config_(checked(std::move(config))),
      kernels_(kernel_table(isa)),
      threads_(threads),
      pool_(std::max(threads.prefill, threads.decode)),
      linears_(kernels_, pool_),
      kept_window_(config_.kept_window()),
      experts_(kernels_, pool_, linears_, expert_sizes(config_)),
      sampler_(kernels_, pool_),
      sizes_(row_sizes(config_)) {
  if (config_.embedding_norm) embedding_norm_.config = *config_.embedding_norm;
  if (config_.final_norm) final_norm_.config = *config_.final_norm;
  layers_.reserve(config_.layers.size());
  int64_t kv_bytes = 0;
  for (const LayerConfig& layer : config_.layers) {
    add_layer(layer);
    layers_.back().kv_offset = kv_bytes;
    kv_bytes += config_.num_pages * layer.page_bytes();
  }
  kv_ = AlignedBuffer(kv_bytes);
  slots_ = linear_slots(config_, layers_, output_);
  if (config_.head) {
    head_ =
        std::make_unique<HeadRunner>(kernels_, pool_, linears_, *config_.head, config_.hidden_size);
    for (HeadStep& step : head_->steps()) {
      slots_.push_back({step.role, 0, &step.linear, step.config.size, step.num_columns});
    }
  }
  slots_.push_back({kEmbeddingRole, 0, &embedding_rows_, config_.vocab_size, config_.hidden_size});
  for (size_t i = 0; i < slots_.size(); ++i) slots_by_name_[{slots_[i].layer, slots_[i].role}] = i;
}

void Model::add_layer(const LayerConfig& config) {
  Layer& layer = layers_.emplace_back();
  for (const NormRow& row : kNormRows) {
    if (config.norms[row.role]) layer.norms[row.role].config = *config.norms[row.role];
  }
  if (config.experts) layer.moe.experts.resize(static_cast<size_t>(config.experts->num));
  layer.kv_scales.resize(static_cast<size_t>(2 * config.attention.num_kv_heads));
  const AttentionShape shape = attention_shape(config.attention, config_.num_sinks);
  layer.attention = &attentions_.try_emplace(shape, kernels_, pool_, shape).first->second;
  if (config.cross) {
    const AttentionShape across = attention_shape(*config.cross, 0);
    layer.cross_attention =
        &cross_attentions_.try_emplace(across, kernels_, pool_, across).first->second;
  }
  layer.rotary = rotary_table(config.attention);
}

RotaryTable* Model::rotary_table(const AttentionConfig& attention) {
  if (attention.inverse_frequencies.empty()) return nullptr;
  const Turns turns = attention.turns();
  for (RotaryTable& table : rotary_tables_) {
    if (table.turns() == turns) return &table;
  }
  return &rotary_tables_.emplace_back(turns);
}

bool Model::is_long(const StepInput& input, size_t slice) const {
  if (config_.switch_tokens == 0) return false;
  const int64_t end = int64_t{input.starts[slice]} + input.lengths[slice];
  const int64_t known = input.text_lengths.empty() ? 0 : input.text_lengths[slice];
  return std::max(end, known) > config_.switch_tokens;
}

void Model::check(const StepInput& input) {
  if (!are_weights_checked_) check_weights();
  if (!config_.has_output) fail("a model without an output layer takes no steps");
  if (!config_.is_causal()) fail("a model whose tokens see later ones takes no steps");
  const size_t num_slices = input.starts.size();
  if (input.lengths.size() != num_slices || input.num_logits.size() != num_slices ||
      input.num_released.size() != num_slices || input.page_offsets.size() != num_slices + 1 ||
      (!input.text_lengths.empty() && input.text_lengths.size() != num_slices)) {
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
  check_cross(input);
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
  for (int64_t layer = 0; layer < config_.num_layers(); ++layer) {
    const KvView kv = kv_view(layer);
    const int64_t page_bytes = kv.num_kv_heads * kv_head_bytes(kv);
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
  sink_queries_ = AlignedBuffer(memory.sink_queries);
  for (RotaryTable& table : rotary_tables_) table.reserve(num_tokens, config_.num_sinks > 0);
  linears_.reserve(num_tokens, sizes_.max_columns);
  experts_.reserve(num_tokens);
  max_tokens_ = num_tokens;
}

int64_t Model::step_bytes() const {
  int64_t sum = linears_.num_bytes() + experts_.num_bytes() + text_kv_.num_bytes();
  if (head_ != nullptr) sum += head_->num_bytes();
  for (const auto& [shape, attention] : attentions_) sum += attention.num_bytes();
  for (const auto& [shape, attention] : cross_attentions_) sum += attention.num_bytes();
  for (const RotaryTable& table : rotary_tables_) sum += table.num_bytes();
  for (const AlignedBuffer* buffer : {&hidden_, &wide_, &attended_, &activated_, &sink_queries_}) {
    sum += buffer->num_bytes();
  }
  return sum;
}

}  // namespace paredown
