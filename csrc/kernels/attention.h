// Attention of query rows over pages: tiles of 16 rows, blocks of 64 keys, one pass with an online
// softmax (FlashAttention-2, arXiv 2307.08691, Algorithm 1; chunks merged as in Flash-Decoding).
//
// Blocks and chunks lie at fixed positions, and each row's masked keys add exactly nothing, so a
// row's bits depend on its sequence and position alone, not on the rows it shares a tile with.
#pragma once

#include "attention_lanes.h"
#if defined(PAREDOWN_HAS_TILES)
#include "attention_byte_tiles.h"
#include "attention_tiles.h"
#else
#include "attention_digits.h"
#endif

namespace paredown {
namespace {

// The keys that the rows of a token see: [first, end).
struct KeyRange {
  int64_t first;
  int64_t end;
};

inline KeyRange keys_of_token(const AttentionTask& task, int64_t token) {
  const int64_t position = task.start + token;
  const int64_t first = task.window > 0 ? position - task.window + 1 : 0;
  return {first > task.num_sinks ? first : task.num_sinks, position + 1};
}

// The sinks among the keys up to a token's own; nothing else is seen with the rows' second queries.
inline KeyRange sinks_of_token(const AttentionTask& task, int64_t token) {
  const int64_t end = task.start + token + 1;
  return {0, end < task.num_sinks ? end : task.num_sinks};
}

inline bool meets_chunk(const KeyRange& keys, int64_t chunk) {
  return keys.first < keys.end && keys.end > chunk * kChunkKeys &&
         keys.first < (chunk + 1) * kChunkKeys;
}

inline float* output_of_row(const AttentionRows& rows, const AttentionTask& task, int64_t row,
                            int64_t head_dim) {
  const int64_t head = task.kv_head * task.heads_per_kv + row % task.heads_per_kv;
  return rows.outputs + (task.token + row / task.heads_per_kv) * rows.output_stride +
         head * head_dim;
}

// The running result of a row: what all chunks so far add up to.
struct RowTotal {
  float* maximum;
  float* sum;
  float* output;  // [head_dim]
};

inline void begin_total(const RowTotal& total, int64_t head_dim) {
  *total.maximum = kLowest;
  *total.sum = 0.0f;
  for (int64_t d = 0; d < head_dim; d += kLanes) store_f(total.output + d, zero_f());
}

// Adds one chunk's partial result; chunks come in ascending order.
inline void add_chunk(const RowTotal& total, float maximum, float sum, const float* output,
                      int64_t head_dim) {
  const float largest = maximum > *total.maximum ? maximum : *total.maximum;
  const F32x16 old_factor = exp2_or_zero(set_f(*total.maximum - largest));
  const F32x16 new_factor = exp2_or_zero(set_f(maximum - largest));
  float lanes[kLanes];
  store_f(lanes, fma(set_f(*total.sum), old_factor, mul(set_f(sum), new_factor)));
  *total.sum = lanes[0];
  *total.maximum = largest;
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const F32x16 scaled = mul(load_f(output + d), new_factor);
    store_f(total.output + d, fma(load_f(total.output + d), old_factor, scaled));
  }
}

inline void end_total(const RowTotal& total, int64_t head_dim) {
  const F32x16 inverse = set_f(1.0f / *total.sum);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    store_f(total.output + d, mul(load_f(total.output + d), inverse));
  }
}

template <class Products>
class TaskAttention {
 public:
  TaskAttention(const KvView& kv, const AttentionRows& rows, const AttentionTask& task,
                const AttentionScratch& scratch)
      : kv_(kv),
        rows_(rows),
        task_(task),
        scratch_(scratch),
        num_rows_(task.row_end - task.row_begin),
        products_(kv, scratch, num_rows_) {}

  void run() {
    for_rows([this](int64_t row, int64_t token, int64_t column) {
      outputs_[row] = rows_.outputs + (task_.token + token) * rows_.output_stride + column;
      if (is_whole()) begin_total(total_of(row), kv_.head_dim);
    });
    if (task_.has_sinks) run_sinks();
    num_released_ = task_.num_released;
    for_rows([this](int64_t row, int64_t token, int64_t column) {
      products_.load_query(row,
                           rows_.queries + (task_.token + token) * rows_.query_stride + column);
      keys_[row] = keys_of_token(task_, token);
    });
    for (int64_t chunk = task_.chunk_begin; chunk < task_.chunk_end; ++chunk) {
      run_chunk(chunk, chunk - task_.chunk_begin + task_.has_sinks);
    }
    if (!is_whole()) return;
    for (int64_t row = 0; row < num_rows_; ++row) end_total(total_of(row), kv_.head_dim);
  }

