// What sampling knows of one request: its settings, its tokens and how often each of them came.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace paredown {

// docs/internals/sampling.md has the meaning and the order of all this. Defaults change nothing.
struct SamplingConfig {
  double temperature = 1.0;  // 0: the largest logit wins
  int64_t top_k = 0;         // 0: every token
  double top_p = 1.0;
  double min_p = 0.0;
  double typical_p = 1.0;
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::vector<std::pair<int32_t, double>> logit_bias;
  std::optional<std::vector<int32_t>> allowed_tokens;
  std::vector<std::vector<int32_t>> bad_words;
  int64_t min_tokens = 0;
  std::vector<int32_t> ending_tokens;  // forbidden until there are min_tokens
  int num_logprobs = -1;               // -1: none, 0: the chosen token's
  uint64_t seed = 0;

  bool is_greedy() const { return temperature == 0 || top_k == 1; }
  // Whether tokens may be left out of the draw for what others weigh; min_p asks for each alone.
  bool truncates() const { return top_k > 0 || top_p < 1 || typical_p < 1; }
};

class SamplingState {
 public:
  // Throws std::invalid_argument for a token outside the vocabulary.
  SamplingState(SamplingConfig config, int64_t vocab_size, std::span<const int32_t> prompt);

  const SamplingConfig& config() const { return config_; }
  int64_t vocab_size() const { return vocab_size_; }
  // The position of the token to come.
  int64_t num_tokens() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t num_generated() const { return num_tokens() - num_prompt_tokens_; }

  // Throws std::invalid_argument for a token outside the vocabulary.
  void check(std::span<const int32_t> tokens) const;

  // A generated token is known now; `pop` takes the last one back. Both forget `allow_next`. The
  // next token has the next mask, if there is one, and after `pop` there is none.
  void push(int32_t token);
  void pop();
  // Of the token to come only these are allowed, besides what the settings say.
  void allow_next(std::span<const int32_t> tokens);
  // The same for the tokens to come, one mask of `num_words` words for each. Bit t % 32 of word
  // t / 32 allows token t. Throws std::invalid_argument for masks with too few words.
  void mask_next(std::span<const uint32_t> masks, size_t num_words);
  void forget_masks() { num_masks_ = 0; }
  bool has_mask() const { return next_mask_ < num_masks_; }
  // Writes the logits, with minus infinity for tokens that the mask forbids.
  void apply_mask(const float* logits, float* masked) const;

  // Whether `edit` would change any logit. It knows nothing of the mask.
  bool has_edits() const;
  // Bias, penalties and what is not allowed, on logits[vocab_size].
  void edit(double* logits);

 private:
  struct Count {
    bool in_prompt = false;
    int32_t num_generated = 0;
  };

  bool has_penalties() const;
  bool is_too_short() const { return num_generated() < config_.min_tokens; }
  // A grammar that has come to its end leaves nothing else.
  bool mask_leaves_only_ends() const;
  const uint32_t* mask() const { return masks_.data() + next_mask_ * num_mask_words_; }
  void penalize(double* logits) const;
  void keep_only(const std::vector<int32_t>& allowed, double* logits);
  void ban_words(double* logits) const;

  SamplingConfig config_;
  int64_t vocab_size_;
  int64_t num_prompt_tokens_;
  std::vector<int32_t> tokens_;
  std::unordered_map<int32_t, Count> counts_;  // kept only where a penalty reads them
  bool is_next_limited_ = false;
  std::vector<int32_t> next_allowed_;
  std::vector<double> kept_logits_;
  std::vector<uint32_t> masks_;
  size_t num_mask_words_ = 0;
  size_t num_masks_ = 0;
  size_t next_mask_ = 0;
};

}  // namespace paredown
