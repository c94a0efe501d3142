// A step of the model: from token ids to logits, layer by layer.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "machine/round_up.h"
#include "model/model.h"

namespace paredown {

template <class Body>
void Model::for_rows(int64_t num_rows, Body&& body) {
  paredown::for_rows(pool_, num_rows, body);
}

NormView Model::norm_view(const Norm& norm) const {
  return {config_.norm, config_.norm_eps, norm.weight.data(),
          norm.bias.empty() ? nullptr : norm.bias.data()};
}

KvView Model::kv_view(int64_t layer) const {
  const auto index = static_cast<size_t>(layer);
  const KvFormat format = config_.kv[index];
  return {format.kind, kv_.as<uint8_t>() + kv_offsets_[index], config_.num_kv_heads,
          config_.head_dim, format.is_static ? kv_scales_[index].data() : nullptr};
}

void Model::embed_rows(const StepInput& input) {
  float* hidden = hidden_.as<float>();
  for_rows(num_tokens_, [&](int64_t t) {
    float* row = hidden + t * hidden_stride_;
    const int64_t position = rows_[static_cast<size_t>(t)].position;
    kernels_.embed(
        embedding_.kind,
        embedding_row(input.tokens[static_cast<size_t>(t)], wide_.as<float>() + t * wide_stride_),
        row, config_.hidden_size, false);
    if (positions_.num_rows > 0) {
      kernels_.embed(positions_.kind,
                     positions_.values + (position + position_offset_) * positions_.row_bytes, row,
                     config_.hidden_size, true);
    }
    turn(t, position);
  });
}

void Model::turn(int64_t t, int64_t position) {
  const int64_t half = config_.head_dim / 2;
  const int64_t last = config_.num_sinks + kept_window_ - 1;
  const int64_t num_frequencies = static_cast<int64_t>(config_.inverse_frequencies.size());
  for (int64_t i = 0; i < num_frequencies; ++i) {
    const float frequency = config_.inverse_frequencies[static_cast<size_t>(i)];
    const int64_t place = t * half + i;
    if (config_.num_sinks == 0) {
      const float angle = static_cast<float>(position) * frequency;
      cos_.as<float>()[place] = std::cos(angle);
      sin_.as<float>()[place] = std::sin(angle);
      continue;
    }
    // A text without end has positions whose angles a float would be off by whole radians.
    const double angle = static_cast<double>(position) * frequency;
    const double sink_angle = static_cast<double>(std::min(position, last)) * frequency;
    cos_.as<float>()[place] = static_cast<float>(std::cos(angle));
    sin_.as<float>()[place] = static_cast<float>(std::sin(angle));
    sink_cos_.as<float>()[place] = static_cast<float>(std::cos(sink_angle));
    sink_sin_.as<float>()[place] = static_cast<float>(std::sin(sink_angle));
  }
}

void Model::rotate_and_store(const Layer& layer, int64_t index) {
  const KvView kv = kv_view(index);
  const int64_t head_dim = config_.head_dim;
  const int64_t q_size = config_.num_heads * head_dim;
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  const bool has_norm = !layer.q_norm.weight.empty();
  const bool is_rotary = !config_.inverse_frequencies.empty();
  const NormView q_norm = norm_view(layer.q_norm);
  const NormView k_norm = norm_view(layer.k_norm);
  const int64_t v_offset = config_.num_kv_heads * head_dim;
  auto prepare = [&](int64_t t) {
    float* query = wide_.as<float>() + t * wide_stride_;
    float* key = query + q_size;
    const float* cos = is_rotary ? cos_.as<float>() + t * head_dim / 2 : nullptr;
    const float* sin = is_rotary ? sin_.as<float>() + t * head_dim / 2 : nullptr;
    if (config_.num_sinks > 0) {
      float* sink_query = sink_queries_.as<float>() + t * (q_size + kLanes);
      std::copy_n(query, q_size, sink_query);
      kernels_.prepare_heads(
          {has_norm ? &q_norm : nullptr, sink_cos_.as<float>() + t * head_dim / 2,
           sink_sin_.as<float>() + t * head_dim / 2, query_scale, head_dim},
          sink_query, config_.num_heads);
    }
    kernels_.prepare_heads({has_norm ? &q_norm : nullptr, cos, sin, query_scale, head_dim}, query,
                           config_.num_heads);
    kernels_.prepare_heads({has_norm ? &k_norm : nullptr, cos, sin, 1.0f, head_dim}, key,
                           config_.num_kv_heads);
  };
  for_ranges(pool_, num_tokens_, [&](int, const Range& tokens) {
    for (int64_t t = tokens.begin; t < tokens.end;) {
      const Row& row = rows_[static_cast<size_t>(t)];
      const int32_t page = row.pages[row.position / kPageSize - row.num_released];
      const float* key = wide_.as<float>() + t * wide_stride_ + q_size;
      const bool is_whole = fills_page(t, tokens.end);
      for (const int64_t last = t + (is_whole ? kPageSize : 1); t < last; ++t) prepare(t);
      if (is_whole) {
        kernels_.write_page(kv, page, key, key + v_offset, wide_stride_);
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

void Model::activate() {
  const int64_t size = config_.intermediate_size;
  for_rows(num_tokens_, [&](int64_t t) {
    const float* gate = wide_.as<float>() + t * wide_stride_;
    kernels_.activate(config_.activation, gate, config_.gated ? gate + size : nullptr,
                      activated_.as<float>() + t * wide_stride_, size);
  });
}

// Makes normed rows of hidden_.
auto Model::normed_rows(const Norm& norm) {
  return [this, view = norm_view(norm)](int64_t t, float* row) {
    const int64_t size = config_.hidden_size;
    kernels_.norm(view, hidden_.as<float>() + t * hidden_stride_, row, size);
    std::fill(row + size, row + round_up(size, kBlockColumns), 0.0f);
    return row;
  };
}

// The linear layers of `group` on the normed rows of hidden_: a row is normed and put into the form
// of its kernel while it is in the cache.
void Model::run_normed(const LinearGroup& group, const Norm& norm, int64_t num_rows,
                       const OutputRows& output) {
  linears_.run(group, num_rows, normed_rows(norm), output);
}

// From the keys and values of the last layer on, only rows count whose logits are asked for: they
// move to the front, in order. A row never moves past its own place.
void Model::keep_asked_rows(const StepInput& input) {
  const int64_t num_asked =
      std::accumulate(input.num_logits.begin(), input.num_logits.end(), int64_t{0});
  if (num_asked == num_tokens_) return;
  const int64_t q_size = config_.num_heads * config_.head_dim;
  auto move = [](AlignedBuffer& rows, int64_t stride, int64_t size, int64_t to, int64_t from) {
    float* first = rows.as<float>();
    std::memmove(first + to * stride, first + from * stride,
                 static_cast<size_t>(size) * sizeof(float));
  };
  slices_.clear();
  int64_t to = 0;
  int64_t end = 0;
  for (size_t s = 0; s < input.lengths.size(); ++s) {
    const int64_t asked = input.num_logits[s];
    end += input.lengths[s];
    for (int64_t from = end - asked; from < end; ++from, ++to) {
      move(hidden_, hidden_stride_, config_.hidden_size, to, from);
      move(wide_, wide_stride_, q_size, to, from);
      if (config_.num_sinks > 0) move(sink_queries_, q_size + kLanes, q_size, to, from);
    }
    if (asked == 0) continue;
    slices_.push_back({input.pages.data() + input.page_offsets[s],
                       input.starts[s] + input.lengths[s] - asked, asked, input.num_released[s]});
  }
  num_tokens_ = num_asked;
  attentions_.at(config_.windows.back()).plan(slices_);
}

void Model::run_layer(int64_t index, const StepInput& input) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  float* hidden = hidden_.as<float>();
  const OutputRows wide{wide_.as<float>(), wide_stride_, false, false, false, config_.activation};
  const OutputRows residual{hidden, hidden_stride_, true, false, false, config_.activation};
  run_normed(layer.qkv, layer.attention_norm, num_tokens_, wide);
  rotate_and_store(layer, index);
  if (index == config_.num_layers - 1) {
    keep_asked_rows(input);
    if (num_tokens_ == 0) return;
  }
  attentions_.at(config_.windows[static_cast<size_t>(index)])
      .run(kv_view(index),
           {wide_.as<float>(), wide_stride_, attended_.as<float>(), wide_stride_, nullptr,
            sink_queries_.as<float>(), config_.num_heads * config_.head_dim + kLanes});
  auto attended = [&](int64_t t, float*) { return attended_.as<float>() + t * wide_stride_; };
  linears_.run(layer.out, num_tokens_, attended, residual);
  if (config_.has_experts(index)) {
    experts_.run(layer.moe, norm_view(layer.mlp_norm), residual, num_tokens_);
    return;
  }
  if (layer.up.parts.front().gated()) {
    return linears_.run_gated(
        layer.up, layer.down, num_tokens_, normed_rows(layer.mlp_norm),
        {activated_.as<float>(), wide_stride_, false, false, true, config_.activation}, residual);
  }
  run_normed(layer.up, layer.mlp_norm, num_tokens_, wide);
  activate();
  auto activated = [&](int64_t t, float*) { return activated_.as<float>() + t * wide_stride_; };
  linears_.run(layer.down, num_tokens_, activated, residual);
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
      rows_.push_back({input.starts[s] + j, pages, released});
    }
    slices_.push_back({pages, input.starts[s], input.lengths[s], released});
  }
  reserve(num_tokens_);
  for (auto& [window, attention] : attentions_) attention.plan(slices_);
  embed_rows(input);
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) run_layer(layer, input);
  if (num_tokens_ == 0) return;
  run_normed(output_, final_norm_, num_tokens_,
             {logits, config_.vocab_size, false, false, false, config_.activation});
}

}  // namespace paredown
