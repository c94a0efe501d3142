#include "check/random_model.h"

#include <algorithm>
#include <cstring>

namespace paredown {
namespace {

constexpr int64_t kHidden = 48;  // no multiple of 32: rows of integer weights are padded
constexpr int64_t kContext = 96;
constexpr int64_t kPages = 24;
constexpr int64_t kWindow = 19;

void add_random_linear(Model& model, Random& random, const Case& test, const std::string& role,
                       int64_t layer, int64_t rows, int64_t columns) {
  LinearSource source{};
  source.kind = test.kind;
  source.num_rows = rows;
  source.num_columns = columns;
  source.group_size = columns;
  const std::vector<float> values = floats(random, rows * columns, 0.0f, 0.2f);
  const std::vector<float> scales = floats(random, rows, 0.02f, 0.01f);
  const std::vector<float> bias = floats(random, rows, 0.0f, 0.1f);
  std::vector<uint16_t> halves;
  std::vector<uint8_t> codes;
  std::vector<uint8_t> zero_points;
  const int top = test.kind == WeightKind::kInt4 ? 16 : 256;
  for (const float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    // The upper half of a float is a bf16; a small number read as fp16 as well.
    halves.push_back(static_cast<uint16_t>(
        test.kind == WeightKind::kBf16 ? bits >> 16 : 0x2000u | (bits >> 16 & 0x81FFu)));
    codes.push_back(static_cast<uint8_t>(below(random, top)));
  }
  for (int64_t i = 0; i < rows; ++i) {
    zero_points.push_back(static_cast<uint8_t>(below(random, top)));
  }
  source.arrays["values"] = source_array(values, rows);
  if (test.kind == WeightKind::kBf16 || test.kind == WeightKind::kFp16) {
    source.arrays["values"] = source_array(halves, rows);
  } else if (test.kind != WeightKind::kFp32) {
    source.arrays["values"] = source_array(codes, rows);
    source.arrays["scales"] = source_array(scales, rows);
    if (test.asymmetric) source.arrays["zero_points"] = source_array(zero_points, rows);
  }
  source.arrays["bias"] = source_array(bias, rows);
  model.add_linear(role, layer, source);
}

void fill(Model& model, Random& random, const Case& test) {
  const ModelConfig& config = model.config();
  const int64_t q_size = config.num_heads * config.head_dim;
  const int64_t kv_size = config.num_kv_heads * config.head_dim;
  auto bytes = [](const std::vector<float>& values) {
    return std::span<const uint8_t>(reinterpret_cast<const uint8_t*>(values.data()),
                                    values.size() * sizeof(float));
  };
  model.set_embedding(WeightKind::kFp32, bytes(floats(random, kVocab * kHidden, 0.0f, 1.0f)));
  if (test.learned_positions) {
    const std::vector<float> table = floats(random, (kContext + 2) * kHidden, 0.0f, 1.0f);
    model.set_positions(WeightKind::kFp32, bytes(table), 2);
  }
  auto set_norm = [&](const char* role, int64_t layer) {
    std::vector<float> bias;
    if (config.norm == NormKind::kLayer) bias = floats(random, kHidden, 0.0f, 0.1f);
    model.set_norm(role, layer, floats(random, kHidden, 1.0f, 0.1f), bias);
  };
  set_norm("final_norm", 0);
  add_random_linear(model, random, test, "output", 0, kVocab, kHidden);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    set_norm("attention_norm", layer);
    set_norm("mlp_norm", layer);
    model.set_kv_scales(layer, floats(random, config.num_kv_heads, 0.02f, 0.01f),
                        floats(random, config.num_kv_heads, 0.02f, 0.01f));
    add_random_linear(model, random, test, "qkv", layer, q_size + kv_size, kHidden);
    add_random_linear(model, random, test, "qkv", layer, kv_size, kHidden);  // a second part
    add_random_linear(model, random, test, "o", layer, kHidden, q_size);
    auto add_mlp = [&](const std::string& owner, int64_t size) {
      const int64_t up = size * (config.gated ? 2 : 1);
      add_random_linear(model, random, test, owner + "up", layer, up, kHidden);
      add_random_linear(model, random, test, owner + "down", layer, kHidden, size);
    };
    if (!config.has_experts(layer)) {
      add_mlp("", config.intermediate_size);
      continue;
    }
    const ExpertShape& experts = config.experts;
    Case floats = test;
    floats.kind = WeightKind::kFp32;
    add_random_linear(model, random, floats, "router", layer, experts.num_experts, kHidden);
    add_random_linear(model, random, floats, "shared_gate", layer, 1, kHidden);
    for (int64_t e = 0; e < experts.num_experts; ++e) {
      add_mlp("experts." + std::to_string(e) + ".", experts.intermediate_size);
    }
    add_mlp("shared.", experts.shared_intermediate_size);
  }
  model.check_weights();
}

}  // namespace