 private:
  // Row, token and first column of its head, for every row.
  template <class Body>
  void for_rows(Body&& body) const {
    int64_t token = task_.row_begin / task_.heads_per_kv;
    int64_t head = task_.row_begin % task_.heads_per_kv;
    for (int64_t row = 0; row < num_rows_; ++row) {
      body(row, token, (task_.kv_head * task_.heads_per_kv + head) * kv_.head_dim);
      if (++head < task_.heads_per_kv) continue;
      head = 0;
      ++token;
    }
  }

  void run_sinks() {
    for_rows([this](int64_t row, int64_t token, int64_t column) {
      products_.load_query(
          row, rows_.sink_queries + (task_.token + token) * rows_.sink_query_stride + column);
      keys_[row] = sinks_of_token(task_, token);
    });
    run_chunk(0, 0);
  }

  bool is_whole() const { return task_.partial < 0; }

  RowTotal total_of(int64_t row) const {
    return {scratch_.total_maxima + row, scratch_.total_sums + row, outputs_[row]};
  }

  // `slot`: its place among the partial results.
  void run_chunk(int64_t chunk, int64_t slot) {
    for (int64_t row = 0; row < num_rows_; ++row) {
      scratch_.maxima[row] = kLowest;
      store_f(scratch_.sums + row * kLanes, zero_f());
    }
    for (int64_t i = 0; i < num_rows_ * kv_.head_dim; i += kLanes) {
      store_f(scratch_.outputs + i, zero_f());
    }
    int64_t begin = chunk * kChunkKeys;
    const int64_t chunk_end = begin + kChunkKeys;
    const int64_t last_end = keys_[num_rows_ - 1].end;
    const int64_t end = last_end < chunk_end ? last_end : chunk_end;
    if (begin < keys_[0].first) begin = keys_[0].first / kBlockKeys * kBlockKeys;
    for (; begin < end; begin += kBlockKeys) run_block(begin);
    for (int64_t row = 0; row < num_rows_; ++row) {
      if (meets_chunk(keys_[row], chunk)) end_chunk(slot, row);
    }
  }

  void end_chunk(int64_t slot, int64_t row) {
    const float sum = sum_lanes(load_f(scratch_.sums + row * kLanes));
    const float* output = scratch_.outputs + row * kv_.head_dim;
    if (is_whole()) {
      return add_chunk(total_of(row), scratch_.maxima[row], sum, output, kv_.head_dim);
    }
    float* partial =
        rows_.partials + task_.partial + (slot * num_rows_ + row) * partial_floats(kv_.head_dim);
    partial[0] = scratch_.maxima[row];
    partial[1] = sum;
    for (int64_t d = 0; d < kv_.head_dim; d += kLanes) {
      store_f(partial + 16 + d, load_f(output + d));
    }
  }

