// A step of the model: from token ids to logits, layer by layer.

#include <algorithm>
#include <cmath>
#include <utility>

#include "machine/round_up.h"
#include "model/model.h"

namespace paredown {

template <class Body>
void Model::for_rows(int64_t num_rows, Body&& body) {
  paredown::for_rows(pool_, num_rows, body);
}

namespace {

constexpr int64_t kLogitPiece = 2048;

OutputRows rows_of(const AlignedBuffer& buffer, int64_t stride, bool accumulate) {
  return {buffer.as<float>(), stride, accumulate, false, false, Activation::kRelu};
}

// A weight reads whole blocks of columns: rows of wider layers may have been here.
float* padded_row(const AlignedBuffer& buffer, int64_t stride, int64_t t, int64_t size) {
  float* row = buffer.as<float>() + t * stride;
  std::fill(row + size, row + round_up(size, kBlockColumns), 0.0f);
  return row;
}

void multiply(float* row, int64_t size, float multiplier) {
  for (int64_t i = 0; i < size; ++i) row[i] *= multiplier;
}

// What queries of a position are multiplied with.
float growth(const AttentionConfig& attention, int64_t position) {
  if (attention.growth_beta == 0.0f) return 1.0f;
  const auto rounds = static_cast<double>(1 + position / attention.growth_positions);
  return static_cast<float>(1.0 + attention.growth_beta * std::log(rounds));
}

}  // namespace

KvView Model::kv_view(int64_t index) const {
  const LayerConfig& config = layer_config(index);
  const Layer& layer = layers_[static_cast<size_t>(index)];
  uint8_t* pages = is_encoding_ ? text_kv_.as<uint8_t>() : kv_.as<uint8_t>() + layer.kv_offset;
  return {config.kv.kind, pages, config.attention.num_kv_heads, config.attention.head_dim,
          config.kv.is_static ? layer.kv_scales.data() : nullptr};
}

void Model::embed_rows(std::span<const int32_t> tokens, std::span<const int32_t> types) {
  float* hidden = hidden_.as<float>();
  for_rows(num_tokens_, [&](int64_t t) {
    float* row = hidden + t * sizes_.hidden_stride;
    const int64_t position = rows_[static_cast<size_t>(t)].position;
    kernels_.embed(
        embedding_kind(),
        embedding_row(tokens[static_cast<size_t>(t)], wide_.as<float>() + t * sizes_.wide_stride),
        row, config_.hidden_size, false);
    if (config_.embedding_multiplier != 1.0f) {
      multiply(row, config_.hidden_size, config_.embedding_multiplier);
    }
    if (positions_.num_rows > 0) {
      kernels_.embed(positions_.kind,
                     positions_.values + (position + position_offset_) * positions_.row_bytes, row,
                     config_.hidden_size, true);
    }
    if (token_types_.num_rows > 0) {
      const int64_t type = types.empty() ? 0 : types[static_cast<size_t>(t)];
      kernels_.embed(token_types_.kind, token_types_.values + type * token_types_.row_bytes, row,
                     config_.hidden_size, true);
    }
    if (embedding_norm_.is_there()) {
      kernels_.norm(embedding_norm_.view(), row, row, config_.hidden_size);
    }
    turn(t);
  });
}

void Model::turn(int64_t t) {
  const Row& row = rows_[static_cast<size_t>(t)];
  const int64_t last = config_.num_sinks + kept_window_ - 1;
  for (RotaryTable& table : rotary_tables_) {
    if (config_.num_sinks == 0) {
      table.turn(t, row.position, row.is_long);
    } else {
      table.turn_beside_sinks(t, row.position, std::min(row.position, last), row.is_long);
    }
  }
}

// Whether queries are as their projection made them: they need no pass of their own.
bool Model::scales_in_attention(int64_t index) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  return layer.rotary == nullptr && !layer.norms[NormRole::kQuery].is_there() &&
         layer_config(index).attention.growth_beta == 0.0f;
}

