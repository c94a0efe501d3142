#include "check/random_model.h"

#include <algorithm>
#include <cstring>

#include "weights/bitmap.h"

namespace paredown {
namespace {

constexpr int64_t kWindow = 19;
constexpr int64_t kSwitch = 40;  // some sequences are longer

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
  if (test.has_bitmaps) {
    const bool is_bf16 = test.kind == WeightKind::kBf16;
    source.activations = is_bf16 ? Activations::kBf16 : Activations::kInt8Row;
    source.bitmap = BitmapChoice::kAlways;
    for (size_t i = 0; i < codes.size(); i += 2) {
      codes[i] = kZeroCode;
      halves[i] = 0;
    }
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

void set_norm(Model& model, Random& random, const std::string& role, int64_t layer, int64_t size,
              NormKind kind) {
  std::vector<float> bias;
  if (kind == NormKind::kLayer) bias = floats(random, size, 0.0f, 0.1f);
  model.set_norm(role, layer, floats(random, size, 1.0f, 0.1f), bias);
}

void fill_layer(Model& model, Random& random, const Case& test, int64_t layer) {
  const LayerConfig& config = model.config().layers[static_cast<size_t>(layer)];
  const int64_t q_size = config.attention.q_size();
  const int64_t kv_size = config.attention.kv_size();
  for (const NormRow& row : kNormRows) {
    const std::optional<NormConfig>& norm = config.norms[row.role];
    if (norm) set_norm(model, random, row.name, layer, config.norm_size(row, kHidden), norm->kind);
  }
  const int64_t num_kv_heads = config.attention.num_kv_heads;
  model.set_kv_scales(layer, floats(random, num_kv_heads, 0.02f, 0.01f),
                      floats(random, num_kv_heads, 0.02f, 0.01f));
  add_random_linear(model, random, test, "qkv", layer, q_size + kv_size, kHidden);
  add_random_linear(model, random, test, "qkv", layer, kv_size, kHidden);  // a second part
  add_random_linear(model, random, test, "o", layer, kHidden, q_size);
  if (config.cross) {
    add_random_linear(model, random, test, "cross_q", layer, config.cross->q_size(), kHidden);
    add_random_linear(model, random, test, "cross_kv", layer, kv_size, kHidden);
    add_random_linear(model, random, test, "cross_kv", layer, kv_size, kHidden);
    add_random_linear(model, random, test, "cross_o", layer, kHidden, config.cross->q_size());
  }
  auto add_mlp = [&](const std::string& owner, const MlpConfig& mlp) {
    add_random_linear(model, random, test, owner + "up", layer, mlp.up_size(), kHidden);
    add_random_linear(model, random, test, owner + "down", layer, kHidden, mlp.size);
  };
  if (config.mlp) return add_mlp("", *config.mlp);
  const ExpertConfig& experts = *config.experts;
  Case floats = test;
  floats.kind = WeightKind::kFp32;
  add_random_linear(model, random, floats, "router", layer, experts.num, kHidden);
  for (int64_t e = 0; e < experts.num; ++e) {
    add_mlp("experts." + std::to_string(e) + ".", experts.mlp());
  }
  if (experts.shared_size == 0) return;
  add_random_linear(model, random, floats, "shared_gate", layer, 1, kHidden);
  add_mlp("shared.", experts.shared_mlp());
}

std::span<const uint8_t> bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
}

void set_relative(Model& model, Random& random) {
  const AttentionConfig* attention = model.config().relative_attention();
  if (attention == nullptr) return;
  const int64_t size = attention->num_heads * (2 * attention->max_distance + 1);
  model.set_relative(floats(random, size, 0.0f, 1.0f));
}

void fill(Model& model, Random& random, const Case& test) {
  model.set_embedding(WeightKind::kFp32, bytes(floats(random, kVocab * kHidden, 0.0f, 1.0f)));
  set_relative(model, random);
  if (test.learned_positions) {
    const std::vector<float> table = floats(random, (kContext + 2) * kHidden, 0.0f, 1.0f);
    model.set_positions(WeightKind::kFp32, bytes(table), 2);
  }
  set_norm(model, random, "final_norm", 0, kHidden, model.config().final_norm->kind);
  add_random_linear(model, random, test, "output", 0, kVocab, kHidden);
  for (int64_t layer = 0; layer < model.config().num_layers(); ++layer) {
    fill_layer(model, random, test, layer);
  }
  model.check_weights();
}

std::vector<float> frequencies(int count) {
  std::vector<float> found;
  for (int i = 0; i < count; ++i) found.push_back(1.0f / float(1 << i));
  return found;
}

LayerConfig plain_layer(const Case& test, KvFormat kv, int64_t window) {
  LayerConfig layer{};
  layer.attention = {6, 2, 16, window, {}, 0.25f};
  if (!test.learned_positions) layer.attention.inverse_frequencies = frequencies(8);
  layer.mlp = MlpConfig{80, !test.learned_positions,
                        test.learned_positions ? Activation::kGelu : Activation::kSilu};
  const NormConfig norm{test.learned_positions ? NormKind::kLayer : NormKind::kRms, 1e-5f};
  layer.norms[NormRole::kAttention] = layer.norms[NormRole::kMlp] = norm;
  layer.residual = Residual::kSequential;
  layer.residual_multiplier = 1.0f;
  layer.kv = kv;
  if (test.has_cross) {
    layer.attention.inverse_frequencies.clear();
    layer.attention.max_distance = 20;
    layer.cross = AttentionConfig{4, 2, 16, 0, {}, 0.25f};
    layer.cross->is_causal = false;
    layer.norms[NormRole::kCross] = norm;
  }
  return layer;
}

// A wider layer than the first and a narrower one, so that rows of both meet in every buffer; each
// with what layers may have beyond the plain form.
void add_unequal_layers(ModelConfig& config, const Case& test) {
  LayerConfig wide = plain_layer(test, test.kv, config.num_sinks > 0 ? kWindow : kWindow + 14);
  wide.attention.num_heads = 4;
  wide.attention.num_kv_heads = 4;
  wide.attention.head_dim = 32;
  wide.attention.scale = 0.11f;
  if (!test.learned_positions) wide.attention.inverse_frequencies = frequencies(5);
  wide.mlp = MlpConfig{176, true, Activation::kGeluTanh};
  wide.residual = test.has_experts ? Residual::kParallel : Residual::kParallelOneNorm;
  if (!test.has_experts) wide.norms[NormRole::kMlp].reset();
  wide.norms[NormRole::kQuery] = wide.norms[NormRole::kKey] = NormConfig{NormKind::kRms, 1e-6f};
  wide.attention.norms_span_heads = true;
  wide.attention.growth_beta = 0.3f;
  wide.attention.growth_positions = 5;
  wide.attention.soft_cap = 1.5f;
  if (!test.learned_positions) {
    wide.attention.attention_factor = 1.2f;
    wide.attention.long_inverse_frequencies = {0.5f, 0.2f, 0.1f, 0.04f, 0.01f};
    config.switch_tokens = kSwitch;
  }
  LayerConfig narrow = plain_layer(test, test.last_kv, config.num_sinks > 0 ? kWindow : 7);
  narrow.attention.num_heads = 3;
  narrow.attention.num_kv_heads = 1;
  narrow.mlp = MlpConfig{16, false, Activation::kRelu};
  for (const NormRow& row : kNormRows) narrow.norms[row.role] = NormConfig{NormKind::kRms, 1e-6f};
  narrow.residual_multiplier = 0.7f;
  if (test.has_experts) {
    narrow.norms[NormRole::kMlp].reset();
    narrow.mlp.reset();
    narrow.experts = ExpertConfig{3, 1, 48, 0, false, false, Activation::kGelu};
  }
  config.layers.insert(config.layers.begin() + 1, {wide, narrow});
  config.embedding_multiplier = 1.5f;
  config.output_multiplier = 0.6f;
  config.output_soft_cap = 4.0f;
}

}  // namespace

std::unique_ptr<Model> random_model(Random& random, const Case& test) {
  ModelConfig config{};
  config.vocab_size = kVocab;
  config.hidden_size = kHidden;
  config.max_positions = kContext;
  config.num_pages = test.has_cross ? kCrossModelPages : kPages;
  const bool has_sinks = test.asymmetric && !test.learned_positions && !test.has_cross;
  config.num_sinks = has_sinks ? 3 : 0;
  config.embedding_multiplier = config.output_multiplier = 1.0f;
  // All layers slide, beside sinks where positions rotate; one of two does; none does.
  config.layers = {
      plain_layer(test, test.kv, test.asymmetric ? kWindow : 0),
      plain_layer(test, test.last_kv, test.asymmetric || test.learned_positions ? kWindow : 0)};
  config.final_norm = *config.layers.front().norms[NormRole::kAttention];
  if (test.has_experts) {
    const MlpConfig mlp = *config.layers.front().mlp;
    config.layers.front().mlp.reset();
    config.layers.front().experts = {5, 2, 16, 112, true, mlp.gated, mlp.activation};
  }
  if (test.unequal) add_unequal_layers(config, test);
  auto model = std::make_unique<Model>(config, test.isa, ThreadPlan{2, 3});
  fill(*model, random, test);
  return model;
}

namespace {

// A layer that reads and writes as the variant's do.
LayerConfig encoder_layer(const EncoderCase& test, int64_t index) {
  const bool is_post_norm = test.variant == 0;
  LayerConfig layer{};
  layer.attention = {3, 3, 16, 0, {}, 0.25f};
  layer.attention.is_causal = test.variant == 3;
  if (test.variant == 1 || test.variant == 3) {
    layer.attention.inverse_frequencies = frequencies(8);
    layer.attention.window = index == 0 ? 0 : 7;
  }
  if (test.variant == 2) layer.attention.max_distance = 20;
  layer.mlp = MlpConfig{80, test.variant == 1, Activation::kGelu};
  const NormConfig norm{is_post_norm ? NormKind::kLayer : NormKind::kRms, 1e-5f};
  layer.norms[is_post_norm ? NormRole::kAttentionSum : NormRole::kAttention] = norm;
  layer.norms[is_post_norm ? NormRole::kMlpSum : NormRole::kMlp] = norm;
  layer.residual = Residual::kSequential;
  layer.residual_multiplier = 1.0f;
  layer.kv = {test.kv, false};
  return layer;
}

HeadConfig encoder_head(const EncoderCase& test) {
  const NormConfig norm{NormKind::kLayer, 1e-5f};
  HeadConfig head{};
  if (test.variant == 0) {
    head.pooling = {Pooling::kMean, Pooling::kMax};
    head.steps = {{32, Activation::kTanh, norm, false}, {2, {}, {}, false}};
  } else if (test.variant == 1) {
    head.pooling = {Pooling::kCls, Pooling::kLast};
    head.is_normalized = true;
  } else if (test.variant == 2) {
    head.token_steps = {{kHidden, Activation::kGelu, norm, false}, {kVocab, {}, {}, true}};
    head.pooling = {Pooling::kMaxLogRelu};
  } else {
    head.token_steps = {{24, {}, {}, false}};
    head.is_normalized = true;
  }
  return head;
}

void fill_encoder(Model& model, Random& random, const Case& test) {
  const ModelConfig& config = model.config();
  model.set_embedding(WeightKind::kFp32, bytes(floats(random, kVocab * kHidden, 0.0f, 1.0f)));
  if (config.num_token_types > 0) {
    const int64_t size = config.num_token_types * kHidden;
    model.set_token_types(WeightKind::kFp32, bytes(floats(random, size, 0.0f, 1.0f)));
    const std::vector<float> table = floats(random, kContext * kHidden, 0.0f, 1.0f);
    model.set_positions(WeightKind::kFp32, bytes(table), 0);
    set_norm(model, random, "embedding_norm", 0, kHidden, config.embedding_norm->kind);
  }
  if (config.final_norm) set_norm(model, random, "final_norm", 0, kHidden, NormKind::kRms);
  set_relative(model, random);
  auto add_steps = [&](const std::string& prefix, const std::vector<HeadStepConfig>& steps,
                       int64_t columns) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::string role = prefix + std::to_string(i);
      add_random_linear(model, random, test, role, 0, steps[i].size, columns);
      if (steps[i].norm) {
        set_norm(model, random, role + ".norm", 0, steps[i].size, steps[i].norm->kind);
      }
      columns = steps[i].size;
    }
  };
  add_steps("head.token.", config.head->token_steps, kHidden);
  add_steps("head.", config.head->steps, config.head->pooled_size(kHidden));
  if (!config.head->token_steps.empty() && config.head->token_steps.back().is_tied) {
    model.tie_embedding();
  }
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) {
    fill_layer(model, random, test, layer);
  }
  model.check_weights();
}

}  // namespace

