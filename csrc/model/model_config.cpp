#include "model/model_config.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace paredown {
namespace {

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

// Sums and products only of what has passed this.
bool is_size(int64_t size) { return size >= 1 && size <= kMaxSize; }

// Rows of weights, and columns of what reads them.
void check_row(int64_t num_parts, int64_t part_size, const char* what) {
  if (num_parts > kMaxSize / part_size) {
    fail(std::string("there are more than 2^28 numbers in a row of ") + what);
  }
}

void check_attention(const AttentionConfig& attention) {
  if (!is_size(attention.num_heads) || !is_size(attention.num_kv_heads) ||
      attention.num_heads % attention.num_kv_heads != 0) {
    fail("num_heads must be a multiple of num_kv_heads");
  }
  if (attention.head_dim < 1 || attention.head_dim > kMaxHeadDim ||
      attention.head_dim % kLanes != 0) {
    fail("head_dim must be a multiple of 16, at most 65,536");
  }
  check_row(attention.num_heads + 2 * attention.num_kv_heads, attention.head_dim, "all heads");
  if (attention.window < 0 || attention.window > kMaxPositions) {
    fail("a window must be positive, or 0 for none");
  }
  if (2 * static_cast<int64_t>(attention.inverse_frequencies.size()) > attention.head_dim) {
    fail("there are more inverse frequencies than pairs of a head's dimensions");
  }
  if (!attention.long_inverse_frequencies.empty() &&
      attention.long_inverse_frequencies.size() != attention.inverse_frequencies.size()) {
    fail("long texts turn by as many frequencies as short ones");
  }
  if (!(attention.soft_cap >= 0.0f)) fail("a cap of scores is not negative");
  if (attention.max_distance < 0 || attention.max_distance > kMaxRelativeDistance) {
    fail("relative positions tell distances apart up to 65,536 at most");
  }
  if (attention.growth_positions < 1) fail("queries grow over at least one position");
}

void check_experts(const ExpertConfig& experts) {
  if (experts.num < 1 || experts.num > kMaxExperts || experts.num_per_token < 1 ||
      experts.num_per_token > experts.num) {
    fail("a token is sent to at least one expert and to at most as many as there are");
  }
  const bool is_valid = is_size(experts.size) && experts.size % kLanes == 0 &&
                        (experts.shared_size == 0 || is_size(experts.shared_size)) &&
                        experts.shared_size % kLanes == 0;
  if (!is_valid) fail("the intermediate sizes of experts must be multiples of 16");
  check_row(2, std::max(experts.size, experts.shared_size), "an expert");
}

void check_cross(const LayerConfig& layer) {
  const AttentionConfig& cross = *layer.cross;
  check_attention(cross);
  if (cross.num_kv_heads != layer.attention.num_kv_heads ||
      cross.head_dim != layer.attention.head_dim) {
    fail("cross-attention has the key heads of attention, whose pages it shares");
  }
  if (cross.is_causal || cross.window != 0 || cross.max_distance != 0 || cross.soft_cap != 0.0f ||
      cross.growth_beta != 0.0f || !cross.inverse_frequencies.empty()) {
    fail("cross-attention knows no positions");
  }
  if (layer.residual != Residual::kSequential || layer.residual_multiplier != 1.0f ||
      layer.kv.is_static) {
    fail("a layer with cross-attention is sequential and finds the scales of its keys itself");
  }
}

void check_layer(const LayerConfig& layer) {
  check_attention(layer.attention);
  if (layer.cross) check_cross(layer);
  if (layer.mlp.has_value() == layer.experts.has_value()) {
    fail("a layer has either an MLP or experts");
  }
  if (layer.mlp && (!is_size(layer.mlp->size) || layer.mlp->size % kLanes != 0)) {
    fail("the size of an MLP must be a multiple of 16");
  }
  if (layer.mlp) check_row(2, layer.mlp->size, "an MLP");
  if (layer.experts) check_experts(*layer.experts);
  const bool has_sum_norm = layer.norms[NormRole::kAttentionSum] || layer.norms[NormRole::kMlpSum];
  if (has_sum_norm && layer.residual != Residual::kSequential) {
    fail("a sum of attention and MLP beside each other has no norm of its own");
  }
}

void check_relative(const ModelConfig& config) {
  const AttentionConfig* first = config.relative_attention();
  for (const LayerConfig& layer : config.layers) {
    const AttentionConfig& attention = layer.attention;
    if (attention.max_distance == 0) continue;
    if (attention.max_distance != first->max_distance || attention.num_heads != first->num_heads) {
      fail("layers share one table of relative positions");
    }
    if (config.num_sinks > 0) fail("sinks want rotary positions alone");
  }
}

void check_steps(const std::vector<HeadStepConfig>& steps, const ModelConfig& config) {
  for (const HeadStepConfig& step : steps) {
    if (!is_size(step.size)) fail("a step of a head has 1 to 2^28 outputs");
    if (step.norm && step.size % kLanes != 0) {
      fail("the size of a step of a head that has a norm must be a multiple of 16");
    }
    if (step.is_tied && step.size != config.vocab_size) {
      fail("a step tied to the embedding has an output for each token of the vocabulary");
    }
  }
}

void check_head(const ModelConfig& config) {
  const HeadConfig& head = *config.head;
  check_steps(head.token_steps, config);
  check_steps(head.steps, config);
  if (head.pooling.empty() && !head.steps.empty()) fail("steps on texts want pooling");
  const int64_t num_parts = head.pooling.empty() ? 1 : std::ssize(head.pooling);
  check_row(num_parts, head.token_size(config.hidden_size), "what is pooled");
}

bool is_one_window(const ModelConfig& config) {
  return std::all_of(config.layers.begin(), config.layers.end(), [&](const LayerConfig& layer) {
    const AttentionConfig& attention = layer.attention;
    return attention.window > 0 && attention.window == config.layers.front().attention.window &&
           !attention.inverse_frequencies.empty();
  });
}

void check_pages(const ModelConfig& config) {
  if (config.num_pages < 0 || config.num_pages > kMaxPositions) {
    fail("the number of pages must be from 0 to 2^31 - 1");
  }
  int64_t left = kMaxKvBytes;
  for (const LayerConfig& layer : config.layers) {
    const int64_t page_bytes = layer.page_bytes();
    if (config.num_pages > left / page_bytes) fail("pages take more than any memory");
    left -= config.num_pages * page_bytes;
  }
}

}  // namespace

