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
inline constexpr int64_t kMaxKvBytes = int64_t{1} << 56;

struct NormConfig {
  NormKind kind;
  float eps;
};

// The norms that a layer may have, each or not. Those of the outputs come before a sublayer's
// output is added to its input.
enum class NormRole { kAttention, kMlp, kAttentionOutput, kMlpOutput, kQuery, kKey };

struct NormRow {
  NormRole role;
  const char* name;
  bool is_of_heads;  // a norm of head_dim numbers, else of hidden_size
};

// By NormRole.
inline constexpr std::array<NormRow, 6> kNormRows = {{
    {NormRole::kAttention, "attention_norm", false},
    {NormRole::kMlp, "mlp_norm", false},
    {NormRole::kAttentionOutput, "attention_output_norm", false},
    {NormRole::kMlpOutput, "mlp_output_norm", false},
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
  int64_t window;  // 0: none
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

struct ModelConfig {
  int64_t vocab_size;
  int64_t hidden_size;
  int64_t max_positions;
  int64_t num_pages;
  // Attention sinks (arXiv 2309.17453): first tokens that are seen beside the windows. 0: none.
  int64_t num_sinks;
  float embedding_multiplier;  // of the token's vector, before learned positions are added
  float output_multiplier;     // of the logits
  NormConfig final_norm;
  std::vector<LayerConfig> layers;
  float output_soft_cap = 0.0f;  // logits become cap * tanh(logit / cap); 0: they stay
  // Longer texts turn by other frequencies from their first token on (longrope); 0: none does.
  int64_t switch_tokens = 0;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  // Tokens of which some layer still sees keys and values, sinks apart; 0: all.
  int64_t kept_window() const;
};

// Throws std::invalid_argument for what no model can be.
void check_config(const ModelConfig& config);

}  // namespace paredown
