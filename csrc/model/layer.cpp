#include "model/layer.h"

namespace paredown {
namespace {

// Adds the places of one layer.
class SlotWriter {
 public:
  SlotWriter(std::vector<LinearSlot>& slots, int64_t layer, int64_t hidden_size)
      : slots_(slots), layer_(layer), hidden_size_(hidden_size) {}

  LinearSlot& add(const std::string& role, LinearGroup& group, int64_t num_rows,
                  int64_t num_columns) {
    return slots_.emplace_back(LinearSlot{role, layer_, &group, num_rows, num_columns});
  }

  void add_mlp(const std::string& owner, const MlpConfig& mlp, LinearGroup& up, LinearGroup& down) {
    add(owner + "up", up, mlp.up_size(), hidden_size_).is_gated = mlp.gated;
    add(owner + "down", down, hidden_size_, mlp.size);
  }

  void add_experts(const ExpertConfig& experts, MoeMlp& moe) {
    add("router", moe.router, experts.num, hidden_size_);
    const size_t first = slots_.size();
    for (size_t e = 0; e < moe.experts.size(); ++e) {
      add_mlp("experts." + std::to_string(e) + ".", experts.mlp(), moe.experts[e].up,
              moe.experts[e].down);
    }
    for (size_t i = first; i < slots_.size(); ++i) {
      slots_[i].num_experts = experts.num;
      slots_[i].num_per_token = experts.num_per_token;
    }
    if (experts.shared_size == 0) return;
    add("shared_gate", moe.shared_gate, 1, hidden_size_);
    add_mlp("shared.", experts.shared_mlp(), moe.shared.up, moe.shared.down);
  }

 private:
  std::vector<LinearSlot>& slots_;
  int64_t layer_;
  int64_t hidden_size_;
};

}  // namespace

std::vector<LinearSlot> linear_slots(const ModelConfig& config, std::vector<Layer>& layers,
                                     LinearGroup& output) {
  std::vector<LinearSlot> slots;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const AttentionConfig& attention = layer.attention;
    SlotWriter writer(slots, static_cast<int64_t>(i), config.hidden_size);
    writer.add("qkv", layers[i].qkv, attention.q_size() + 2 * attention.kv_size(),
               config.hidden_size);
    writer.add("o", layers[i].out, config.hidden_size, attention.q_size());
    if (layer.cross) {
      const AttentionConfig& cross = *layer.cross;
      writer.add("cross_q", layers[i].cross_query, cross.q_size(), config.hidden_size);
      writer.add(kCrossKvRole, layers[i].cross_kv, 2 * cross.kv_size(), config.hidden_size);
      writer.add("cross_o", layers[i].cross_out, config.hidden_size, cross.q_size());
    }
    if (layer.mlp) writer.add_mlp("", *layer.mlp, layers[i].up, layers[i].down);
    if (layer.experts) writer.add_experts(*layer.experts, layers[i].moe);
  }
  if (config.has_output)
    slots.push_back({"output", 0, &output, config.vocab_size, config.hidden_size});
  return slots;
}

}  // namespace paredown
