// Which keys the query rows of a task see, and what all chunks of keys of a row add up to.
#pragma once

#include "kernels/attention/scratch.h"

namespace paredown {
namespace {

// The keys that the rows of a token see: [first, end).
struct KeyRange {
  int64_t first;
  int64_t end;
};

inline KeyRange keys_of_token(const AttentionTask& task, int64_t token) {
  const int64_t position = task.start + token;
  const int64_t first = task.window > 0 ? position - task.window + 1 : 0;
  const int64_t begin = first > task.num_sinks ? first : task.num_sinks;
  if (task.num_keys == 0) return {begin, position + 1};
  const int64_t end = task.window > 0 ? position + task.window : task.num_keys;
  return {begin, end < task.num_keys ? end : task.num_keys};
}

// The sinks among the keys up to a token's own; nothing else is seen with the rows' second queries.
inline KeyRange sinks_of_token(const AttentionTask& task, int64_t token) {
  const int64_t end = task.start + token + 1;
  return {0, end < task.num_sinks ? end : task.num_sinks};
}

inline bool meets_chunk(const KeyRange& keys, int64_t chunk) {
  return keys.first < keys.end && keys.end > chunk * kChunkKeys &&
         keys.first < (chunk + 1) * kChunkKeys;
}

inline float* output_of_row(const AttentionRows& rows, const AttentionTask& task, int64_t row,
                            int64_t head_dim) {
  const int64_t head = task.kv_head * task.heads_per_kv + row % task.heads_per_kv;
  return rows.outputs + (task.token + row / task.heads_per_kv) * rows.output_stride +
         head * head_dim;
}

// The running result of a row: what all chunks so far add up to.
struct RowTotal {
  float* maximum;
  float* sum;
  float* output;  // [head_dim]
};

inline void begin_total(const RowTotal& total, int64_t head_dim) {
  *total.maximum = kLowest;
  *total.sum = 0.0f;
  for (int64_t d = 0; d < head_dim; d += kLanes) store_f(total.output + d, zero_f());
}

// Adds one chunk's partial result; chunks come in ascending order.
inline void add_chunk(const RowTotal& total, float maximum, float sum, const float* output,
                      int64_t head_dim) {
  const float largest = maximum > *total.maximum ? maximum : *total.maximum;
  const F32x16 old_factor = exp2_or_zero(set_f(*total.maximum - largest));
  const F32x16 new_factor = exp2_or_zero(set_f(maximum - largest));
  float lanes[kLanes];
  store_f(lanes, fma(set_f(*total.sum), old_factor, mul(set_f(sum), new_factor)));
  *total.sum = lanes[0];
  *total.maximum = largest;
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const F32x16 scaled = mul(load_f(output + d), new_factor);
    store_f(total.output + d, fma(load_f(total.output + d), old_factor, scaled));
  }
}

// Of a row with one chunk, without a total, the same bits as with one: adding 0 makes -0, which a
// total begun with +0 cannot be, +0.
inline void write_normalized(const float* sums, float sum, float* output, int64_t head_dim) {
  const F32x16 inverse = set_f(1.0f / sum);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    store_f(output + d, mul(add(load_f(sums + d), zero_f()), inverse));
  }
}

inline void end_total(const RowTotal& total, int64_t head_dim) {
  write_normalized(total.output, *total.sum, total.output, head_dim);
}

}  // namespace
}  // namespace paredown
