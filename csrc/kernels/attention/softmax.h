// The softmax of one tile of rows over one block of keys: scores become weights, and what the rows
// have summed so far is told by how much their largest score has grown.
#pragma once

#include "kernels/attention/digits.h"
#include "kernels/attention/relative.h"

namespace paredown {
namespace {

template <class Products>
class TileSoftmax {
 public:
  TileSoftmax(const AttentionScratch& scratch, Products& products, const RelativeScores& relative,
              float soft_cap)
      : scratch_(scratch),
        products_(products),
        relative_(relative),
        is_capped_(soft_cap > 0.0f),
        cap_(soft_cap * kLog2E),
        inverse_cap_(is_capped_ ? 1.0f / cap_ : 0.0f) {}

  // Once the scales of a block are known.
  void begin_block() {
    if constexpr (!Products::kDigital) return;
    F32x16 largest = zero_f();
    for (int key = 0; key < kBlockKeys; key += kLanes) {
      largest = max(largest, abs(load_f(scratch_.value_scales + key)));
    }
    block_digits_ = digit_scale(max_lanes(largest));
  }

  // fetch(rows left) stands between the rows: requests to memory.
  template <class Fetch>
  void weigh(TileWork& work, Fetch&& fetch) {
    if (work.whole) {
      weigh_rows<true>(work, fetch);
    } else {
      weigh_rows<false>(work, fetch);
    }
  }

 private:
  template <bool kWhole, class Fetch>
  void weigh_rows(TileWork& work, Fetch&& fetch) {
    float* maxima = scratch_.maxima + work.tile * kTileRows;
    float* sums = scratch_.sums + work.tile * kTileRows * kLanes;
    F32x16 largest[kTileRows];
    for (int r = 0; r < kTileRows; ++r) largest[r] = set_f(kLowest);
    for (int r = work.row_begin; r < work.row_end; ++r) {
      products_.keep_awake();
      largest[r] = finish_scores<kWhole>(work, r);
    }
    const F32x16 old_maxima = load_f(maxima);
    const F32x16 new_maxima = max(old_maxima, max_of_each(largest));
    store_f(maxima, new_maxima);
    store_f(work.factors, exp2_or_zero(sub(old_maxima, new_maxima)));
    for (int r = work.row_begin; r < work.row_end; ++r) {
      const F32x16 added = weigh_row<kWhole>(work, r, set_f(maxima[r]));
      products_.keep_awake();
      fetch(work.row_end - r);
      store_f(sums + r * kLanes, fma(load_f(sums + r * kLanes), set_f(work.factors[r]), added));
    }
  }

  // Scales, shifts, caps and masks a row's scores in place; returns the largest by lane.
  template <bool kWhole>
  F32x16 finish_scores(const TileWork& work, int row) const {
    const float* key_scales = scratch_.key_scales;
    float* scores = scratch_.scores + row * kBlockKeys;
    const int page_begin = kWhole ? 0 : work.page_begin;
    const int page_end = kWhole ? kBlockPages : work.page_end;
    const int64_t task_row = work.tile * kTileRows + row;
    F32x16 largest = set_f(kLowest);
    for (int page = page_begin; page < page_end; ++page) {
      const int first = page * kPageSize;
      F32x16 score = products_.load_score(work, row, page);
      if constexpr (Products::kScaled) score = mul(score, load_f(key_scales + first));
      if (relative_.is_there()) {
        score = add(score, relative_.load(task_row, work.first_key + first));
      }
      if (is_capped_) score = soft_capped(score, set_f(cap_), set_f(inverse_cap_));
      const bool all =
          kWhole || (work.key_begins[row] <= first && first + kPageSize <= work.key_ends[row]);
      if (!all) score = mask(work, row, page, score, kLowest);
      if (Products::kScaled || relative_.is_there() || is_capped_ || !all)
        store_f(scores + first, score);
      largest = max(largest, score);
    }
    return largest;
  }

  // x where a row sees the key, `hidden` where it does not.
  static F32x16 mask(const TileWork& work, int row, int page, F32x16 x, float hidden) {
    alignas(64) static constexpr float kLaneIndex[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                             8, 9, 10, 11, 12, 13, 14, 15};
    const F32x16 key = add(load_f(kLaneIndex), set_f(static_cast<float>(page * kPageSize)));
    const F32x16 begin = set_f(static_cast<float>(work.key_begins[row]));
    const F32x16 end = set_f(static_cast<float>(work.key_ends[row]));
    return select_less(key, begin, set_f(hidden), select_less(key, end, x, set_f(hidden)));
  }

  // Turns a row's scores into weights; returns their sums by lane.
  template <bool kWhole>
  F32x16 weigh_row(const TileWork& work, int row, F32x16 limit) {
    constexpr int kStep = kWeightPages;
    const float* scores = scratch_.scores + row * kBlockKeys;
    const float* value_scales = scratch_.value_scales;
    const int page_begin = kWhole ? 0 : work.page_begin;
    const int page_end = kWhole ? kBlockPages : work.page_end;
    F32x16 sum = zero_f();
    [[maybe_unused]] F32x16 unit = set_f(1.0f);
    if constexpr (Products::kDigital) {
      const bool sees_all =
          kWhole || (work.key_begins[row] == 0 && work.key_ends[row] == kBlockKeys);
      const DigitScale digits = sees_all ? block_digits_ : row_digits(work, row);
      unit = set_f(digits.up);
      products_.begin_weights(row, digits.scale);
    }
    for (int first = page_begin / kStep * kStep; first < page_end; first += kStep) {
      F32x16 weights[kStep];
      for (int i = 0; i < kStep; ++i) {
        const int page = first + i;
        weights[i] = zero_f();
        if (!kWhole && (page < page_begin || page >= page_end)) continue;
        weights[i] = exp2_or_zero(sub(load_f(scores + page * kPageSize), limit));
        sum = add(sum, weights[i]);
        if constexpr (Products::kDigital) weights[i] = mul(weights[i], unit);
        if constexpr (Products::kScaled) {
          weights[i] = mul(weights[i], load_f(value_scales + page * kPageSize));
        }
      }
      products_.store_weights(row, first, weights);
    }
    if constexpr (Products::kDigital) products_.end_weights(row);
    return sum;
  }

  // A row's last digit follows from the values that it sees, not from others of the block.
  DigitScale row_digits(const TileWork& work, int row) const {
    F32x16 largest = zero_f();
    for (int page = work.page_begin; page < work.page_end; ++page) {
      const F32x16 scale = abs(load_f(scratch_.value_scales + page * kPageSize));
      largest = max(largest, mask(work, row, page, scale, 0.0f));
    }
    return digit_scale(max_lanes(largest));
  }

  const AttentionScratch& scratch_;
  Products& products_;
  const RelativeScores& relative_;
  bool is_capped_;
  float cap_;  // of scores, in powers of two as they are
  float inverse_cap_;
  // The digits of the weights of rows that see the whole block, whose weights are at most 1.
  DigitScale block_digits_{};
};

}  // namespace
}  // namespace paredown