void Model::rotate_and_store(int64_t index) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const AttentionConfig& attention = layer_config(index).attention;
  const KvView kv = kv_view(index);
  const int64_t q_size = attention.q_size();
  const int64_t v_offset = attention.kv_size();
  const RotaryTable* rotary = layer.rotary;
  const NormView q_norm = layer.norms[NormRole::kQuery].view();
  const NormView k_norm = layer.norms[NormRole::kKey].view();
  const bool has_q_norm = layer.norms[NormRole::kQuery].is_there();
  const bool has_k_norm = layer.norms[NormRole::kKey].is_there();
  const bool is_wide = attention.norms_span_heads;
  HeadsView of_queries{};
  of_queries.norm = has_q_norm && !is_wide ? &q_norm : nullptr;
  of_queries.num_turned = rotary == nullptr ? 0 : rotary->num_frequencies();
  of_queries.scale = scales_in_attention(index) ? 1.0f : attention.scale;
  of_queries.head_dim = attention.head_dim;
  HeadsView of_keys = of_queries;
  of_keys.norm = has_k_norm && !is_wide ? &k_norm : nullptr;
  of_keys.scale = 1.0f;
  auto prepare = [&](int64_t t) {
    float* query = wide_.as<float>() + t * sizes_.wide_stride;
    float* key = query + q_size;
    HeadsView queries = of_queries;
    HeadsView keys = of_keys;
    if (is_wide && has_q_norm) kernels_.norm(q_norm, query, query, q_size);
    if (is_wide && has_k_norm) kernels_.norm(k_norm, key, key, v_offset);
    queries.scale *= growth(attention, rows_[static_cast<size_t>(t)].position);
    if (config_.num_sinks > 0) {
      float* sink_query = sink_queries_.as<float>() + t * sizes_.sink_query_stride;
      std::copy_n(query, q_size, sink_query);
      queries.cos = rotary->sink_cos(t);
      queries.sin = rotary->sink_sin(t);
      kernels_.prepare_heads(queries, sink_query, attention.num_heads);
    }
    if (rotary != nullptr) {
      queries.cos = keys.cos = rotary->cos(t);
      queries.sin = keys.sin = rotary->sin(t);
    }
    kernels_.prepare_heads(queries, query, attention.num_heads);
    kernels_.prepare_heads(keys, key, attention.num_kv_heads);
  };
  for_ranges(pool_, num_tokens_, [&](int, const Range& tokens) {
    for (int64_t t = tokens.begin; t < tokens.end;) {
      const Row& row = rows_[static_cast<size_t>(t)];
      const int32_t page = row.pages[row.position / kPageSize - row.num_released];
      const float* key = wide_.as<float>() + t * sizes_.wide_stride + q_size;
      const bool is_whole = fills_page(t, tokens.end);
      for (const int64_t last = t + (is_whole ? kPageSize : 1); t < last; ++t) prepare(t);
      if (is_whole) {
        kernels_.write_page(kv, page, key, key + v_offset, sizes_.wide_stride);
      } else {
        kernels_.write_kv(kv, page, row.position % kPageSize, key, key + v_offset);
      }
    }
  });
}

// Whether row t and those after it, before `end`, are the tokens of a whole page.
bool Model::fills_page(int64_t t, int64_t end) const {
  const Row& row = rows_[static_cast<size_t>(t)];
  if (row.position % kPageSize != 0 || t + kPageSize > end) return false;
  const Row& last = rows_[static_cast<size_t>(t + kPageSize - 1)];
  return last.pages == row.pages && last.position == row.position + kPageSize - 1;
}

void Model::activate(const MlpConfig& mlp) {
  for_rows(num_tokens_, [&](int64_t t) {
    const float* gate = wide_.as<float>() + t * sizes_.wide_stride;
    kernels_.activate(mlp.activation, gate, gate + mlp.size,
                      activated_.as<float>() + t * sizes_.wide_stride, mlp.size);
  });
}

// Makes rows of hidden_ for a group, normed where there is a norm. Sums whose own norm is still
// waiting are normed here, while they are in the cache; by several weights that would be done
// twice.
auto Model::normed_rows(const LinearGroup& group, const Norm& norm) {
  if (group.parts.size() > 1) norm_sums();
  const Norm* sum_norm = std::exchange(sum_norm_, nullptr);
  return [this, &norm, sum_norm, view = norm.view()](int64_t t, float* row) {
    const int64_t size = config_.hidden_size;
    float* hidden = hidden_.as<float>() + t * sizes_.hidden_stride;
    if (sum_norm != nullptr) kernels_.norm(sum_norm->view(), hidden, hidden, size);
    if (!norm.is_there() && size % kBlockColumns == 0) return hidden;
    if (norm.is_there()) {
      kernels_.norm(view, hidden, row, size);
    } else {
      std::copy_n(hidden, size, row);
    }
    std::fill(row + size, row + round_up(size, kBlockColumns), 0.0f);
    return row;
  };
}

