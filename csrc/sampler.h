// From rows of logits to tokens. A row's result depends on that row and its request's state alone:
// every sum runs over the tokens of the vocabulary in one fixed order. docs/sampling.md says what
// is computed; tests/sampling_reference.py says it slowly.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels.h"
#include "sampling_state.h"
#include "thread_pool.h"

namespace paredown {

enum class RowStatus {
  kOk,
  kNotFinite,      // the model gave NaN or infinity, or nothing but minus infinity
  kNothingAllowed  // the request's own settings leave no token
};

// Natural logarithms under the raw logits.
struct RowLogprobs {
  double chosen = 0.0;
  std::vector<std::pair<int32_t, double>> top;  // largest first, equal ones by id
};

struct SampledRow {
  RowStatus status = RowStatus::kOk;
  int32_t token = -1;
  bool has_logprobs = false;
  RowLogprobs logprobs;
};

// The token at which the running sum of `weights` passes `fraction` (in [0, 1)) of the whole: by
// id, in blocks. Weights are finite, none negative, one at least positive; a weight of 0 is never
// drawn.
int32_t draw(const KernelTable& kernels, std::span<const double> weights, double fraction);

class Sampler {
 public:
  // Both must outlive the sampler.
  Sampler(const KernelTable& kernels, ThreadPool& pool);

  // Draws a token for each row of logits [states.size()][vocab_size] and pushes it onto its state.
  // The states are different objects. A row that fails leaves its state as it was.
  void sample(const float* logits, std::span<SamplingState* const> states,
              std::span<SampledRow> rows);

  // The probabilities that `sample` draws from: row i, with drafts[0, i) pushed onto the state
  // before it. logits and probs: [statuses.size()][vocab_size]; drafts: one fewer at least.
  void distributions(const float* logits, SamplingState& state, std::span<const int32_t> drafts,
                     double* probs, std::span<RowStatus> statuses);

  // Log-probabilities of tokens[i] and the `num_top` largest under row i of logits.
  void logprobs(const float* logits, int64_t vocab_size, std::span<const int32_t> tokens,
                int num_top, std::span<SampledRow> rows);

 private:
  struct Candidate {
    double key;
    int32_t token;
    auto operator<=>(const Candidate&) const = default;
  };
  struct Bucket {
    double mass = 0.0;
    int64_t count = 0;
  };
  // Working memory of one thread, sized to the vocabulary.
  struct Scratch {
    std::vector<double> logits;
    std::vector<double> distances;
    std::vector<double> weights;
    std::vector<double> minima;
    std::vector<Bucket> buckets;
    std::vector<int32_t> ids;
    std::vector<Candidate> candidates;
  };

  void reserve(int64_t vocab_size);
  // Each row once, in shares over the threads where that pays.
  template <class Body>
  void for_rows(size_t num_rows, int64_t vocab_size, Body&& body);
  void sample_row(const float* logits, SamplingState& state, Scratch& scratch, SampledRow& row);
  // Greedy: `token` is set and probs left alone. Otherwise probs[vocab_size] and token -1.
  RowStatus distribution(const float* logits, SamplingState& state, Scratch& scratch, double* probs,
                         int32_t& token);
  // The next three work on the distances and weights of the scratch. `truncate` takes the sum of
  // the weights and returns what is left of it.
  double truncate(const SamplingConfig& config, int64_t size, double total, Scratch& scratch);
  bool keep_few(int64_t count, int64_t size, Scratch& scratch);
  void keep_first(int64_t size, int64_t max_count, double wanted, Scratch& scratch);
  RowStatus row_logprobs(const float* logits, int64_t size, int32_t token, int num_top,
                         Scratch& scratch, RowLogprobs& result);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  std::vector<Scratch> scratch_;  // one per thread
};

}  // namespace paredown
