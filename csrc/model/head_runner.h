// Runs what follows the last layer of an encoder: steps on the vectors of tokens, pooling, steps on
// the vectors of texts, and their division by their length. Owns the weights and the working memory
// for it.
//
// Tokens are summed one after the other, in an order of their own: a text's vector does not depend
// on what else is in a batch, nor on how many threads there are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "machine/thread_pool.h"
#include "model/layer.h"
#include "model/linear_runner.h"
#include "model/model_config.h"

namespace paredown {

// A step of a head with its place: "head.token.0", "head.0".
struct HeadStep {
  std::string role;
  HeadStepConfig config;
  int64_t num_columns;
  LinearGroup linear;
  Norm norm;
};

// Floats from one row to the next, and rows of tokens that steps run on at a time.
struct HeadSizes {
  int64_t max_columns;  // of an input
  int64_t token_stride;
  int64_t text_stride;
  int64_t block_tokens;
};
HeadSizes head_sizes(const HeadConfig& config, int64_t hidden_size);

// Bytes of the buffers of a HeadRunner, each of two.
struct HeadMemory {
  int64_t tokens;
  int64_t texts;
};
HeadMemory head_memory(const HeadConfig& config, int64_t hidden_size, int64_t num_tokens,
                       int64_t num_texts);

// The vectors of the tokens of some texts, one after the other.
struct TokenVectors {
  const float* values;
  int64_t row_stride;
  std::span<const int32_t> lengths;  // of the texts
};

class HeadRunner {
 public:
  HeadRunner(const KernelTable& kernels, ThreadPool& pool, LinearRunner& linears,
             const HeadConfig& config, int64_t hidden_size);

  // In their order: those of tokens, then those of texts.
  std::vector<HeadStep>& steps() { return steps_; }
  const std::vector<HeadStep>& steps() const { return steps_; }

  // Room for so many; there may be more already.
  void reserve(int64_t num_tokens, int64_t num_texts);
  int64_t num_bytes() const;

  // outputs: [texts, or tokens without pooling][output size].
  void run(const TokenVectors& tokens, float* outputs);

 private:
  // Rows that a step reads or has written.
  struct Rows {
    const float* values;
    int64_t row_stride;
  };
  // A text's part of the tokens of a block.
  struct Part {
    int64_t text;
    int64_t row;    // of its first token, in the block
    int64_t first;  // token of the text
    int64_t num_tokens;
    bool is_last;
  };

  Rows run_steps(std::span<const HeadStep> steps, Rows input, int64_t num_rows,
                 AlignedBuffer (&buffers)[2], int64_t row_stride);
  void run_step(const HeadStep& step, Rows input, int64_t num_rows, float* output,
                int64_t row_stride);
  void pool_block(const Rows& tokens, std::span<const Part> parts, float* pooled,
                  int64_t row_stride);
  void write_rows(const Rows& rows, int64_t num_rows, float* outputs);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  LinearRunner& linears_;
  const HeadConfig& config_;
  int64_t hidden_size_;
  HeadSizes sizes_;
  std::vector<HeadStep> steps_;
  std::vector<Part> parts_;
  AlignedBuffer tokens_[2];  // [block][token stride]
  AlignedBuffer texts_[2];   // [texts][text stride]
};

}  // namespace paredown