// The linear layers of `group` on the normed rows of hidden_: a row is normed and put into the form
// of its kernel while it is in the cache.
void Model::run_normed(const LinearGroup& group, const Norm& norm, int64_t num_rows,
                       const OutputRows& output) {
  linears_.run(group, num_rows, normed_rows(group, norm), output);
}

// Whether a sublayer's outputs are added to hidden_ as they come.
bool Model::is_added_at_once(int64_t index, NormRole norm) const {
  return layer_config(index).residual_multiplier == 1.0f &&
         !layers_[static_cast<size_t>(index)].norms[norm].is_there();
}

// Where a sublayer's outputs go: to hidden_, or to wide_, whose own rows are read by then.
OutputRows Model::sublayer_output(int64_t index, NormRole norm) {
  if (is_added_at_once(index, norm)) return rows_of(hidden_, sizes_.hidden_stride, true);
  return rows_of(wide_, sizes_.wide_stride, false);
}

// Adds what was not added at once.
void Model::add_sublayer(int64_t index, NormRole role) {
  if (is_added_at_once(index, role)) return;
  const Norm& norm = layers_[static_cast<size_t>(index)].norms[role];
  const float multiplier = layer_config(index).residual_multiplier;
  for_rows(num_tokens_, [&](int64_t t) {
    float* added = wide_.as<float>() + t * sizes_.wide_stride;
    float* hidden = hidden_.as<float>() + t * sizes_.hidden_stride;
    if (norm.is_there()) kernels_.norm(norm.view(), added, added, config_.hidden_size);
    for (int64_t i = 0; i < config_.hidden_size; ++i) hidden[i] += multiplier * added[i];
  });
}

// The rows of hidden_ are sums that this norm belongs to, where there is one.
void Model::norm_sums_later(const Norm& norm) { sum_norm_ = norm.is_there() ? &norm : nullptr; }

void Model::norm_sums() {
  if (sum_norm_ != nullptr) norm_hidden(*std::exchange(sum_norm_, nullptr));
}

// Norms rows of hidden_ in place, where there is a norm.
void Model::norm_hidden(const Norm& norm) {
  if (!norm.is_there()) return;
  for_rows(num_tokens_, [&](int64_t t) {
    float* row = hidden_.as<float>() + t * sizes_.hidden_stride;
    kernels_.norm(norm.view(), row, row, config_.hidden_size);
  });
}

void Model::run_attention_output(int64_t index) {
  const int64_t q_size = layer_config(index).attention.q_size();
  auto attended = [&](int64_t t, float*) {
    return padded_row(attended_, sizes_.wide_stride, t, q_size);
  };
  linears_.run(layers_[static_cast<size_t>(index)].out, num_tokens_, attended,
               sublayer_output(index, NormRole::kAttentionOutput));
  add_sublayer(index, NormRole::kAttentionOutput);
  norm_sums_later(layers_[static_cast<size_t>(index)].norms[NormRole::kAttentionSum]);
}

void Model::run_mlp(int64_t index) {
  run_mlp_into(index, sublayer_output(index, NormRole::kMlpOutput));
  add_sublayer(index, NormRole::kMlpOutput);
  norm_sums_later(layers_[static_cast<size_t>(index)].norms[NormRole::kMlpSum]);
}