std::unique_ptr<Model> random_model(Random& random, const Case& test) {
  ModelConfig config{};
  config.vocab_size = kVocab;
  config.hidden_size = kHidden;
  config.num_layers = 2;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.intermediate_size = 80;
  config.max_positions = kContext;
  config.norm = test.learned_positions ? NormKind::kLayer : NormKind::kRms;
  config.norm_eps = 1e-5f;
  config.activation = test.learned_positions ? Activation::kGelu : Activation::kSilu;
  config.gated = !test.learned_positions;
  config.kv = {test.kv, test.last_kv};
  config.num_pages = kPages;
  // All layers slide, beside sinks where positions rotate; one of two does; none does.
  config.windows = {test.asymmetric ? kWindow : 0,
                    test.asymmetric || test.learned_positions ? kWindow : 0};
  config.num_sinks = test.asymmetric && !test.learned_positions ? 3 : 0;
  if (!test.learned_positions) {
    for (int i = 0; i < 8; ++i) config.inverse_frequencies.push_back(1.0f / float(1 << i));
  }
  if (test.has_experts) {
    config.experts = {5, 2, 16, 112, true};
    config.expert_layers = {true, false};
  }
  auto model = std::make_unique<Model>(config, test.isa, ThreadPlan{2, 3});
  fill(*model, random, test);
  return model;
}

std::vector<Sequence> random_sequences(Random& random) {
  std::vector<int32_t> free_pages(kPages);
  for (int32_t page = 0; page < kPages; ++page) free_pages[static_cast<size_t>(page)] = page;
  std::shuffle(free_pages.begin(), free_pages.end(), random);
  std::vector<Sequence> sequences(4);
  for (Sequence& sequence : sequences) {
    const int64_t length = 1 + below(random, kContext);
    for (int64_t i = 0; i < length; ++i) {
      sequence.tokens.push_back(static_cast<int32_t>(below(random, kVocab)));
    }
    const int64_t num_pages = (length + kPageSize - 1) / kPageSize;
    sequence.pages.assign(free_pages.end() - num_pages, free_pages.end());
    free_pages.resize(free_pages.size() - static_cast<size_t>(num_pages));
  }
  return sequences;
}

namespace {

// Pages between those of the sinks and the first one that the next token sees.
int64_t num_released(const ModelConfig& config, int64_t start) {
  if (std::find(config.windows.begin(), config.windows.end(), 0) != config.windows.end()) return 0;
  const int64_t sink_pages = (config.num_sinks + kPageSize - 1) / kPageSize;
  return std::max<int64_t>(0, (start - kWindow + 1) / kPageSize - sink_pages);
}

}  // namespace

void run_sequences(Model& model, Random& random, std::vector<Sequence*> sequences, bool whole) {
  while (true) {
    std::vector<int32_t> tokens, starts, lengths, offsets{0}, pages, released;
    std::vector<Sequence*> running;
    for (Sequence* sequence : sequences) {
      const int64_t left = static_cast<int64_t>(sequence->tokens.size()) - sequence->done;
      if (left == 0) continue;
      const int64_t length = whole ? left : 1 + below(random, std::min<int64_t>(left, 17));
      const auto first = sequence->tokens.begin() + sequence->done;
      tokens.insert(tokens.end(), first, first + length);
      starts.push_back(static_cast<int32_t>(sequence->done));
      lengths.push_back(static_cast<int32_t>(length));
      const int64_t num_gone = num_released(model.config(), sequence->done);
      const auto sinks_end = sequence->pages.begin() + (model.config().num_sinks > 0 ? 1 : 0);
      pages.insert(pages.end(), sequence->pages.begin(), sinks_end);
      pages.insert(pages.end(), sinks_end + num_gone, sequence->pages.end());
      released.push_back(static_cast<int32_t>(num_gone));
      offsets.push_back(static_cast<int32_t>(pages.size()));
      running.push_back(sequence);
      sequence->done += length;
    }
    if (running.empty()) return;
    std::vector<float> logits(tokens.size() * kVocab);
    const StepInput input{tokens, starts, lengths, lengths, offsets, pages, released};
    model.check(input);
    model.step(input, logits.data());
    auto row = logits.begin();
    for (size_t i = 0; i < running.size(); ++i) {
      running[i]->logits.insert(running[i]->logits.end(), row, row + lengths[i] * kVocab);
      row += lengths[i] * kVocab;
    }
  }
}

}  // namespace paredown
