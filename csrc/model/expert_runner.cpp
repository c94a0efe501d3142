#include "model/expert_runner.h"

#include <algorithm>
#include <cmath>

#include "machine/round_up.h"

namespace paredown {
namespace {

// Floats from one row to the next: a cache line more than a power of two, as in a Model.
int64_t stride_of(int64_t size) { return round_up(size, kBlockColumns) + kLanes; }

int64_t share_stride(const ExpertSizes& sizes) { return round_up(sizes.num, kLanes); }

}  // namespace

ExpertSizes expert_sizes(const ModelConfig& config) {
  ExpertSizes sizes{};
  for (const LayerConfig& layer : config.layers) {
    if (!layer.experts) continue;
    const ExpertConfig& experts = *layer.experts;
    sizes.hidden_size = config.hidden_size;
    sizes.num = std::max(sizes.num, experts.num);
    sizes.num_per_token = std::max(sizes.num_per_token, experts.num_per_token);
    for (const MlpConfig& mlp : {experts.mlp(), experts.shared_mlp()}) {
      sizes.up_size = std::max(sizes.up_size, mlp.up_size());
      sizes.size = std::max(sizes.size, mlp.size);
    }
  }
  return sizes;
}

ExpertMemory expert_memory(const ExpertSizes& sizes, int64_t num_tokens) {
  if (sizes.num == 0) return {};
  const int64_t row_bytes = num_tokens * 4;
  ExpertMemory memory{};
  memory.hidden = row_bytes * stride_of(sizes.hidden_size);
  memory.wide = row_bytes * stride_of(sizes.up_size);
  memory.activated = row_bytes * stride_of(sizes.size);
  memory.shares = row_bytes * share_stride(sizes);
  return memory;
}

ExpertRunner::ExpertRunner(const KernelTable& kernels, ThreadPool& pool, LinearRunner& linears,
                           const ExpertSizes& sizes)
    : kernels_(kernels),
      pool_(pool),
      linears_(linears),
      sizes_(sizes),
      hidden_stride_(stride_of(sizes.hidden_size)),
      wide_stride_(stride_of(sizes.up_size)),
      activated_stride_(stride_of(sizes.size)),
      share_stride_(share_stride(sizes)),
      begins_(static_cast<size_t>(sizes.num + 1)) {}

void ExpertRunner::reserve(int64_t num_tokens) {
  if (sizes_.num == 0) return;
  const ExpertMemory memory = expert_memory(sizes_, num_tokens);
  normed_ = AlignedBuffer(memory.hidden);
  outputs_ = AlignedBuffer(memory.hidden);
  wide_ = AlignedBuffer(memory.wide);
  activated_ = AlignedBuffer(memory.activated);
  shares_ = AlignedBuffer(memory.shares);
  // At least one for each token: so many are sent to a shared expert.
  const auto num_sent = static_cast<size_t>(num_tokens * sizes_.num_per_token);
  chosen_.resize(num_sent);
  weights_.resize(num_sent);
  sent_.resize(num_sent);
}

int64_t ExpertRunner::num_bytes() const {
  return normed_.num_bytes() + outputs_.num_bytes() + wide_.num_bytes() + activated_.num_bytes() +
         shares_.num_bytes();
}

void ExpertRunner::norm_rows(const NormView* norm, const HiddenRows& hidden, int64_t num_tokens) {
  const int64_t size = sizes_.hidden_size;
  for_rows(pool_, num_tokens, [&](int64_t t) {
    float* row = normed_.as<float>() + t * hidden_stride_;
    const float* given = hidden.values + t * hidden.row_stride;
    if (norm == nullptr) {
      std::copy_n(given, size, row);
    } else {
      kernels_.norm(*norm, given, row, size);
    }
    std::fill(row + size, row + round_up(size, kBlockColumns), 0.0f);
  });
}

// Softmax over the router's outputs, and the experts with the largest shares, the largest first.
void ExpertRunner::choose(const ExpertConfig& config, int64_t token) {
  float* shares = shares_.as<float>() + token * share_stride_;
  const int64_t num_experts = config.num;
  const float largest = *std::max_element(shares, shares + num_experts);
  float sum = 0.0f;
  for (int64_t e = 0; e < num_experts; ++e) sum += shares[e] = std::exp(shares[e] - largest);
  for (int64_t e = 0; e < num_experts; ++e) shares[e] /= sum;
  const auto first = static_cast<size_t>(token * config.num_per_token);
  float chosen_sum = 0.0f;
  for (int64_t rank = 0; rank < config.num_per_token; ++rank) {
    float* best = std::max_element(shares, shares + num_experts);  // the first of equal ones
    if (!(sum > 0.0f)) best = shares + rank;  // not numbers: no expert twice all the same
    chosen_[first + static_cast<size_t>(rank)] = static_cast<int32_t>(best - shares);
    weights_[first + static_cast<size_t>(rank)] = *best;
    chosen_sum += *best;
    *best = -1.0f;
  }
  if (!config.is_normalized) return;
  for (int64_t rank = 0; rank < config.num_per_token; ++rank) {
    weights_[first + static_cast<size_t>(rank)] /= chosen_sum;
  }
}

void ExpertRunner::group_by_expert(const ExpertConfig& config, int64_t num_tokens) {
  const auto num_sent = static_cast<size_t>(num_tokens * config.num_per_token);
  std::fill(begins_.begin(), begins_.end(), 0);
  for (size_t i = 0; i < num_sent; ++i) ++begins_[static_cast<size_t>(chosen_[i])];
  int64_t end = 0;
  for (int64_t& begin : begins_) {
    const int64_t count = begin;
    begin = end;
    end += count;
  }
  // Filling moves each expert's begin to its end, which is the next one's begin.
  for (size_t i = 0; i < num_sent; ++i) {
    const auto place = static_cast<size_t>(begins_[static_cast<size_t>(chosen_[i])]++);
    sent_[place] = {static_cast<int64_t>(i) / config.num_per_token, weights_[i]};
  }
  std::copy_backward(begins_.begin(), begins_.end() - 1, begins_.end());
  begins_.front() = 0;
}

void ExpertRunner::run_mlp(const ExpertLinears& linears, const MlpConfig& mlp, const Sent* sent,
                           int64_t num_rows) {
  auto normed = [&](int64_t i, float*) {
    return normed_.as<float>() + sent[i].token * hidden_stride_;
  };
  auto activated = [&](int64_t i, float*) {
    float* row = activated_.as<float>() + i * activated_stride_;
    // Rows of wider experts may have been here.
    std::fill(row + mlp.size, row + round_up(mlp.size, kBlockColumns), 0.0f);
    return row;
  };
  const Activation activation = mlp.activation;
  if (linears.up.parts.front().gated()) {
    linears_.run(linears.up, num_rows, normed,
                 {activated_.as<float>(), activated_stride_, false, false, true, activation});
  } else {
    linears_.run(linears.up, num_rows, normed,
                 {wide_.as<float>(), wide_stride_, false, false, false, activation});
    for_rows(pool_, num_rows, [&](int64_t i) {
      const float* gate = wide_.as<float>() + i * wide_stride_;
      kernels_.activate(activation, gate, mlp.gated ? gate + mlp.size : nullptr,
                        activated_.as<float>() + i * activated_stride_, mlp.size);
    });
  }
  linears_.run(linears.down, num_rows, activated,
               {outputs_.as<float>(), hidden_stride_, false, false, false, activation});
}

void ExpertRunner::add_outputs(const OutputRows& output, const Sent* sent, int64_t num_rows) {
  for_rows(pool_, num_rows, [&](int64_t i) {
    const float* added = outputs_.as<float>() + i * hidden_stride_;
    float* row = output.values + sent[i].token * output.row_stride;
    for (int64_t c = 0; c < sizes_.hidden_size; ++c) row[c] += sent[i].weight * added[c];
  });
}

void ExpertRunner::run(const ExpertConfig& config, const MoeMlp& layer, const NormView* norm,
                       const HiddenRows& hidden, const OutputRows& output, int64_t num_tokens) {
  norm_rows(norm, hidden, num_tokens);
  auto normed = [&](int64_t t, float*) { return normed_.as<float>() + t * hidden_stride_; };
  const OutputRows shares{shares_.as<float>(), share_stride_, false, false, false,
                          config.activation};
  linears_.run(layer.router, num_tokens, normed, shares);
  for_rows(pool_, num_tokens, [&](int64_t t) { choose(config, t); });
  group_by_expert(config, num_tokens);
  for (size_t e = 0; e < layer.experts.size(); ++e) {
    const int64_t num_rows = begins_[e + 1] - begins_[e];
    if (num_rows == 0) continue;
    const Sent* sent = sent_.data() + begins_[e];
    run_mlp(layer.experts[e], config.mlp(), sent, num_rows);
    add_outputs(output, sent, num_rows);
  }
  if (config.shared_size == 0) return;
  linears_.run(layer.shared_gate, num_tokens, normed, shares);
  for (int64_t t = 0; t < num_tokens; ++t) {
    const float gate = shares_.as<float>()[t * share_stride_];
    sent_[static_cast<size_t>(t)] = {t, 1.0f / (1.0f + std::exp(-gate))};
  }
  run_mlp(layer.shared, config.shared_mlp(), sent_.data(), num_tokens);
  add_outputs(output, sent_.data(), num_tokens);
}

}  // namespace paredown