void Model::run_mlp_into(int64_t index, const OutputRows& output) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const LayerConfig& config = layer_config(index);
  const bool has_one_norm = config.residual == Residual::kParallelOneNorm;
  const Norm& norm = layer.norms[has_one_norm ? NormRole::kAttention : NormRole::kMlp];
  if (config.experts) {
    norm_sums();
    if (!output.accumulate) {
      for_rows(num_tokens_, [&](int64_t t) {
        std::fill_n(output.values + t * output.row_stride, config_.hidden_size, 0.0f);
      });
    }
    const NormView view = norm.view();
    experts_.run(*config.experts, layer.moe, norm.is_there() ? &view : nullptr,
                 {hidden_.as<float>(), sizes_.hidden_stride}, output, num_tokens_);
    return;
  }
  const MlpConfig& mlp = *config.mlp;
  if (layer.up.parts.front().gated()) {
    OutputRows between = rows_of(activated_, sizes_.wide_stride, false);
    between.gated = true;
    between.activation = mlp.activation;
    return linears_.run_gated(layer.up, layer.down, num_tokens_, normed_rows(layer.up, norm),
                              between, output);
  }
  if (mlp.gated) {  // gate and up of formats of their own
    run_normed(layer.up, norm, num_tokens_, rows_of(wide_, sizes_.wide_stride, false));
    activate(mlp);
  } else {
    OutputRows between = rows_of(activated_, sizes_.wide_stride, false);
    between.activated = true;
    between.activation = mlp.activation;
    run_normed(layer.up, norm, num_tokens_, between);
  }
  auto activated = [&](int64_t t, float*) {
    return padded_row(activated_, sizes_.wide_stride, t, mlp.size);
  };
  linears_.run(layer.down, num_tokens_, activated, output);
}

// A layer up to its keys and values.
void Model::project_heads(int64_t index) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  run_normed(layer.qkv, layer.norms[NormRole::kAttention], num_tokens_,
             rows_of(wide_, sizes_.wide_stride, false));
  rotate_and_store(index);
}

// The rest of it.
void Model::mix_layer(int64_t index) {
  AttentionRows rows{
      wide_.as<float>(), sizes_.wide_stride,        attended_.as<float>(),   sizes_.wide_stride,
      nullptr,           sink_queries_.as<float>(), sizes_.sink_query_stride};
  if (scales_in_attention(index)) rows.query_scale = layer_config(index).attention.scale;
  const int64_t max_distance = layer_config(index).attention.max_distance;
  if (max_distance > 0) rows.relative = {relative_.data(), max_distance};
  layers_[static_cast<size_t>(index)].attention->run(kv_view(index), rows);
  // Beside each other, the MLP goes first: it reads hidden_ before attention is added.
  if (layer_config(index).residual != Residual::kSequential) {
    run_mlp(index);
    run_attention_output(index);
  } else {
    run_attention_output(index);
    run_cross(index);
    run_mlp(index);
  }
}

void Model::step(const StepInput& input, float* logits) {
  num_tokens_ = static_cast<int64_t>(input.tokens.size());
  if (num_tokens_ == 0) return;
  pool_.use(num_tokens_ <= kMaxDecodeTokens ? threads_.decode : threads_.prefill);
  rows_.clear();
  slices_.clear();
  for (size_t s = 0; s < input.starts.size(); ++s) {
    const int32_t* pages = input.pages.data() + input.page_offsets[s];
    const int64_t released = input.num_released[s];
    for (int64_t j = 0; j < input.lengths[s]; ++j) {
      rows_.push_back({input.starts[s] + j, pages, released, is_long(input, s)});
    }
    slices_.push_back({pages, input.starts[s], input.lengths[s], released});
  }
  reserve(num_tokens_);
  for (auto& [shape, attention] : attentions_) attention.plan(slices_);
  plan_cross(input, input.lengths);
  embed_rows(input.tokens, {});
  for (int64_t layer = 0; layer < config_.num_layers(); ++layer) {
    project_heads(layer);
    if (layer == config_.num_layers() - 1) {
      keep_asked_rows(input);
      if (num_tokens_ == 0) return;
    }
    mix_layer(layer);
  }
  const int64_t vocab_size = config_.vocab_size;
  run_normed(output_, final_norm_, num_tokens_,
             {logits, vocab_size, false, false, false, Activation::kRelu});
  finish_logits(logits);
}

// Multiplies and caps them, in pieces that threads share where there are few rows.
void Model::finish_logits(float* logits) {
  const float multiplier = config_.output_multiplier;
  const float cap = config_.output_soft_cap;
  if (multiplier == 1.0f && cap == 0.0f) return;
  const int64_t size = num_tokens_ * config_.vocab_size;
  for_rows(divide_up(size, kLogitPiece), [&](int64_t piece) {
    float* first = logits + piece * kLogitPiece;
    const int64_t count = std::min(kLogitPiece, size - piece * kLogitPiece);
    if (multiplier != 1.0f) multiply(first, count, multiplier);
    if (cap != 0.0f) kernels_.soft_cap(first, count, cap);
  });
}

}  // namespace paredown
