// What is known of a model before its weights: a vector of layers, each with shapes of its own.
// Mirrors ModelSpec (src/paredown/spec/model.py).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/kernel_table.h"

namespace paredown {

// What a model may have at most, so that sums and products of sizes stay in 64 bits: sizes
// themselves end at kMaxSize, positions and tokens are 32-bit integers. Real models stay far below.
inline constexpr int64_t kMaxPositions = (int64_t{1} << 31) - 1;
inline constexpr int64_t kMaxHeadDim = int64_t{1} << 16;
inline constexpr int64_t kMaxExperts = int64_t{1} << 16;
inline constexpr int64_t kMaxRelativeDistance = int64_t{1} << 16;
inline constexpr int64_t kMaxKvBytes = int64_t{1} << 56;

struct NormConfig {
  NormKind kind;
  float eps;
};

// The norms that a layer may have, each or not. Those of the outputs come before a sublayer's
// output is added to its input, those of the sums after it (post-norm).
enum class NormRole {
  kAttention,
  kCross,
  kMlp,
  kAttentionOutput,
  kMlpOutput,
  kAttentionSum,
  kMlpSum,
  kQuery,
  kKey
};

struct NormRow {
  NormRole role;
  const char* name;
  bool is_of_heads;  // a norm of head_dim numbers, else of hidden_size
};

// By NormRole.
inline constexpr std::array<NormRow, 9> kNormRows = {{
    {NormRole::kAttention, "attention_norm", false},
    {NormRole::kCross, "cross_norm", false},
    {NormRole::kMlp, "mlp_norm", false},
    {NormRole::kAttentionOutput, "attention_output_norm", false},
    {NormRole::kMlpOutput, "mlp_output_norm", false},
    {NormRole::kAttentionSum, "attention_sum_norm", false},
    {NormRole::kMlpSum, "mlp_sum_norm", false},
    {NormRole::kQuery, "q_norm", true},
    {NormRole::kKey, "k_norm", true},
}};

template <class Value>
class ByNorm {
 public:
  Value& operator[](NormRole role) { return values_[static_cast<size_t>(role)]; }
  const Value& operator[](NormRole role) const { return values_[static_cast<size_t>(role)]; }

 private:
  std::array<Value, kNormRows.size()> values_{};
};

// What heads turn by: the frequencies of a text, those of a long one where they are others, and
// what cosines and sines are multiplied with.
struct Turns {
  std::vector<float> frequencies;
  std::vector<float> long_frequencies;
  float factor;

  auto operator<=>(const Turns&) const = default;
};

struct AttentionConfig {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t window;  // keys are seen at distances below this; 0: at any
  // Of the first dimensions of a head, twice as many as there are frequencies. Empty: no rotary
  // positions.
  std::vector<float> inverse_frequencies;
  float scale;  // of the products of queries and keys
  // Those of texts of more than ModelConfig::switch_tokens tokens; empty: the same.
  std::vector<float> long_inverse_frequencies = {};
  float attention_factor = 1.0f;  // of cosines and sines
  // Queries of position p are multiplied with 1 + beta ln(1 + p / num_positions), in whole numbers.
  float growth_beta = 0.0f;
  int64_t growth_positions = 1;
  // Norms of queries and of keys are taken over all heads at once, not over each.
  bool norms_span_heads = false;
  float soft_cap = 0.0f;  // scores become cap * tanh(score / cap); 0: they stay
  bool is_causal = true;  // no row sees a later key
  // Relative positions (T5, arXiv 1910.10683): numbers by head and distance are added to scores,
  // and all distances from this one on have the same. 0: there are none.
  int64_t max_distance = 0;

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  Turns turns() const { return {inverse_frequencies, long_inverse_frequencies, attention_factor}; }
};

struct MlpConfig {
  int64_t size;
  bool gated;
  Activation activation;

  // Rows of gate and up side by side.
  int64_t up_size() const { return gated ? 2 * size : size; }
};

// Mirrors Experts (src/paredown/spec/experts.py).
struct ExpertConfig {
  int64_t num;
  int64_t num_per_token;
  int64_t size;         // of each expert's MLP
  int64_t shared_size;  // of the expert that every token passes; 0: there is none
  bool is_normalized;
  bool gated;
  Activation activation;

