// Bytes of the buffers of a step: the largest that any layer wants.
#pragma once

#include <cstdint>

#include "model/attention_runner.h"
#include "model/expert_runner.h"
#include "model/linear_runner.h"
#include "model/model_config.h"

namespace paredown {

// Floats from one row to the next, and columns that a linear layer reads or writes at most.
struct RowSizes {
  int64_t max_columns;
  int64_t wide_stride;
  int64_t hidden_stride;
  int64_t sink_query_stride;
};
RowSizes row_sizes(const ModelConfig& config);

AttentionShape attention_shape(const ModelConfig& config, const LayerConfig& layer);

struct StepMemory {
  int64_t hidden;
  int64_t wide;  // each of three
  int64_t sink_queries;
  int64_t rotary;  // of the tables of all frequencies
  LinearMemory linears;
  int64_t attention;  // of the runners of all shapes
  ExpertMemory experts;

  int64_t total() const;
};
StepMemory step_memory(const ModelConfig& config, int num_threads, int64_t num_tokens);

// Bytes of the buffers that steps of up to num_tokens tokens work in; the lists of rows and tasks,
// some bytes for each, do not count. Throws std::invalid_argument for what no model can be.
int64_t step_bytes(const ModelConfig& config, int num_threads, int64_t num_tokens);

}  // namespace paredown
