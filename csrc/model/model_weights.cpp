// The weights of a Model: packed or borrowed, and checked against its config.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "machine/round_up.h"
#include "model/model.h"
#include "weights/decode_row.h"

namespace paredown {
namespace {

// Of a number of a table. Throws std::invalid_argument for what no table is made of.
int64_t element_bytes(WeightKind kind) {
  switch (kind) {
    case WeightKind::kFp32:
      return 4;
    case WeightKind::kFp16:
    case WeightKind::kBf16:
      return 2;
    default:
      throw std::invalid_argument("a table has fp32, fp16 or bf16 numbers");
  }
}

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

void check_group(const LinearSlot& slot) {
  int64_t num_rows = 0;
  for (const PackedLinear& part : slot.group->parts) {
    num_rows += part.view().num_rows;
    if (part.view().num_columns != round_up(slot.num_columns, kBlockColumns)) {
      fail(slot.role + " has the wrong number of columns");
    }
    if (part.gated() && (!slot.is_gated || slot.group->parts.size() != 1)) {
      fail(slot.role + " is gated, and should not be or only in part");
    }
  }
  if (num_rows != slot.num_rows) fail(slot.role + " has the wrong number of rows");
}

void check_norm(const Norm& norm, const std::string& role, int64_t size) {
  if (static_cast<int64_t>(norm.weight.size()) != size ||
      (!norm.bias.empty() && norm.bias.size() != norm.weight.size())) {
    fail(role + " has the wrong size");
  }
}

// Whether an embedding can be read out of such a weight.
bool has_rows(const LinearView& view) {
  switch (view.kind) {
    case WeightKind::kFp32:
    case WeightKind::kFp16:
    case WeightKind::kBf16:
    case WeightKind::kBf16Short:
    case WeightKind::kBf16Bitmap:
    case WeightKind::kBf16ShortBitmap:
      return true;
    default:
      return has_decoded_rows(view);
  }
}

Table copied(Table table) {
  const auto num_bytes = static_cast<size_t>(table.num_rows * table.row_bytes);
  table.memory = AlignedBuffer(static_cast<int64_t>(num_bytes));
  if (num_bytes > 0) std::memcpy(table.memory.get(), table.values, num_bytes);
  table.values = table.memory.as<uint8_t>();
  return table;
}

// Rows are read where they lie, number by number.
Table aligned(Table table) {
  if (reinterpret_cast<uintptr_t>(table.values) % static_cast<size_t>(element_bytes(table.kind))) {
    fail("a table does not lie where its numbers can be read");
  }
  return table;
}

}  // namespace

Layer& Model::layer_at(int64_t layer) {
  if (layer < 0 || layer >= config_.num_layers()) fail("no layer " + std::to_string(layer));
  return layers_[static_cast<size_t>(layer)];
}

const LinearSlot& Model::linear_slot(const std::string& role, int64_t layer) const {
  const bool is_outside = role == "output" || role == kEmbeddingRole || role.starts_with("head.");
  const int64_t owner = is_outside ? 0 : layer;
  if (owner < 0 || owner >= config_.num_layers()) fail("no layer " + std::to_string(layer));
  const auto found = slots_by_name_.find({owner, role});
  if (found == slots_by_name_.end()) fail("unknown linear role '" + role + "'");
  return slots_[found->second];
}

Norm& Model::norm_slot(const std::string& role, int64_t layer) {
  if (role == "final_norm" && config_.final_norm) return final_norm_;
  if (role == "embedding_norm" && config_.embedding_norm) return embedding_norm_;
  if (head_ != nullptr) {
    for (HeadStep& step : head_->steps()) {
      if (role == step.role + ".norm" && step.config.norm) return step.norm;
    }
  }
  Layer& target = layer_at(layer);
  for (const NormRow& row : kNormRows) {
    if (role != row.name) continue;
    if (!layer_config(layer).norms[row.role]) fail("the layer's config has no " + role);
    return target.norms[row.role];
  }
  fail("unknown norm role '" + role + "'");
}

void Model::add_linear(const std::string& role, int64_t layer, const LinearSource& source) {
  const LinearSlot& slot = linear_slot(role, layer);
  LinearSource gated = source;
  // Gate and up of one format are packed in turn, so that gate * up is finished in registers.
  gated.gated = slot.is_gated && source.num_rows == slot.num_rows;
  gated.short_exponents = kernels_.prefers_short_bf16;
  // Of an embedding one row is read at a time, which a bitmap would only make slower.
  if (role == kEmbeddingRole) gated.bitmap = BitmapChoice::kNever;
  slot.group->parts.emplace_back(gated, pool_);
  are_weights_checked_ = false;
}

void Model::set_norm(const std::string& role, int64_t layer, std::vector<float> weight,
                     std::vector<float> bias) {
  Norm& norm = norm_slot(role, layer);
  norm.weight = std::move(weight);
  norm.bias = std::move(bias);
  are_weights_checked_ = false;
}

void Model::set_kv_scales(int64_t layer, std::span<const float> keys,
                          std::span<const float> values) {
  std::vector<float>& target = layer_at(layer).kv_scales;
  std::vector<float> scales(keys.begin(), keys.end());
  scales.insert(scales.end(), values.begin(), values.end());
  const bool are_positive = std::all_of(scales.begin(), scales.end(),
                                        [](float x) { return x > 0.0f && std::isfinite(x); });
  if (keys.size() != values.size() || scales.size() != target.size() || !are_positive) {
    fail("scales of keys and values are finite numbers above 0, one for each kv head");
  }
  target = std::move(scales);
}

Table Model::make_table(WeightKind kind, std::span<const uint8_t> bytes) const {
  const int64_t row_bytes = config_.hidden_size * element_bytes(kind);
  const int64_t num_bytes = static_cast<int64_t>(bytes.size());
  if (num_bytes % row_bytes != 0) fail("a table does not have whole rows");
  return {kind, num_bytes / row_bytes, row_bytes, bytes.data(), {}};
}

Table Model::embedding_table(WeightKind kind, std::span<const uint8_t> bytes) const {
  Table table = make_table(kind, bytes);
  if (table.num_rows != config_.vocab_size) fail("the embedding table has the wrong size");
  return table;
}

// The offset is compared, not added to: a file may say any number.
Table Model::position_table(WeightKind kind, std::span<const uint8_t> bytes, int64_t offset) const {
  if (!rotary_tables_.empty()) fail("a model with rotary positions has no table of them");
  Table table = make_table(kind, bytes);
  if (offset < 0 || offset > table.num_rows || table.num_rows - offset != config_.max_positions) {
    fail("the position table does not have a row for each position");
  }
  return table;
}

Table Model::type_table(WeightKind kind, std::span<const uint8_t> bytes) const {
  Table table = make_table(kind, bytes);
  if (config_.num_token_types == 0 || table.num_rows != config_.num_token_types) {
    fail("the table of token types has the wrong size");
  }
  return table;
}

void Model::put_embedding(Table table) {
  embedding_ = std::move(table);
  tied_ = false;
  are_weights_checked_ = false;
}

void Model::put_positions(Table table, int64_t offset) {
  positions_ = std::move(table);
  position_offset_ = offset;
}

void Model::borrow_embedding(WeightKind kind, std::span<const uint8_t> bytes) {
  put_embedding(aligned(embedding_table(kind, bytes)));
}

void Model::borrow_positions(WeightKind kind, std::span<const uint8_t> bytes, int64_t offset) {
  put_positions(aligned(position_table(kind, bytes, offset)), offset);
}

void Model::set_embedding(WeightKind kind, std::span<const uint8_t> bytes) {
  put_embedding(copied(embedding_table(kind, bytes)));
}

void Model::set_positions(WeightKind kind, std::span<const uint8_t> bytes, int64_t offset) {
  put_positions(copied(position_table(kind, bytes, offset)), offset);
}

void Model::borrow_token_types(WeightKind kind, std::span<const uint8_t> bytes) {
  token_types_ = aligned(type_table(kind, bytes));
  are_weights_checked_ = false;
}

void Model::set_token_types(WeightKind kind, std::span<const uint8_t> bytes) {
  token_types_ = copied(type_table(kind, bytes));
  are_weights_checked_ = false;
}

void Model::set_relative(std::span<const float> values) {
  const AttentionConfig* attention = config_.relative_attention();
  if (attention == nullptr) fail("the config has no relative positions");
  const int64_t num_distances = 2 * attention->max_distance + 1;
  if (std::ssize(values) != attention->num_heads * num_distances) {
    fail("relative positions have a number for each head and distance");
  }
  relative_ = relative_rows(values, attention->max_distance);
  are_weights_checked_ = false;
}

const LinearGroup* Model::tied_group() const {
  if (config_.has_output) return &output_;
  if (head_ == nullptr) return nullptr;
  for (const HeadStep& step : head_->steps()) {
    if (step.config.is_tied) return &step.linear;
  }
  return nullptr;
}

void Model::tie_embedding() {
  const LinearGroup* tied = tied_group();
  if (tied == nullptr || tied->parts.size() != 1) {
    fail("what an embedding is tied to comes before it");
  }
  const LinearView& view = tied->parts.front().view();
  if (!has_rows(view) || view.num_rows != config_.vocab_size) {
    fail("an embedding is tied to a weight whose rows can be read, one per token");
  }
  tied_ = true;
  are_weights_checked_ = false;
}

const PackedLinear* Model::packed_embedding() const {
  if (!embedding_rows_.parts.empty()) return &embedding_rows_.parts.front();
  return tied_ ? &tied_group()->parts.front() : nullptr;
}

WeightKind Model::embedding_kind() const {
  const PackedLinear* packed = packed_embedding();
  if (packed == nullptr) return embedding_.kind;
  const WeightKind kind = packed->view().kind;
  if (has_decoded_rows(packed->view())) return WeightKind::kFp32;
  return traits_of(kind).takes_bf16 ? WeightKind::kBf16 : kind;
}

const void* Model::embedding_row(int32_t token, void* scratch) const {
  const PackedLinear* packed = packed_embedding();
  if (packed == nullptr) return embedding_.values + token * embedding_.row_bytes;
  if (has_decoded_rows(packed->view())) {
    decode_row(packed->view(), token, static_cast<float*>(scratch));
  } else {
    packed->copy_row(token, scratch);
  }
  return scratch;
}

void Model::borrow_linear(const std::string& role, int64_t layer, const PackedShape& shape,
                          std::span<const uint8_t> bytes) {
  linear_slot(role, layer).group->parts.emplace_back(shape, bytes);
  are_weights_checked_ = false;
}

void Model::check_weights() {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LayerConfig& config = config_.layers[i];
    if (config.kv.is_static && layers_[i].kv_scales.front() == 0.0f) {
      fail("layer " + std::to_string(i) + " has no scales of keys and values");
    }
    for (const NormRow& row : kNormRows) {
      if (!config.norms[row.role]) continue;
      check_norm(layers_[i].norms[row.role], row.name, config.norm_size(row, config_.hidden_size));
    }
  }
  for (const LinearSlot& slot : slots_) {
    if (slot.role != kEmbeddingRole) check_group(slot);
  }
  check_outer_weights();
  if (!embedding_rows_.parts.empty()) {
    check_group(slots_.back());
    if (embedding_rows_.parts.size() > 1 || !has_rows(embedding_rows_.parts.front().view())) {
      fail("an embedding is one weight whose rows can be read");
    }
  } else if (!tied_ && embedding_.num_rows != config_.vocab_size) {
    fail("there is no embedding");
  }
  are_weights_checked_ = true;
}

