// The draw of a token as a race, the Gumbel-max trick in its exponential form: token i arrives at
// E_i / w_i, where E_i is exponential with mean 1, and the first one is token i with probability
// w_i / sum of w. (-log E_i is Gumbel noise and the first one the largest log w_i - log E_i.)
//
// E_i is a function of (seed, position, i) alone: two models that draw at one place with one seed
// mostly draw the same token, more often the more alike they are (docs/internals/speculation.md).
//
// Tokens lie in blocks of 64. The first of 64 such E comes after an exponential time of mean 1/64,
// is that of each with the same probability, and all others come another exponential time later,
// since these have no memory (the top-down construction of Maddison, Tarlow and Minka, "A*
// sampling", 2014). So a block of which not even the first can win is left alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/kernel_table.h"
#include "sampling/philox.h"

namespace paredown {

class Race {
 public:
  Race(uint64_t seed, uint64_t position) : seed_(seed), position_(position) {}

  // The token that comes first. `bounds[b]` is no less than any weight of block b, rounding apart,
  // and `weights_of(b)` points to its weights, of which those above 0 run.
  template <class WeightsOf>
  int32_t run(const double* bounds, int64_t size, WeightsOf&& weights_of) {
    for (int64_t block = 0; block * kTokenBlock < size; ++block) {
      if (bounds[block] <= 0) continue;
      const uint64_t bits = word(block, kFirsts, firsts_);
      // An exponential time is more than the uniform number that it is made of.
      if (fraction(bits) > kSlack * kTokenBlock * best_ * bounds[block]) continue;
      run_block(bits, weights_of(block), block * kTokenBlock, size);
    }
    return winner_;
  }

 private:
  // Streams of the counter: what is drawn for blocks, and for tokens.
  static constexpr uint64_t kFirsts = 0;
  static constexpr uint64_t kTokens = 1;
  // For the rounding of bounds and of logarithms.
  static constexpr double kSlack = 1 + 1e-9;

  struct Words {
    int64_t index = -1;
    std::array<uint64_t, 4> bits;
  };

  // In [0, 1), with 53 random bits.
  static double fraction(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }
  static double exponential(uint64_t bits) { return -std::log1p(-fraction(bits)); }

  void run_block(uint64_t bits, const double* weights, int64_t begin, int64_t size) {
    const double first = exponential(bits) / kTokenBlock;
    const int64_t first_token = begin + static_cast<int64_t>(bits % kTokenBlock);
    const int64_t end = std::min(begin + kTokenBlock, size);
    for (int64_t token = begin; token < end; ++token) {
      const double weight = weights[token - begin];
      if (weight <= 0 || first > kSlack * best_ * weight) continue;
      const double later = token == first_token ? 0.0 : exponential(word(token, kTokens, tokens_));
      const double time = (first + later) / weight;
      if (time >= best_) continue;
      best_ = time;
      winner_ = static_cast<int32_t>(token);
    }
  }

  // Random bits of a block or token. A call of Philox gives those of four neighbours.
  uint64_t word(int64_t number, uint64_t stream, Words& words) {
    if (words.index != number / 4) {
      words.index = number / 4;
      words.bits =
          philox4x64({static_cast<uint64_t>(words.index), position_, stream, 0}, {seed_, 0});
    }
    return words.bits[static_cast<size_t>(number % 4)];
  }

  uint64_t seed_;
  uint64_t position_;
  Words firsts_;
  Words tokens_;
  double best_ = std::numeric_limits<double>::infinity();
  int32_t winner_ = -1;
};

}  // namespace paredown
