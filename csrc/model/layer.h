// The weights of a model's layers, and the places where linear layers belong.
#pragma once

#include <string>
#include <vector>

#include "model/attention_runner.h"
#include "model/expert_runner.h"
#include "model/linear_runner.h"
#include "model/model_config.h"
#include "model/rotary_table.h"

namespace paredown {

struct Norm {
  NormConfig config{};
  std::vector<float> weight;  // empty: there is none
  std::vector<float> bias;

  bool is_there() const { return !weight.empty(); }
  NormView view() const {
    return {config.kind, config.eps, weight.data(), bias.empty() ? nullptr : bias.data()};
  }
};

struct Layer {
  ByNorm<Norm> norms;
  LinearGroup qkv;
  LinearGroup out;
  LinearGroup cross_query;  // where the layer has cross-attention
  LinearGroup cross_kv;     // of an encoder's vectors
  LinearGroup cross_out;
  LinearGroup up;  // gate and up side by side when gated
  LinearGroup down;
  MoeMlp moe;  // in the place of up and down where the layer has experts
  // [keys, values][kv heads]; 0 until they are set.
  std::vector<float> kv_scales;
  int64_t kv_offset = 0;                       // of the layer's pages
  AttentionRunner* attention = nullptr;        // shared by the layers of one shape
  AttentionRunner* cross_attention = nullptr;  // null: there is none
  RotaryTable* rotary = nullptr;               // shared by those of the same turns; null: none
};

// What makes keys and values of an encoder's vectors: once for a text, in no step.
inline constexpr const char* kCrossKvRole = "cross_kv";
// The embedding, where it is packed as a linear layer.
inline constexpr const char* kEmbeddingRole = "embedding";

// The place of a linear layer, or of several that read the same input.
struct LinearSlot {
  std::string role;
  int64_t layer;
  LinearGroup* group;
  int64_t num_rows;
  int64_t num_columns;
  bool is_gated = false;  // its rows are gate and up side by side
  // A token is sent to so many of the experts with such a weight: num_per_token of num.
  int64_t num_experts = 0;  // 0: every token reads it
  int64_t num_per_token = 0;
};

// All places: those of the layers in their order, and the output layer where there is one. `layers`
// are as many as the config has, their experts as well.
std::vector<LinearSlot> linear_slots(const ModelConfig& config, std::vector<Layer>& layers,
                                     LinearGroup& output);

}  // namespace paredown