// Norms and tables outside the layers.
void Model::check_outer_weights() const {
  if (config_.final_norm) check_norm(final_norm_, "final_norm", config_.hidden_size);
  if (config_.embedding_norm) check_norm(embedding_norm_, "embedding_norm", config_.hidden_size);
  if (head_ != nullptr) {
    for (const HeadStep& step : head_->steps()) {
      if (step.config.norm) check_norm(step.norm, step.role + ".norm", step.config.size);
    }
  }
  if (token_types_.num_rows != config_.num_token_types) fail("there is no table of token types");
  if (relative_.empty() != (config_.relative_attention() == nullptr)) {
    fail("there are no relative positions");
  }
}

std::vector<PlacedLinear> Model::linears() const {
  std::vector<PlacedLinear> found;
  for (const LinearSlot& slot : slots_) {
    for (const PackedLinear& part : slot.group->parts) {
      found.push_back({slot.role, slot.layer, &part});
    }
  }
  return found;
}

int64_t Model::weight_bytes() const {
  int64_t total = 0;
  std::map<std::pair<int64_t, int64_t>, int64_t> experts;  // by how many of how many
  for (const LinearSlot& slot : slots_) {
    if (slot.role == kEmbeddingRole || slot.role == kCrossKvRole) continue;
    int64_t& bytes =
        slot.num_experts == 0 ? total : experts[{slot.num_per_token, slot.num_experts}];
    for (const PackedLinear& part : slot.group->parts) {
      bytes += static_cast<int64_t>(part.bytes().size());
    }
  }
  for (const auto& [share, bytes] : experts) total += bytes * share.first / share.second;
  return total;
}

}  // namespace paredown
