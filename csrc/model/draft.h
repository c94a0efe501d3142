// Drafts of speculative decoding: a small model goes on with sequences for a few tokens, each drawn
// with its request's own settings and noise, without a word to anybody between two tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace paredown {

// The tokens of `first` are computed in any case. Slice i then goes on for num_draft_tokens[i]
// tokens; its num_logits is 1 where that is more than 0, else 0, and its pages have room for all
// but the last of them.
struct DraftInput {
  StepInput first;
  std::span<SamplingState* const> states;     // [S], different objects
  std::span<const int32_t> num_draft_tokens;  // [S]
};

// Throws std::invalid_argument unless `write_drafts` can run.
void check_drafts(Model& model, const DraftInput& input);

// The draft tokens of each slice, fewer where its settings allow no token. A vocabulary of the
// states that is wider than the model's has tokens that are never drawn, a narrower one leaves the
// last ones out. The states are left as they were. Throws std::runtime_error when logits are not
// finite. The input must have passed `check_drafts`.
std::vector<std::vector<int32_t>> write_drafts(Model& model, const DraftInput& input);

}  // namespace paredown
