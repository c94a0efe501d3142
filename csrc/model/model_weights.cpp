// The weights of a Model: packed or borrowed, and checked against its config.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "model/model.h"
#include "weights/short_bf16.h"

namespace paredown {
namespace {

constexpr uintptr_t kAlignment = 64;  // of borrowed bytes: kernels read whole vectors

int64_t element_bytes(WeightKind kind) { return kind == WeightKind::kFp32 ? 4 : 2; }

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

void check_group(const LinearGroup& group, const std::string& role, int64_t num_rows,
                 int64_t num_columns) {
  int64_t found = 0;
  for (const PackedLinear& part : group.parts) {
    found += part.view().num_rows;
    if (part.view().num_columns !=
        (num_columns + kBlockColumns - 1) / kBlockColumns * kBlockColumns) {
      fail(role + " has the wrong number of columns");
    }
    if (part.gated() && group.parts.size() != 1) fail(role + " is gated in part");
  }
  if (found != num_rows) fail(role + " has the wrong number of rows");
}

void check_norm(const Norm& norm, const std::string& role, int64_t size) {
  if (static_cast<int64_t>(norm.weight.size()) != size ||
      (!norm.bias.empty() && norm.bias.size() != norm.weight.size())) {
    fail(role + " has the wrong size");
  }
}

constexpr std::string_view kExperts = "experts.";

std::string expert_name(size_t expert) { return std::string(kExperts) + std::to_string(expert); }

void keep_copy(Table& table) {
  const auto num_bytes = static_cast<size_t>(table.num_rows * table.row_bytes);
  table.memory = AlignedBuffer(static_cast<int64_t>(num_bytes));
  std::memcpy(table.memory.get(), table.values, num_bytes);
  table.values = table.memory.as<uint8_t>();
}

}  // namespace

LinearGroup& Model::linear_group(const std::string& role, int64_t layer) {
  if (role == "output") return output_;
  if (layer < 0 || layer >= config_.num_layers) fail("no layer " + std::to_string(layer));
  Layer& target = layers_[static_cast<size_t>(layer)];
  if (role == "qkv") return target.qkv;
  if (role == "o") return target.out;
  if (config_.has_experts(layer)) return expert_group(target.moe, role);
  if (role == "up") return target.up;
  if (role == "down") return target.down;
  fail("unknown linear role '" + role + "'");
}

// "router", "shared_gate", "shared.up", "shared.down", "experts.5.up", "experts.5.down".
LinearGroup& Model::expert_group(MoeMlp& moe, const std::string& role) {
  if (role == "router") return moe.router;
  const bool has_shared = config_.experts.shared_intermediate_size > 0;
  if (role == "shared_gate" && has_shared) return moe.shared_gate;
  const size_t dot = role.rfind('.');
  const std::string owner = role.substr(0, dot);
  ExpertLinears* linears = owner == "shared" && has_shared ? &moe.shared : nullptr;
  const std::string number =
      owner.substr(0, kExperts.size()) == kExperts ? owner.substr(kExperts.size()) : std::string();
  size_t expert = 0;
  const char* end = number.data() + number.size();
  if (std::from_chars(number.data(), end, expert).ptr == end && !number.empty() &&
      expert < moe.experts.size()) {
    linears = &moe.experts[expert];
  }
  if (linears != nullptr && dot != std::string::npos) {
    if (role.substr(dot) == ".up") return linears->up;
    if (role.substr(dot) == ".down") return linears->down;
  }
  fail("unknown linear role '" + role + "'");
}

// Of the MLP that a role is of.
int64_t Model::inner_size(const std::string& role) const {
  if (role.starts_with(kExperts)) return config_.experts.intermediate_size;
  if (role.starts_with("shared.")) return config_.experts.shared_intermediate_size;
  return config_.intermediate_size;
}

Norm& Model::norm_slot(const std::string& role, int64_t layer) {
  if (role == "final_norm") return final_norm_;
  if (layer < 0 || layer >= config_.num_layers) fail("no layer " + std::to_string(layer));
  Layer& target = layers_[static_cast<size_t>(layer)];
  if (role == "attention_norm") return target.attention_norm;
  if (role == "mlp_norm") return target.mlp_norm;
  if (role == "q_norm") return target.q_norm;
  if (role == "k_norm") return target.k_norm;
  fail("unknown norm role '" + role + "'");
}

void Model::add_linear(const std::string& role, int64_t layer, const LinearSource& source) {
  LinearSource gated = source;
  // Gate and up of one format are packed in turn, so that gate * up is finished in registers.
  const bool is_up = role == "up" || role.ends_with(".up");
  gated.gated = is_up && config_.gated && source.num_rows == 2 * inner_size(role);
  gated.short_exponents = kernels_.prefers_short_bf16;
  linear_group(role, layer).parts.emplace_back(gated, pool_);
}

void Model::set_norm(const std::string& role, int64_t layer, std::vector<float> weight,
                     std::vector<float> bias) {
  norm_slot(role, layer) = {std::move(weight), std::move(bias)};
}

void Model::set_kv_scales(int64_t layer, std::span<const float> keys,
                          std::span<const float> values) {
  if (layer < 0 || layer >= config_.num_layers) fail("no layer " + std::to_string(layer));
  std::vector<float> scales(keys.begin(), keys.end());
  scales.insert(scales.end(), values.begin(), values.end());
  const bool are_positive = std::all_of(scales.begin(), scales.end(),
                                        [](float x) { return x > 0.0f && std::isfinite(x); });
  if (keys.size() != values.size() || static_cast<int64_t>(keys.size()) != config_.num_kv_heads ||
      !are_positive) {
    fail("scales of keys and values are finite numbers above 0, one for each kv head");
  }
  kv_scales_[static_cast<size_t>(layer)] = std::move(scales);
}

Table Model::make_table(WeightKind kind, std::span<const uint8_t> bytes) const {
  const int64_t row_bytes = config_.hidden_size * element_bytes(kind);
  const int64_t num_bytes = static_cast<int64_t>(bytes.size());
  if (num_bytes % row_bytes != 0) fail("a table does not have whole rows");
  return {kind, num_bytes / row_bytes, row_bytes, bytes.data(), {}};
}

void Model::borrow_embedding(WeightKind kind, std::span<const uint8_t> bytes) {
  Table table = make_table(kind, bytes);
  if (table.num_rows != config_.vocab_size) fail("the embedding table has the wrong size");
  embedding_ = std::move(table);
  tied_ = false;
}

void Model::borrow_positions(WeightKind kind, std::span<const uint8_t> bytes, int64_t offset) {
  Table table = make_table(kind, bytes);
  if (offset < 0 || table.num_rows < config_.max_positions + offset) {
    fail("the position table is too short");
  }
  positions_ = std::move(table);
  position_offset_ = offset;
}

void Model::set_embedding(WeightKind kind, std::span<const uint8_t> bytes) {
  borrow_embedding(kind, bytes);
  keep_copy(embedding_);
}

void Model::set_positions(WeightKind kind, std::span<const uint8_t> bytes, int64_t offset) {
  borrow_positions(kind, bytes, offset);
  keep_copy(positions_);
}

void Model::tie_embedding() {
  if (output_.parts.size() != 1) fail("the output layer comes before an embedding tied to it");
  const LinearView& view = output_.parts.front().view();
  const WeightKind kind = view.kind == WeightKind::kBf16Short ? WeightKind::kBf16 : view.kind;
  const bool is_float =
      kind == WeightKind::kFp32 || kind == WeightKind::kFp16 || kind == WeightKind::kBf16;
  if (!is_float || view.num_rows != config_.vocab_size) {
    fail("an embedding is tied to an output layer of floats with a row per token");
  }
  embedding_ = {kind, view.num_rows, 0, nullptr, {}};
  tied_ = true;
}

const void* Model::embedding_row(int32_t token, void* scratch) const {
  if (!tied_) return embedding_.values + token * embedding_.row_bytes;
  output_.parts.front().copy_row(token, scratch);
  return scratch;
}

void Model::borrow_linear(const std::string& role, int64_t layer, const PackedShape& shape,
                          std::span<const uint8_t> bytes) {
  check_shape(shape);
  if (static_cast<int64_t>(bytes.size()) != sections(shape).end ||
      reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment != 0) {
    fail("the bytes of a packed weight do not fit its shape");
  }
  PackedLinear weight(shape, bytes.data());
  if (shape.view.kind == WeightKind::kBf16Short &&
      !ranks_fit(weight.view(), shape.num_wide_blocks)) {
    fail("a packed weight names a wide block that it does not have");
  }
  linear_group(role, layer).parts.push_back(std::move(weight));
}

void Model::check_mlp(const Layer& layer, bool has_experts) const {
  const int64_t hidden = config_.hidden_size;
  auto check = [&](const std::string& owner, const LinearGroup& up, const LinearGroup& down) {
    const int64_t inner = inner_size(owner);
    check_group(up, owner + "up", config_.gated ? 2 * inner : inner, hidden);
    check_group(down, owner + "down", hidden, inner);
  };
  if (!has_experts) return check("", layer.up, layer.down);
  const MoeMlp& moe = layer.moe;
  check_group(moe.router, "router", config_.experts.num_experts, hidden);
  for (size_t e = 0; e < moe.experts.size(); ++e) {
    check(expert_name(e) + ".", moe.experts[e].up, moe.experts[e].down);
  }
  if (config_.experts.shared_intermediate_size == 0) return;
  check_group(moe.shared_gate, "shared_gate", 1, hidden);
  check("shared.", moe.shared.up, moe.shared.down);
}

void Model::check_weights() const {
  const int64_t hidden = config_.hidden_size;
  const int64_t q_size = config_.num_heads * config_.head_dim;
  const int64_t kv_size = config_.num_kv_heads * config_.head_dim;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (config_.kv[i].is_static && kv_scales_[i].front() == 0.0f) {
      fail("layer " + std::to_string(i) + " has no scales of keys and values");
    }
    const Layer& layer = layers_[i];
    check_group(layer.qkv, "qkv", q_size + 2 * kv_size, hidden);
    check_group(layer.out, "o", hidden, q_size);
    check_mlp(layer, config_.has_experts(static_cast<int64_t>(i)));
    check_norm(layer.attention_norm, "attention_norm", hidden);
    check_norm(layer.mlp_norm, "mlp_norm", hidden);
    if (layer.q_norm.weight.empty() && layer.k_norm.weight.empty()) continue;
    check_norm(layer.q_norm, "q_norm", config_.head_dim);
    check_norm(layer.k_norm, "k_norm", config_.head_dim);
  }
  check_group(output_, "output", config_.vocab_size, hidden);
  check_norm(final_norm_, "final_norm", hidden);
  if (embedding_.num_rows != config_.vocab_size) fail("there is no embedding");
}

