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

namespace paredown {

// Mirrors Experts (src/paredown/spec/experts.py).
struct ExpertShape {
  int64_t num_experts;  // 0: the model has none
  int64_t num_per_token;
  int64_t intermediate_size;
  int64_t shared_intermediate_size;  // 0: no shared expert
  bool normalized;
};

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

// What an expert's MLP has in common with that of a dense layer.
struct MlpShape {
  int64_t hidden_size;
  bool gated;
  Activation activation;
};

// Bytes of the buffers of an ExpertRunner.
struct ExpertMemory {
  int64_t hidden;  // each of two
  int64_t wide;    // of gate and up
  int64_t activated;
  int64_t shares;
};
ExpertMemory expert_memory(const ExpertShape& experts, const MlpShape& mlp, int64_t num_tokens);

class ExpertRunner {
 public:
  ExpertRunner(const KernelTable& kernels, ThreadPool& pool, LinearRunner& linears,
               const ExpertShape& experts, const MlpShape& mlp);

  void reserve(int64_t num_tokens);
  int64_t num_bytes() const;

  // hidden[t] += the mixture's output for the normed hidden[t].
  void run(const MoeMlp& layer, const NormView& norm, OutputRows hidden, int64_t num_tokens);

 private:
  // A token that was sent to an expert, and the weight of what comes back.
  struct Sent {
    int64_t token;
    float weight;
  };

  void norm_rows(const NormView& norm, const OutputRows& hidden, int64_t num_tokens);
  void choose(int64_t token);
  void group_by_expert(int64_t num_tokens);
  // outputs_[i] = the MLP's output for the normed row of sent[i].
  void run_mlp(const ExpertLinears& linears, int64_t size, const Sent* sent, int64_t num_rows);
  void add_outputs(const OutputRows& hidden, const Sent* sent, int64_t num_rows);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  LinearRunner& linears_;
  ExpertShape experts_;
  MlpShape mlp_;
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
