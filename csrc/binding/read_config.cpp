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

NormConfig read_norm(nb::handle dict) {
  Fields fields(dict, "a norm");
  NormConfig norm{};
  norm.kind = look_up(kNormKinds, fields.get<std::string>("kind"), "norm");
  norm.eps = fields.get<float>("eps");
  fields.finish();
  return norm;
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
  config.final_norm = read_norm(fields.take("final_norm"));
  for (nb::handle layer : fields.get<nb::list>("layers"))
    config.layers.push_back(read_layer(layer));
  fields.finish();
  return config;
}

}  // namespace paredown