std::vector<PlacedLinear> Model::linears() const {
  std::vector<PlacedLinear> found;
  auto add = [&found](const std::string& role, int64_t layer, const LinearGroup& group) {
    for (const PackedLinear& part : group.parts) found.push_back({role, layer, &part});
  };
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    add("qkv", layer, layers_[i].qkv);
    add("o", layer, layers_[i].out);
    add("up", layer, layers_[i].up);
    add("down", layer, layers_[i].down);
    const MoeMlp& moe = layers_[i].moe;
    add("router", layer, moe.router);
    for (size_t e = 0; e < moe.experts.size(); ++e) {
      add(expert_name(e) + ".up", layer, moe.experts[e].up);
      add(expert_name(e) + ".down", layer, moe.experts[e].down);
    }
    add("shared_gate", layer, moe.shared_gate);
    add("shared.up", layer, moe.shared.up);
    add("shared.down", layer, moe.shared.down);
  }
  add("output", 0, output_);
  return found;
}

int64_t Model::weight_bytes() const {
  int64_t total = 0;
  int64_t experts = 0;
  for (const PlacedLinear& placed : linears()) {
    const auto num_bytes = static_cast<int64_t>(placed.weight->bytes().size());
    (placed.role.starts_with(kExperts) ? experts : total) += num_bytes;
  }
  if (experts == 0) return total;
  return total + experts * config_.experts.num_per_token / config_.experts.num_experts;
}

}  // namespace paredown