  // A block of keys against all tiles.
  void run_block(int64_t first_key) {
    const int64_t num_tiles = (num_rows_ + kTileRows - 1) / kTileRows;
    load_block(first_key);
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      TileWork work;
      if (!begin_work(work, first_key, tile)) continue;
      products_.score(work, [this] { fetch_page(); });
      weigh(work);
      products_.weigh_values(work);
      add_values(work);
    }
  }

  void load_block(int64_t first_key) {
    const int64_t first = keys_[0].first;
    const int64_t num_pages = (keys_[num_rows_ - 1].end + kPageSize - 1) / kPageSize;
    const int64_t first_page = first_key / kPageSize;
    const int64_t left = num_pages - first_page;
    const int page_end = left < kBlockPages ? static_cast<int>(left) : kBlockPages;
    next_page_ = first_page + kBlockPages;
    next_end_ = next_page_ + kBlockPages < num_pages ? next_page_ + kBlockPages : num_pages;
    for (int page = first > first_key ? static_cast<int>((first - first_key) / kPageSize) : 0;
         page < page_end; ++page) {
      load_page(page, head_of_page(first_page + page));
      products_.keep_awake();
      if (Products::kCopies && page % 2 == 1) fetch_page();
    }
    if constexpr (Products::kDigital) begin_digits();
  }

  const uint8_t* head_of_page(int64_t number) const {
    return page_head(kv_, task_.pages[number - num_released_], task_.kv_head);
  }

  void load_page(int page, const uint8_t* head) {
    products_.load_page(page, head);
    if constexpr (Products::kScaled) {
      float* key_scales = scratch_.key_scales + page * kPageSize;
      float* value_scales = scratch_.value_scales + page * kPageSize;
      if (kv_.static_scales != nullptr) {
        store_f(key_scales, set_f(kv_.static_scales[task_.kv_head]));
        store_f(value_scales, set_f(kv_.static_scales[kv_.num_kv_heads + task_.kv_head]));
        return;
      }
      const auto* scales =
          reinterpret_cast<const uint16_t*>(head + 2 * key_bytes(kv_.kind, kv_.head_dim));
      store_f(key_scales, load_bf16(scales));
      store_f(value_scales, load_bf16(scales + kPageSize));
    }
  }

  // The digits of the weights of rows that see the whole block, whose weights are at most 1.
  void begin_digits() {
    F32x16 largest = zero_f();
    for (int key = 0; key < kBlockKeys; key += kLanes) {
      largest = max(largest, abs(load_f(scratch_.value_scales + key)));
    }
    block_digits_ = digit_scale(max_lanes(largest));
  }

  void fetch_share(int num_shares) {
    for (int64_t i = (next_end_ - next_page_) / num_shares; i > 0; --i) fetch_page();
  }

  // The next pages may lie anywhere, where no hardware prefetcher expects them. One at a time: more
  // requests than the caches can have under way hold up the work beside them.
  void fetch_page() {
    if (next_page_ >= next_end_) return;
    const int64_t bytes = kv_head_bytes(kv_);
    const uint8_t* head = head_of_page(next_page_++);
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(head + i, 0, 2);
  }

  bool begin_work(TileWork& work, int64_t first_key, int64_t tile) {
    const int64_t first_row = tile * kTileRows;
    const int64_t left = num_rows_ - first_row;
    const int num_rows = static_cast<int>(left < kTileRows ? left : kTileRows);
    const KeyRange* keys = keys_ + first_row;
    work.tile = static_cast<int>(tile);
    // Both ends of what a row sees rise from row to row.
    work.whole = keys[num_rows - 1].first <= first_key && keys[0].end >= first_key + kBlockKeys;
    work.row_begin = 0;
    work.row_end = num_rows;
    work.page_begin = 0;
    work.page_end = kBlockPages;
    if (work.whole) return true;
    work.row_end = 0;
    for (int r = 0; r < num_rows; ++r) {
      const int64_t num_left = keys[r].end - first_key;
      work.key_begins[r] =
          keys[r].first > first_key ? static_cast<int>(keys[r].first - first_key) : 0;
      work.key_ends[r] = num_left < kBlockKeys ? static_cast<int>(num_left) : kBlockKeys;
      if (work.key_begins[r] >= work.key_ends[r]) continue;
      if (work.row_end == 0) work.row_begin = r;
      work.row_end = r + 1;
    }
    if (work.row_end == 0) return false;
    work.page_begin = work.key_begins[work.row_begin] / kPageSize;
    work.page_end = (work.key_ends[work.row_end - 1] + kPageSize - 1) / kPageSize;
    return true;
  }

  void weigh(TileWork& work) {
    float* maxima = scratch_.maxima + work.tile * kTileRows;
    float* sums = scratch_.sums + work.tile * kTileRows * kLanes;
    F32x16 largest[kTileRows];
    for (int r = 0; r < kTileRows; ++r) largest[r] = set_f(kLowest);
    for (int r = work.row_begin; r < work.row_end; ++r) {
      products_.keep_awake();
      largest[r] = work.whole ? finish_scores<true>(work, r) : finish_scores<false>(work, r);
    }
    const F32x16 old_maxima = load_f(maxima);
    const F32x16 new_maxima = max(old_maxima, max_of_each(largest));
    store_f(maxima, new_maxima);
    store_f(work.factors, exp2_or_zero(sub(old_maxima, new_maxima)));
    for (int r = work.row_begin; r < work.row_end; ++r) {
      const F32x16 limit = set_f(maxima[r]);
      const F32x16 added =
          work.whole ? weigh_row<true>(work, r, limit) : weigh_row<false>(work, r, limit);
      products_.keep_awake();
      if (next_page_ < next_end_) fetch_share(work.row_end - r);
      store_f(sums + r * kLanes, fma(load_f(sums + r * kLanes), set_f(work.factors[r]), added));
    }
  }

  void add_values(const TileWork& work) {
    const int64_t head_dim = kv_.head_dim;
    float* output = scratch_.outputs + (work.tile * kTileRows + work.row_begin) * head_dim;
    for (int r = work.row_begin; r < work.row_end; ++r, output += head_dim) {
      products_.keep_awake();
      const F32x16 factor = set_f(work.factors[r]);
      for (int64_t d = 0; d < head_dim; d += kLanes) {
        store_f(output + d, fma(load_f(output + d), factor, products_.load_product(r, d)));
      }
    }
  }

  // Scales and masks a row's scores in place; returns the largest by lane.
  template <bool kWhole>
  F32x16 finish_scores(const TileWork& work, int row) const {
    const float* key_scales = scratch_.key_scales;
    float* scores = scratch_.scores + row * kBlockKeys;
    const int page_begin = kWhole ? 0 : work.page_begin;
    const int page_end = kWhole ? kBlockPages : work.page_end;
    F32x16 largest = set_f(kLowest);
    for (int page = page_begin; page < page_end; ++page) {
      const int first = page * kPageSize;
      F32x16 score = products_.load_score(work, row, page);
      if constexpr (Products::kScaled) score = mul(score, load_f(key_scales + first));
      const bool all =
          kWhole || (work.key_begins[row] <= first && first + kPageSize <= work.key_ends[row]);
      if (!all) score = mask(work, row, page, score, kLowest);
      if (Products::kScaled || !all) store_f(scores + first, score);
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

  const KvView& kv_;
  const AttentionRows& rows_;
  const AttentionTask& task_;
  const AttentionScratch& scratch_;
  const int64_t num_rows_;
  Products products_;
  KeyRange keys_[kTaskRows];
  float* outputs_[kTaskRows];
  DigitScale block_digits_{};
  int64_t num_released_ = 0;  // before the keys that are seen now
  int64_t next_page_ = 0;     // of the pages still to be fetched for the next block
  int64_t next_end_ = 0;
};

template <class Products>
void attend_with(const KvView& kv, const AttentionRows& rows, const AttentionTask& task,
                 float* memory) {
  const AttentionScratch scratch(memory, kv.head_dim);
  TaskAttention<Products>(kv, rows, task, scratch).run();
}

// What computes pages of codes: float lanes where there are no fast products of bytes.
template <KvKind kKind, bool kBytes>
struct CodeProducts {
  using Type = AttentionLanes<kKind, CodeQuads>;
};
template <KvKind kKind>
struct CodeProducts<kKind, true> {
#if defined(PAREDOWN_HAS_TILES)
  using Type = AttentionByteTiles<kKind>;
#else
  using Type = AttentionDigits<kKind>;
#endif
};
// bf16 pages, and fp8 pages, which are unpacked to bf16.
#if defined(PAREDOWN_HAS_TILES)
template <KvKind kKind>
using Bf16Products = AttentionTiles<kKind>;
#else
template <KvKind kKind>
using Bf16Products = AttentionLanes<kKind, Bf16Pairs>;
#endif

void attend(const KvView& kv, const AttentionRows& rows, const AttentionTask& task,
            float* scratch) {
  switch (kv.kind) {
    case KvKind::kFp32:
      return attend_with<AttentionLanes<KvKind::kFp32, FloatPairs>>(kv, rows, task, scratch);
    case KvKind::kBf16:
      return attend_with<Bf16Products<KvKind::kBf16>>(kv, rows, task, scratch);
    case KvKind::kFp8:
      return attend_with<Bf16Products<KvKind::kFp8>>(kv, rows, task, scratch);
    case KvKind::kInt8:
      return attend_with<CodeProducts<KvKind::kInt8, kHasByteDot>::Type>(kv, rows, task, scratch);
    case KvKind::kInt4:
      return attend_with<CodeProducts<KvKind::kInt4, kHasByteDot>::Type>(kv, rows, task, scratch);
  }
}

void merge(const KvView& kv, const AttentionRows& rows, const AttentionTask& task) {
  const int64_t num_rows = task.row_end - task.row_begin;
  const float* partial = rows.partials + task.partial;
  float maxima[kTaskRows];
  float sums[kTaskRows];
  auto total_of = [&](int64_t row) {
    return RowTotal{maxima + row, sums + row,
                    output_of_row(rows, task, task.row_begin + row, kv.head_dim)};
  };
  auto add = [&](int64_t row) {
    add_chunk(total_of(row), partial[0], partial[1], partial + 16, kv.head_dim);
  };
  const int64_t size = partial_floats(kv.head_dim);
  for (int64_t row = 0; row < num_rows; ++row) begin_total(total_of(row), kv.head_dim);
  if (task.has_sinks) {
    for (int64_t row = 0; row < num_rows; ++row, partial += size) add(row);
  }
  for (int64_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
    for (int64_t row = 0; row < num_rows; ++row, partial += size) {
      const int64_t token = (task.row_begin + row) / task.heads_per_kv;
      if (meets_chunk(keys_of_token(task, token), chunk)) add(row);
    }
  }
  for (int64_t row = 0; row < num_rows; ++row) end_total(total_of(row), kv.head_dim);
}

}  // namespace
}  // namespace paredown
