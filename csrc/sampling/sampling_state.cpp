#include "sampling/sampling_state.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>

namespace paredown {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr int64_t kBitsPerWord = 32;

}  // namespace

SamplingState::SamplingState(SamplingConfig config, int64_t vocab_size,
                             std::span<const int32_t> prompt)
    : config_(std::move(config)),
      vocab_size_(vocab_size),
      num_prompt_tokens_(static_cast<int64_t>(prompt.size())),
      tokens_(prompt.begin(), prompt.end()) {
  check(prompt);
  for (const auto& [token, bias] : config_.logit_bias) check({&token, 1});
  if (config_.allowed_tokens) check(*config_.allowed_tokens);
  for (const std::vector<int32_t>& word : config_.bad_words) {
    if (word.empty()) throw std::invalid_argument("a bad word has no tokens");
    check(word);
  }
  check(config_.ending_tokens);
  if (has_penalties()) {
    for (const int32_t token : prompt) counts_[token].in_prompt = true;
  }
}

void SamplingState::push(int32_t token) {
  check({&token, 1});
  tokens_.push_back(token);
  if (has_penalties()) counts_[token].num_generated += 1;
  is_next_limited_ = false;
  if (has_mask()) ++next_mask_;
}

void SamplingState::pop() {
  if (num_generated() < 1) throw std::invalid_argument("there is no generated token to take back");
  if (has_penalties()) {
    const auto found = counts_.find(tokens_.back());
    found->second.num_generated -= 1;
    if (found->second.num_generated == 0 && !found->second.in_prompt) counts_.erase(found);
  }
  tokens_.pop_back();
  is_next_limited_ = false;
  forget_masks();
}

void SamplingState::allow_next(std::span<const int32_t> tokens) {
  check(tokens);
  next_allowed_.assign(tokens.begin(), tokens.end());
  is_next_limited_ = true;
}

void SamplingState::mask_next(std::span<const uint32_t> masks, size_t num_words) {
  if (static_cast<int64_t>(num_words) * kBitsPerWord < vocab_size_) {
    throw std::invalid_argument("a mask of " + std::to_string(num_words) +
                                " words is too short for a vocabulary of " +
                                std::to_string(vocab_size_));
  }
  masks_.assign(masks.begin(), masks.end());
  num_mask_words_ = num_words;
  num_masks_ = masks.size() / num_words;
  next_mask_ = 0;
}

// Most words allow all of their tokens, or none.
void SamplingState::apply_mask(const float* logits, float* masked) const {
  const uint32_t* words = mask();
  for (int64_t begin = 0; begin < vocab_size_; begin += kBitsPerWord) {
    const uint32_t bits = words[begin / kBitsPerWord];
    const int64_t count = std::min(kBitsPerWord, vocab_size_ - begin);
    if (bits == 0) {
      std::fill_n(masked + begin, count, kForbidden);
    } else if (bits == ~uint32_t{0}) {
      std::copy_n(logits + begin, count, masked + begin);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        masked[begin + i] = (bits >> i & 1) != 0 ? logits[begin + i] : kForbidden;
      }
    }
  }
}

bool SamplingState::mask_leaves_only_ends() const {
  if (!has_mask()) return false;
  const uint32_t* words = mask();
  int64_t num_left = 0;
  for (int64_t begin = 0; begin < vocab_size_; begin += kBitsPerWord) {
    const int64_t count = std::min(kBitsPerWord, vocab_size_ - begin);
    const uint32_t inside = ~uint32_t{0} >> (kBitsPerWord - count);
    num_left += std::popcount(words[begin / kBitsPerWord] & inside);
  }
  for (const int32_t token : config_.ending_tokens) {
    num_left -= words[token / kBitsPerWord] >> (token % kBitsPerWord) & 1;
  }
  return num_left == 0;
}

bool SamplingState::has_edits() const {
  return !config_.logit_bias.empty() || !counts_.empty() || config_.allowed_tokens ||
         is_next_limited_ || !config_.bad_words.empty() || is_too_short();
}

void SamplingState::edit(double* logits) {
  for (const auto& [token, bias] : config_.logit_bias) logits[token] += bias;
  penalize(logits);
  if (config_.allowed_tokens) keep_only(*config_.allowed_tokens, logits);
  if (is_next_limited_) keep_only(next_allowed_, logits);
  ban_words(logits);
  if (is_too_short() && !mask_leaves_only_ends()) {
    for (const int32_t token : config_.ending_tokens) logits[token] = kNever;
  }
}

void SamplingState::check(std::span<const int32_t> tokens) const {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocab_size_) {
      throw std::invalid_argument("token " + std::to_string(token) + " is not in a vocabulary of " +
                                  std::to_string(vocab_size_));
    }
  }
}

bool SamplingState::has_penalties() const {
  return config_.repetition_penalty != 1.0 || config_.presence_penalty != 0.0 ||
         config_.frequency_penalty != 0.0;
}

// Each token's own logit alone changes, so the order of the table does not matter.
void SamplingState::penalize(double* logits) const {
  for (const auto& [token, count] : counts_) {
    double& logit = logits[token];
    logit = logit > 0 ? logit / config_.repetition_penalty : logit * config_.repetition_penalty;
    if (count.num_generated > 0) {
      logit -= config_.frequency_penalty * count.num_generated;
      logit -= config_.presence_penalty;
    }
  }
}

void SamplingState::keep_only(const std::vector<int32_t>& allowed, double* logits) {
  kept_logits_.clear();
  for (const int32_t token : allowed) kept_logits_.push_back(logits[token]);
  std::fill_n(logits, vocab_size_, kNever);
  for (size_t i = 0; i < allowed.size(); ++i) logits[allowed[i]] = kept_logits_[i];
}

void SamplingState::ban_words(double* logits) const {
  for (const std::vector<int32_t>& word : config_.bad_words) {
    const size_t num_before = word.size() - 1;
    if (tokens_.size() < num_before) continue;
    if (std::equal(word.begin(), word.end() - 1,
                   tokens_.end() - static_cast<int64_t>(num_before))) {
      logits[word.back()] = kNever;
    }
  }
}

}  // namespace paredown
