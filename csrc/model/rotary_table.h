// The cosines and sines of the rows of a step (RoFormer, arXiv 2104.09864), computed once for all
// layers that turn by the same frequencies.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "machine/aligned_buffer.h"
#include "model/model_config.h"

namespace paredown {

class RotaryTable {
 public:
  explicit RotaryTable(Turns turns) : turns_(std::move(turns)) {}

  const Turns& turns() const { return turns_; }
  int64_t num_frequencies() const { return static_cast<int64_t>(turns_.frequencies.size()); }

  // Bytes of one of the buffers.
  static int64_t num_buffer_bytes(int64_t num_frequencies, int64_t num_tokens) {
    return num_tokens * num_frequencies * static_cast<int64_t>(sizeof(float));
  }
  void reserve(int64_t num_tokens, bool has_sinks);
  int64_t num_bytes() const;

  // Writes the cosines and sines of row t.
  void turn(int64_t t, int64_t position, bool is_long);
  // The queries that meet the sinks turn as at a position of their own.
  void turn_beside_sinks(int64_t t, int64_t position, int64_t sink_position, bool is_long);

  const float* cos(int64_t t) const { return row(cos_, t); }
  const float* sin(int64_t t) const { return row(sin_, t); }
  const float* sink_cos(int64_t t) const { return row(sink_cos_, t); }
  const float* sink_sin(int64_t t) const { return row(sink_sin_, t); }

 private:
  float* row(const AlignedBuffer& buffer, int64_t t) const {
    return buffer.as<float>() + t * num_frequencies();
  }

  const std::vector<float>& frequencies(bool is_long) const {
    const bool are_others = is_long && !turns_.long_frequencies.empty();
    return are_others ? turns_.long_frequencies : turns_.frequencies;
  }

  Turns turns_;
  AlignedBuffer cos_;  // [T][frequencies]
  AlignedBuffer sin_;
  AlignedBuffer sink_cos_;
  AlignedBuffer sink_sin_;
};

}  // namespace paredown
