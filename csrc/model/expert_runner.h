// A mixture of experts in the place of a layer's MLP: the router chooses experts for each token,
// each expert runs on the tokens that were sent to it. Owns the working memory for it.
//
// A token's bits do not depend on its neighbours: the router is a linear layer in fp32, equal
// shares go to the lower index, and what the experts put out is added to the token in the order of
// their indices, the shared expert last.
#pragma once

#include <vector>

#include "kernels/kernel_table.h"
#include "machine/thread_pool.h"
#include "model/linear_runner.h"
#include "model/model_config.h"

namespace paredown {

struct ExpertLinears {
  LinearGroup up;  // gate and up side by side when gated
  LinearGroup down;
};

struct MoeMlp {
  LinearGroup router;
  LinearGroup shared_gate;
  std::vector<ExpertLinears> experts;
  ExpertLinears shared;
};

// The rows that a sublayer reads.
struct HiddenRows {
  const float* values;
  int64_t row_stride;
};

// The largest that any layer's experts want. All 0: no layer has experts.
struct ExpertSizes {
  int64_t hidden_size;
  int64_t num;
  int64_t num_per_token;
  int64_t up_size;  // of gate and up
  int64_t size;
};
ExpertSizes expert_sizes(const ModelConfig& config);

// Bytes of the buffers of an ExpertRunner.
struct ExpertMemory {
  int64_t hidden;  // each of two
  int64_t wide;    // of gate and up
  int64_t activated;
  int64_t shares;
};
ExpertMemory expert_memory(const ExpertSizes& sizes, int64_t num_tokens);

class ExpertRunner {
 public:
  ExpertRunner(const KernelTable& kernels, ThreadPool& pool, LinearRunner& linears,
               const ExpertSizes& sizes);

  void reserve(int64_t num_tokens);
  int64_t num_bytes() const;

  // output[t] += the mixture's output for hidden[t], normed where there is a norm. They may be the
  // same rows.
  void run(const ExpertConfig& config, const MoeMlp& layer, const NormView* norm,
           const HiddenRows& hidden, const OutputRows& output, int64_t num_tokens);

 private:
  // A token that was sent to an expert, and the weight of what comes back.
  struct Sent {
    int64_t token;
    float weight;
  };

  void norm_rows(const NormView* norm, const HiddenRows& hidden, int64_t num_tokens);
  void choose(const ExpertConfig& config, int64_t token);
  void group_by_expert(const ExpertConfig& config, int64_t num_tokens);
  // outputs_[i] = the MLP's output for the normed row of sent[i].
  void run_mlp(const ExpertLinears& linears, const MlpConfig& mlp, const Sent* sent,
               int64_t num_rows);
  void add_outputs(const OutputRows& output, const Sent* sent, int64_t num_rows);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  LinearRunner& linears_;
  ExpertSizes sizes_;
  int64_t hidden_stride_;
  int64_t wide_stride_;
  int64_t activated_stride_;
  int64_t share_stride_;
  AlignedBuffer normed_;         // [T][hidden]
  AlignedBuffer outputs_;        // [T][hidden]
  AlignedBuffer wide_;           // [T][gate, up]
  AlignedBuffer activated_;      // [T][intermediate]
  AlignedBuffer shares_;         // [T][experts], then [T][1] of the shared expert
  std::vector<int32_t> chosen_;  // [T][experts of a token]
  std::vector<float> weights_;   // the same
  std::vector<Sent> sent_;       // by expert, then by token
  std::vector<int64_t> begins_;  // [experts + 1] into sent_
};

}  // namespace paredown
