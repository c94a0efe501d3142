#include "binding/read_config.h"

#include <nanobind/stl/vector.h>

#include <map>
#include <string>

#include "binding/fields.h"
#include "weights/names.h"

namespace nb = nanobind;

namespace paredown {
namespace {

const std::map<std::string, Residual> kResiduals = {
    {"sequential", Residual::kSequential},
    {"parallel", Residual::kParallel},
    {"parallel_one_norm", Residual::kParallelOneNorm}};

const std::map<std::string, Pooling> kPoolings = {{"cls", Pooling::kCls},
                                                  {"last", Pooling::kLast},
                                                  {"mean", Pooling::kMean},
                                                  {"mean_sqrt_len", Pooling::kMeanSqrtLen},
                                                  {"weighted_mean", Pooling::kWeightedMean},
                                                  {"max", Pooling::kMax},
                                                  {"max_log_relu", Pooling::kMaxLogRelu}};

NormConfig read_norm(nb::handle dict) {
  Fields fields(dict, "a norm");
  NormConfig norm{};
  norm.kind = look_up(kNormKinds, fields.get<std::string>("kind"), "norm");
  norm.eps = fields.get<float>("eps");
  fields.finish();
  return norm;
}

std::optional<NormConfig> read_optional_norm(nb::handle dict) {
  if (dict.is_none()) return {};
  return read_norm(dict);
}

AttentionConfig read_attention(nb::handle dict) {
  Fields fields(dict, "attention");
  AttentionConfig attention{};
  attention.num_heads = fields.get<int64_t>("num_heads");
  attention.num_kv_heads = fields.get<int64_t>("num_kv_heads");
  attention.head_dim = fields.get<int64_t>("head_dim");
  attention.window = fields.get<int64_t>("window");
  attention.inverse_frequencies = fields.get<std::vector<float>>("inverse_frequencies");
  attention.scale = fields.get<float>("scale");
  attention.long_inverse_frequencies = fields.get<std::vector<float>>("long_inverse_frequencies");
  attention.attention_factor = fields.get<float>("attention_factor");
  attention.growth_beta = fields.get<float>("growth_beta");
  attention.growth_positions = fields.get<int64_t>("growth_positions");
  attention.norms_span_heads = fields.get<bool>("norms_span_heads");
  attention.soft_cap = fields.get<float>("soft_cap");
  attention.is_causal = fields.get<bool>("is_causal");
  attention.max_distance = fields.get<int64_t>("max_distance");
  fields.finish();
  return attention;
}

MlpConfig read_mlp(nb::handle dict) {
  Fields fields(dict, "mlp");
  MlpConfig mlp{};
  mlp.size = fields.get<int64_t>("size");
  mlp.gated = fields.get<bool>("gated");
  mlp.activation = look_up(kActivations, fields.get<std::string>("activation"), "activation");
  fields.finish();
  return mlp;
}

ExpertConfig read_experts(nb::handle dict) {
  Fields fields(dict, "experts");
  ExpertConfig experts{};
  experts.num = fields.get<int64_t>("num");
  experts.num_per_token = fields.get<int64_t>("num_per_token");
  experts.size = fields.get<int64_t>("size");
  experts.shared_size = fields.get<int64_t>("shared_size");
  experts.is_normalized = fields.get<bool>("is_normalized");
  experts.gated = fields.get<bool>("gated");
  experts.activation = look_up(kActivations, fields.get<std::string>("activation"), "activation");
  fields.finish();
  return experts;
}

ByNorm<std::optional<NormConfig>> read_norms(nb::handle dict) {
  Fields fields(dict, "norms");
  const auto given = nb::borrow<nb::dict>(dict);
  ByNorm<std::optional<NormConfig>> norms;
  for (const NormRow& row : kNormRows) {
    if (given.contains(row.name)) norms[row.role] = read_norm(fields.take(row.name));
  }
  fields.finish();
  return norms;
}

LayerConfig read_layer(nb::handle dict) {
  Fields fields(dict, "a layer");
  LayerConfig layer{};
  layer.attention = read_attention(fields.take("attention"));
  const nb::object cross = fields.take("cross");
  if (!cross.is_none()) layer.cross = read_attention(cross);
  const nb::object mlp = fields.take("mlp");
  if (!mlp.is_none()) layer.mlp = read_mlp(mlp);
  const nb::object experts = fields.take("experts");
  if (!experts.is_none()) layer.experts = read_experts(experts);
  layer.norms = read_norms(fields.take("norms"));
  layer.residual = look_up(kResiduals, fields.get<std::string>("residual"), "residual");
  layer.residual_multiplier = fields.get<float>("residual_multiplier");
  layer.kv = look_up(kKvFormats, fields.get<std::string>("kv_dtype"), "kv_dtype");
  fields.finish();
  return layer;
}

std::vector<HeadStepConfig> read_steps(const nb::list& list) {
  std::vector<HeadStepConfig> steps;
  for (nb::handle dict : list) {
    Fields fields(dict, "a step of the head");
    HeadStepConfig step{};
    step.size = fields.get<int64_t>("size");
    const nb::object activation = fields.take("activation");
    if (!activation.is_none()) {
      step.activation = look_up(kActivations, fields.get<std::string>("activation"), "activation");
    }
    step.norm = read_optional_norm(fields.take("norm"));
    step.is_tied = fields.get<bool>("is_tied");
    fields.finish();
    steps.push_back(step);
  }
  return steps;
}

HeadConfig read_head(nb::handle dict) {
  Fields fields(dict, "the head");
  HeadConfig head{};
  head.token_steps = read_steps(fields.get<nb::list>("token_steps"));
  for (const std::string& pooling : fields.get<std::vector<std::string>>("pooling")) {
    head.pooling.push_back(look_up(kPoolings, pooling, "pooling"));
  }
  head.steps = read_steps(fields.get<nb::list>("steps"));
  head.is_normalized = fields.get<bool>("is_normalized");
  fields.finish();
  return head;
}

}  // namespace

ModelConfig read_config(const nb::dict& options) {
  Fields fields(options, "the config");
  ModelConfig config{};
  config.vocab_size = fields.get<int64_t>("vocab_size");
  config.hidden_size = fields.get<int64_t>("hidden_size");
  config.max_positions = fields.get<int64_t>("max_positions");
  config.num_pages = fields.get<int64_t>("num_pages");
  config.num_sinks = fields.get<int64_t>("num_sinks");
  config.embedding_multiplier = fields.get<float>("embedding_multiplier");
  config.output_multiplier = fields.get<float>("output_multiplier");
  config.output_soft_cap = fields.get<float>("output_soft_cap");
  config.switch_tokens = fields.get<int64_t>("switch_tokens");
  config.num_token_types = fields.get<int64_t>("num_token_types");
  config.embedding_norm = read_optional_norm(fields.take("embedding_norm"));
  config.final_norm = read_optional_norm(fields.take("final_norm"));
  config.has_output = fields.get<bool>("has_output");
  const nb::object head = fields.take("head");
  if (!head.is_none()) config.head = read_head(head);
  for (nb::handle layer : fields.get<nb::list>("layers"))
    config.layers.push_back(read_layer(layer));
  fields.finish();
  return config;
}

}  // namespace paredown