bool ModelConfig::is_causal() const {
  return std::all_of(layers.begin(), layers.end(),
                     [](const LayerConfig& layer) { return layer.attention.is_causal; });
}

const AttentionConfig* ModelConfig::relative_attention() const {
  for (const LayerConfig& layer : layers) {
    if (layer.attention.max_distance > 0) return &layer.attention;
  }
  return nullptr;
}

int64_t ModelConfig::kept_window() const {
  int64_t largest = 0;
  for (const LayerConfig& layer : layers) {
    if (layer.attention.window == 0) return 0;
    largest = std::max(largest, layer.attention.window);
  }
  return largest;
}

void check_config(const ModelConfig& config) {
  if (!is_size(config.hidden_size) || config.hidden_size % kLanes != 0) {
    fail("hidden_size must be a multiple of 16");
  }
  if (!is_size(config.vocab_size)) fail("a vocabulary has 1 to 2^28 tokens");
  if (config.max_positions < 1 || config.max_positions > kMaxPositions) {
    fail("positions are counted in 31 bits");
  }
  if (config.layers.empty()) fail("a model has at least one layer");
  for (const LayerConfig& layer : config.layers) {
    check_layer(layer);
    if (layer.cross.has_value() != config.layers.front().cross.has_value()) {
      fail("all layers have cross-attention, or none");
    }
  }
  check_pages(config);
  check_relative(config);
  if (config.head) check_head(config);
  if (config.num_token_types < 0 || config.num_token_types > kMaxSize) {
    fail("there are 0 to 2^28 token types");
  }
  if (config.num_sinks < 0 || config.num_sinks > kChunkKeys) fail("too many sinks");
  if (config.num_sinks > 0 && !is_one_window(config)) {
    fail("sinks want one window of all layers and rotary positions");
  }
}

}  // namespace paredown
