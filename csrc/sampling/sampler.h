// From rows of logits to tokens. A row's result depends on that row and its request's state alone:
// every sum runs over the tokens of the vocabulary in one fixed order. docs/internals/sampling.md
// says what is computed; tests/references/sampling.py says it slowly.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/kernel_table.h"
#include "machine/thread_pool.h"
#include "sampling/sampling_state.h"

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

// Rows of a request: `first` is that of its next token. Behind it lies one for each token of
// `draft`, which proposes that token and those after it.
struct DraftedRows {
  int64_t first = 0;
  std::span<const int32_t> draft;
};

class Sampler {
 public:
  // Both must outlive the sampler.
  Sampler(const KernelTable& kernels, ThreadPool& pool);

  // Draws a token for each row of logits [states.size()][vocab_size] and pushes it onto its state.
  // The states are different objects. A row that fails leaves its state as it was.
  void sample(const float* logits, std::span<SamplingState* const> states,
              std::span<SampledRow> rows);

  // As `sample`, for the first row of each; and as long as the token is the draft token, for the
  // next row, too. Into runs[i] go the tokens of state i; the last of them may have failed. Masks
  // that a run did not come to are forgotten.
  void sample_runs(const float* logits, std::span<const DraftedRows> rows,
                   std::span<SamplingState* const> states, std::span<std::vector<SampledRow>> runs);

  // The probabilities [vocab_size] that `sample` draws a token of one row from.
  RowStatus distribution(const float* logits, SamplingState& state, double* probs);

  // Log-probabilities of tokens[i] and the `num_top` largest under row i of logits.
  void logprobs(const float* logits, int64_t vocab_size, std::span<const int32_t> tokens,
                int num_top, std::span<SampledRow> rows);

 private:
  struct Candidate {
    double key;
    int32_t token;
    auto operator<=>(const Candidate&) const = default;
  };
  struct Weighed {
    double distance;
    int32_t token;
    double weight;
    auto operator<=>(const Weighed&) const = default;
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
    std::vector<double> blocks;
    std::vector<float> block_logits;
    std::vector<float> masked_logits;
    std::vector<Bucket> buckets;
    std::vector<int32_t> ids;
    std::vector<Candidate> candidates;
    std::vector<Weighed> few;
    std::vector<double> sorted_blocks;
  };

  void reserve(int64_t vocab_size);
  // Each row once, in shares over the threads where that pays.
  template <class Body>
  void for_rows(size_t num_rows, int64_t vocab_size, Body&& body);
  void sample_row(const float* logits, SamplingState& state, Scratch& scratch, SampledRow& row);
  // The best token by the logits after the state's mask and edits; `largest` is its logit. Masked
  // logits are in the scratch, where `logits` points to afterwards, and edited ones, too.
  RowStatus find_best(const float*& logits, SamplingState& state, Scratch& scratch, double& largest,
                      int32_t& best);
  // The weights of all tokens in the scratch, 0 for those left out of the draw.
  void weigh(const float* logits, SamplingState& state, double largest, Scratch& scratch);
  template <class Logit>
  bool weigh_few(const Logit* logits, const SamplingConfig& config, int64_t size, double largest,
                 Scratch& scratch);
  // Into the blocks of the scratch.
  void block_maxima(const float* logits, int64_t size, Scratch& scratch);
  void block_maxima(const double* logits, int64_t size, Scratch& scratch);
  int32_t draw(const float* logits, SamplingState& state, double largest, Scratch& scratch);
  // The next two work on the distances and weights of the scratch; `total` is their sum.
  void truncate(const SamplingConfig& config, int64_t size, double total, Scratch& scratch);
  void keep_first(int64_t size, int64_t max_count, double wanted, Scratch& scratch);
  RowStatus row_logprobs(const float* logits, int64_t size, int32_t token, int num_top,
                         Scratch& scratch, RowLogprobs& result);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  std::vector<Scratch> scratch_;  // one per thread
};

}  // namespace paredown