std::unique_ptr<Model> random_encoder(Random& random, const EncoderCase& test) {
  ModelConfig config{};
  config.vocab_size = kVocab;
  config.hidden_size = kHidden;
  config.max_positions = kContext;
  config.embedding_multiplier = config.output_multiplier = 1.0f;
  config.num_token_types = test.variant == 0 ? 2 : 0;
  if (test.variant == 0) config.embedding_norm = NormConfig{NormKind::kLayer, 1e-5f};
  if (test.variant != 0) config.final_norm = NormConfig{NormKind::kRms, 1e-5f};
  config.layers = {encoder_layer(test, 0), encoder_layer(test, 1)};
  config.has_output = false;
  config.head = encoder_head(test);
  auto model = std::make_unique<Model>(config, test.isa, ThreadPlan{2, 3});
  fill_encoder(*model, random, {test.isa, test.kind, {test.kv, false}, false, true});
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
  if (config.kept_window() == 0) return 0;
  const int64_t sink_pages = (config.num_sinks + kPageSize - 1) / kPageSize;
  return std::max<int64_t>(0, (start - config.kept_window() + 1) / kPageSize - sink_pages);
}

}  // namespace

void run_sequences(Model& model, Random& random, std::vector<Sequence*> sequences, bool whole) {
  while (true) {
    std::vector<int32_t> tokens, starts, lengths, offsets{0}, pages, released, text_lengths;
    std::vector<int32_t> cross_lengths, cross_offsets{0}, cross_pages;
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
      text_lengths.push_back(static_cast<int32_t>(sequence->tokens.size()));
      offsets.push_back(static_cast<int32_t>(pages.size()));
      if (sequence->cross_length > 0) {
        cross_lengths.push_back(sequence->cross_length);
        cross_pages.insert(cross_pages.end(), sequence->cross_pages.begin(),
                           sequence->cross_pages.end());
        cross_offsets.push_back(static_cast<int32_t>(cross_pages.size()));
      }
      running.push_back(sequence);
      sequence->done += length;
    }
    if (running.empty()) return;
    std::vector<float> logits(tokens.size() * kVocab);
    const StepInput input{tokens,   starts,       lengths,       lengths,       offsets,    pages,
                          released, text_lengths, cross_lengths, cross_offsets, cross_pages};
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