  MlpConfig mlp() const { return {size, gated, activation}; }
  MlpConfig shared_mlp() const { return {shared_size, gated, activation}; }
};

// Whether the MLP reads what attention was added to, or what attention reads as well; there it has
// a norm of its own, or that of attention.
enum class Residual { kSequential, kParallel, kParallelOneNorm };

struct LayerConfig {
  AttentionConfig attention;
  // Attention to the tokens of an encoder, between attention and MLP. Its keys and values lie in
  // pages of the same form.
  std::optional<AttentionConfig> cross;
  // One of the two is there.
  std::optional<MlpConfig> mlp;
  std::optional<ExpertConfig> experts;
  ByNorm<std::optional<NormConfig>> norms;
  Residual residual;
  float residual_multiplier;  // of what attention and the MLP add
  KvFormat kv;

  // Of keys and values.
  int64_t page_bytes() const {
    return attention.num_kv_heads * kv_head_bytes(kv, attention.head_dim);
  }
  int64_t norm_size(const NormRow& row, int64_t hidden_size) const {
    if (!row.is_of_heads) return hidden_size;
    if (!attention.norms_span_heads) return attention.head_dim;
    return row.role == NormRole::kQuery ? attention.q_size() : attention.kv_size();
  }
};

// How the vectors of a text's tokens become one (src/paredown/spec/head.py).
enum class Pooling { kCls, kLast, kMean, kMeanSqrtLen, kWeightedMean, kMax, kMaxLogRelu };

// A linear layer, then an activation, then a norm.
struct HeadStepConfig {
  int64_t size;
  std::optional<Activation> activation;
  std::optional<NormConfig> norm;
  bool is_tied;  // its weight is the embedding
};

// What makes vectors, scores or labels of texts from the vectors of their tokens. Mirrors Head
// (src/paredown/spec/head.py).
struct HeadConfig {
  std::vector<HeadStepConfig> token_steps;
  std::vector<Pooling> pooling;  // side by side; none: there is a vector for each token
  std::vector<HeadStepConfig> steps;
  bool is_normalized;

  // Of a token before pooling, of a text before its steps, and of what comes out.
  int64_t token_size(int64_t hidden_size) const {
    return token_steps.empty() ? hidden_size : token_steps.back().size;
  }
  int64_t pooled_size(int64_t hidden_size) const {
    return token_size(hidden_size) * (pooling.empty() ? 1 : std::ssize(pooling));
  }
  int64_t output_size(int64_t hidden_size) const {
    return steps.empty() ? pooled_size(hidden_size) : steps.back().size;
  }
};

struct ModelConfig {
  int64_t vocab_size;
  int64_t hidden_size;
  int64_t max_positions;
  int64_t num_pages;
  // Attention sinks (arXiv 2309.17453): first tokens that are seen beside the windows. 0: none.
  int64_t num_sinks;
  float embedding_multiplier;  // of the token's vector, before learned positions are added
  float output_multiplier;     // of the logits
  std::optional<NormConfig> final_norm;
  std::vector<LayerConfig> layers;
  float output_soft_cap = 0.0f;  // logits become cap * tanh(logit / cap); 0: they stay
  // Longer texts turn by other frequencies from their first token on (longrope); 0: none does.
  int64_t switch_tokens = 0;
  int64_t num_token_types = 0;  // rows of the table of token types; 0: there is none
  std::optional<NormConfig> embedding_norm = {};  // on the sum of all tables
  bool has_output = true;                         // an encoder has no output layer
  std::optional<HeadConfig> head = {};

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  // Whether steps may come one after the other: no row sees a later one.
  bool is_causal() const;
  // Of the layers with relative positions, which share one table; null: there are none.
  const AttentionConfig* relative_attention() const;
  // Tokens of which some layer still sees keys and values, sinks apart; 0: all.
  int64_t kept_window() const;
};

// Throws std::invalid_argument for what no model can be.
void check_config(const ModelConfig& config);

}  // namespace paredown
