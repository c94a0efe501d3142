#include "model/draft.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>

namespace paredown {
namespace {

[[noreturn]] void fail(const char* message) { throw std::invalid_argument(message); }

// What the slices that are still written compute next, a token each.
struct NextStep {
  std::vector<int32_t> tokens;
  std::vector<int32_t> starts;
  std::vector<int32_t> ones;
  std::vector<int32_t> zeros;
  std::vector<int32_t> page_offsets;
  std::vector<int32_t> pages;

  void clear() {
    for (auto* list : {&tokens, &starts, &ones, &zeros, &page_offsets, &pages}) list->clear();
    page_offsets.push_back(0);
  }

  void add(const StepInput& first, size_t slice, const std::vector<int32_t>& draft) {
    tokens.push_back(draft.back());
    starts.push_back(first.starts[slice] + first.lengths[slice] +
                     static_cast<int32_t>(draft.size()) - 1);
    ones.push_back(1);
    zeros.push_back(0);
    pages.insert(pages.end(), first.pages.begin() + first.page_offsets[slice],
                 first.pages.begin() + first.page_offsets[slice + 1]);
    page_offsets.push_back(static_cast<int32_t>(pages.size()));
  }

  StepInput input() const { return {tokens, starts, ones, ones, page_offsets, pages, zeros}; }
};

class Writer {
 public:
  Writer(Model& model, const DraftInput& input)
      : model_(model),
        input_(input),
        drafts_(input.states.size()),
        vocab_size_(input.states.empty() ? 0 : input.states.front()->vocab_size()) {
    for (size_t slice = 0; slice < input.states.size(); ++slice) {
      if (input.num_draft_tokens[slice] > 0) writing_.push_back(slice);
    }
    const auto num_rows = static_cast<int64_t>(writing_.size());
    logits_ = buffer(num_rows * model.config().vocab_size);
    if (vocab_size_ != model.config().vocab_size) fitted_ = buffer(num_rows * vocab_size_);
  }

  // However it ends, the states are what they were.
  ~Writer() {
    for (size_t slice = 0; slice < drafts_.size(); ++slice) {
      for (size_t i = 0; i < drafts_[slice].size(); ++i) input_.states[slice]->pop();
    }
  }

  std::vector<std::vector<int32_t>> run() {
    model_.step(input_.first, logits_.get());
    while (!writing_.empty()) {
      draw();
      if (writing_.empty()) break;
      next_.clear();
      for (size_t slice : writing_) next_.add(input_.first, slice, drafts_[slice]);
      model_.step(next_.input(), logits_.get());
    }
    return drafts_;
  }

 private:
  static std::unique_ptr<float[]> buffer(int64_t size) {
    return std::unique_ptr<float[]>(new float[static_cast<size_t>(size)]);
  }

  // A token for each row of logits; who has all, or may have no more, is written no longer.
  void draw() {
    states_.clear();
    for (size_t slice : writing_) states_.push_back(input_.states[slice]);
    rows_.resize(writing_.size());
    model_.sampler().sample(fitted_logits(), states_, rows_);
    size_t num_left = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const size_t slice = writing_[i];
      if (rows_[i].status == RowStatus::kOk) drafts_[slice].push_back(rows_[i].token);
      const auto wanted = static_cast<size_t>(input_.num_draft_tokens[slice]);
      const bool goes_on = rows_[i].status == RowStatus::kOk && drafts_[slice].size() < wanted;
      if (goes_on) writing_[num_left++] = slice;
    }
    writing_.resize(num_left);
    for (const SampledRow& row : rows_) {
      if (row.status == RowStatus::kNotFinite) {
        throw std::runtime_error("the draft model failed: its logits are not finite");
      }
    }
  }

  const float* fitted_logits() {
    const int64_t size = model_.config().vocab_size;
    if (vocab_size_ == size) return logits_.get();
    for (int64_t row = 0; row < static_cast<int64_t>(writing_.size()); ++row) {
      float* fitted = fitted_.get() + row * vocab_size_;
      const int64_t count = std::min(size, vocab_size_);
      std::copy_n(logits_.get() + row * size, count, fitted);
      std::fill(fitted + count, fitted + vocab_size_, -std::numeric_limits<float>::infinity());
    }
    return fitted_.get();
  }

  Model& model_;
  const DraftInput& input_;
  std::vector<std::vector<int32_t>> drafts_;
  int64_t vocab_size_;
  std::vector<size_t> writing_;  // slices
  std::vector<SamplingState*> states_;
  std::vector<SampledRow> rows_;
  std::unique_ptr<float[]> logits_;
  std::unique_ptr<float[]> fitted_;
  NextStep next_;
};

}  // namespace

void check_drafts(Model& model, const DraftInput& input) {
  model.check(input.first);
  const StepInput& first = input.first;
  const size_t num_slices = first.starts.size();
  if (input.states.size() != num_slices || input.num_draft_tokens.size() != num_slices) {
    fail("there must be a state and a number of draft tokens for each slice");
  }
  for (size_t slice = 0; slice < num_slices; ++slice) {
    const int64_t count = input.num_draft_tokens[slice];
    if (count < 0 || first.num_logits[slice] != (count > 0)) fail("num_draft_tokens out of range");
    if (count == 0) continue;
    const int64_t end = int64_t{first.starts[slice]} + first.lengths[slice] + count - 1;
    const int64_t num_pages = first.page_offsets[slice + 1] - first.page_offsets[slice];
    if (end > model.config().max_positions || num_pages * kPageSize < end) {
      fail("a draft leaves its pages or the context");
    }
  }
  std::vector<const SamplingState*> sorted(input.states.begin(), input.states.end());
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    fail("two drafts have the same state");
  }
  for (const SamplingState* state : input.states) {
    if (state->vocab_size() != input.states.front()->vocab_size()) {
      fail("the states have different vocabularies");
    }
  }
}

std::vector<std::vector<int32_t>> write_drafts(Model& model, const DraftInput& input) {
  return Writer(model, input).run();
}

}  // namespace paredown
