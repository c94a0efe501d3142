// The best of many scores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace paredown {

struct Hit {
  float score;
  int64_t number;
};

// Higher scores first, lower numbers first where scores are the same: an order of all hits, so that
// the best do not depend on who found which.
inline bool is_better(const Hit& a, const Hit& b) {
  return a.score > b.score || (a.score == b.score && a.number < b.number);
}

// The `most` best of the hits that it was offered.
class TopHits {
 public:
  // Takes all the memory that it needs.
  explicit TopHits(int64_t most) : most_(static_cast<size_t>(most)) { hits_.reserve(most_); }

  // Whether a hit of this score, and of the lowest number, would be kept.
  bool may_keep(float score) const { return hits_.size() < most_ || score >= hits_.front().score; }

  void offer(const Hit& hit) {
    if (hits_.size() == most_) {
      if (!is_better(hit, hits_.front())) return;
      std::pop_heap(hits_.begin(), hits_.end(), is_better);
      hits_.back() = hit;
    } else {
      hits_.push_back(hit);
    }
    std::push_heap(hits_.begin(), hits_.end(), is_better);
  }

  const std::vector<Hit>& hits() const { return hits_; }

  // The best first.
  std::vector<Hit> sorted() && {
    std::sort_heap(hits_.begin(), hits_.end(), is_better);
    return std::move(hits_);
  }

 private:
  size_t most_;
  std::vector<Hit> hits_;  // a heap, the worst first
};

}  // namespace paredown
