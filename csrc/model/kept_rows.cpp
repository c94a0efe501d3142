// The rows of a step that the last layer still runs on.

#include <cstring>
#include <numeric>

#include "model/model.h"

namespace paredown {

// From the keys and values of the last layer on, only some rows count: row `from` moves to the
// front. A row never moves past its own place.
void Model::keep_row(int64_t to, int64_t from) {
  if (to == from) return;
  const int64_t q_size = config_.layers.back().attention.q_size();
  auto move = [&](const AlignedBuffer& rows, int64_t stride, int64_t size) {
    float* first = rows.as<float>();
    std::memmove(first + to * stride, first + from * stride,
                 static_cast<size_t>(size) * sizeof(float));
  };
  move(hidden_, sizes_.hidden_stride, config_.hidden_size);
  move(wide_, sizes_.wide_stride, q_size);
  if (config_.num_sinks > 0) move(sink_queries_, sizes_.sink_query_stride, q_size);
}

// Keeps the rows whose logits are asked for, in order.
void Model::keep_asked_rows(const StepInput& input) {
  const int64_t num_asked =
      std::accumulate(input.num_logits.begin(), input.num_logits.end(), int64_t{0});
  if (num_asked == num_tokens_) return;
  slices_.clear();
  int64_t to = 0;
  int64_t end = 0;
  for (size_t s = 0; s < input.lengths.size(); ++s) {
    const int64_t asked = input.num_logits[s];
    end += input.lengths[s];
    for (int64_t from = end - asked; from < end; ++from) keep_row(to++, from);
    if (asked == 0) continue;
    slices_.push_back({input.pages.data() + input.page_offsets[s],
                       input.starts[s] + input.lengths[s] - asked, asked, input.num_released[s]});
  }
  num_tokens_ = num_asked;
  layers_.back().attention->plan(slices_);
  plan_cross(input, input.num_logits);
}

}  // namespace paredown
