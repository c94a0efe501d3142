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

AttentionShape attention_shape(const AttentionConfig& attention, int64_t num_sinks);

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

// Of the layer whose keys and values take most.
int64_t largest_page_bytes(const ModelConfig& config);

// Texts that run through all layers side by side: as many as lie in the caches together, at least
// one.
class TextGroup {
 public:
  static constexpr int64_t kTokens = 1024;
  static constexpr int64_t kPages = 2 * kTokens / kPageSize;  // some texts are shorter than a page

  // Adds a text where it belongs to the group.
  bool takes(int64_t num_tokens);

 private:
  int64_t num_tokens_ = 0;
  int64_t num_pages_ = 0;
};

// Bytes of the buffers that encoding works in where no text is longer than max_tokens. Throws as
// step_bytes does.
int64_t encode_bytes(const ModelConfig& config, int num_threads, int64_t max_tokens);

// Bytes of the buffers that steps of up to num_tokens tokens work in; the lists of rows and tasks,
// some bytes for each, do not count. Throws std::invalid_argument for what no model can be.
int64_t step_bytes(const ModelConfig& config, int num_threads, int64_t num_tokens);

}  // namespace paredown
