#include "model/rotary_table.h"

#include <cmath>

namespace paredown {

void RotaryTable::reserve(int64_t num_tokens, bool has_sinks) {
  const int64_t bytes = num_buffer_bytes(num_frequencies(), num_tokens);
  for (AlignedBuffer* buffer : {&cos_, &sin_}) *buffer = AlignedBuffer(bytes);
  if (!has_sinks) return;
  for (AlignedBuffer* buffer : {&sink_cos_, &sink_sin_}) *buffer = AlignedBuffer(bytes);
}

int64_t RotaryTable::num_bytes() const {
  return cos_.num_bytes() + sin_.num_bytes() + sink_cos_.num_bytes() + sink_sin_.num_bytes();
}

void RotaryTable::turn(int64_t t, int64_t position, bool is_long) {
  const std::vector<float>& by = frequencies(is_long);
  float* cos_row = row(cos_, t);
  float* sin_row = row(sin_, t);
  for (size_t i = 0; i < by.size(); ++i) {
    const float angle = static_cast<float>(position) * by[i];
    cos_row[i] = std::cos(angle) * turns_.factor;
    sin_row[i] = std::sin(angle) * turns_.factor;
  }
}

// A text without end has positions whose angles a float would be off by whole radians.
void RotaryTable::turn_beside_sinks(int64_t t, int64_t position, int64_t sink_position,
                                    bool is_long) {
  const std::vector<float>& by = frequencies(is_long);
  for (size_t i = 0; i < by.size(); ++i) {
    const double angle = static_cast<double>(position) * by[i];
    const double sink_angle = static_cast<double>(sink_position) * by[i];
    row(cos_, t)[i] = static_cast<float>(std::cos(angle)) * turns_.factor;
    row(sin_, t)[i] = static_cast<float>(std::sin(angle)) * turns_.factor;
    row(sink_cos_, t)[i] = static_cast<float>(std::cos(sink_angle)) * turns_.factor;
    row(sink_sin_, t)[i] = static_cast<float>(std::sin(sink_angle)) * turns_.factor;
  }
}

}  // namespace paredown
