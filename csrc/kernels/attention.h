// Attention of query rows over pages: tiles of 16 rows, blocks of 64 keys, one pass with an online
// softmax (FlashAttention-2, arXiv 2307.08691, Algorithm 1; chunks merged as in Flash-Decoding).
//
// Blocks and chunks lie at fixed positions, and each row's masked keys add exactly nothing, so a
// row's bits depend on its sequence and position alone, not on the rows it shares a tile with.
#pragma once

#include "attention_lanes.h"
#if defined(PAREDOWN_HAS_TILES)
#include "attention_tiles.h"
#endif

namespace paredown {
namespace {

// The keys one row sees: [first, end).
struct KeyRange {
  int64_t first;
  int64_t end;
};

inline KeyRange keys_of_row(const AttentionTask& task, int64_t row) {
  const int64_t position = task.start + row / task.heads_per_kv;
  const int64_t first = task.window > 0 ? position - task.window + 1 : 0;
  return {first > 0 ? first : 0, position + 1};
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
      : kv_(kv), rows_(rows), task_(task), scratch_(scratch), products_(kv, scratch) {}

  void run() {
    const int64_t num_rows = task_.row_end - task_.row_begin;
    for (int64_t row = 0; row < num_rows; ++row) {
      const int64_t group_row = task_.row_begin + row;
      const int64_t token = task_.token + group_row / task_.heads_per_kv;
      const int64_t head = task_.kv_head * task_.heads_per_kv + group_row % task_.heads_per_kv;
      products_.load_query(row, rows_.queries + token * rows_.query_stride + head * kv_.head_dim);
      if (is_whole()) begin_total(total_of(row), kv_.head_dim);
    }
    for (int64_t chunk = task_.chunk_begin; chunk < task_.chunk_end; ++chunk) run_chunk(chunk);
    if (!is_whole()) return;
    for (int64_t row = 0; row < num_rows; ++row) end_total(total_of(row), kv_.head_dim);
  }

 private:
  bool is_whole() const { return task_.partial < 0; }

  const float* query_of(int64_t row) const {
    const int64_t group_row = task_.row_begin + row;
    const int64_t head = task_.kv_head * task_.heads_per_kv + group_row % task_.heads_per_kv;
    return rows_.queries + (task_.token + group_row / task_.heads_per_kv) * rows_.query_stride +
           head * kv_.head_dim;
  }

  RowTotal total_of(int64_t row) const {
    return {scratch_.total_maxima + row, scratch_.total_sums + row,
            output_of_row(rows_, task_, task_.row_begin + row, kv_.head_dim)};
  }

  void run_chunk(int64_t chunk) {
    const int64_t num_rows = task_.row_end - task_.row_begin;
    for (int64_t row = 0; row < num_rows; ++row) {
      scratch_.maxima[row] = kLowest;
      store_f(scratch_.sums + row * kLanes, zero_f());
    }
    for (int64_t i = 0; i < num_rows * kv_.head_dim; i += kLanes) {
      store_f(scratch_.outputs + i, zero_f());
    }
    const int64_t first = keys_of_row(task_, task_.row_begin).first;
    const int64_t last_end = keys_of_row(task_, task_.row_end - 1).end;
    int64_t begin = chunk * kChunkKeys;
    const int64_t chunk_end = begin + kChunkKeys;
    const int64_t end = last_end < chunk_end ? last_end : chunk_end;
    if (begin < first) begin = first / kBlockKeys * kBlockKeys;
    // A batch is up to kMaxTiles pairs of a tile and a block: many tiles, or some blocks.
    const int64_t num_tiles = (num_rows + kTileRows - 1) / kTileRows;
    const int64_t most = kMaxTiles / num_tiles;
    const int64_t batch_keys = (most < kBatchBlocks ? most : kBatchBlocks) * kBlockKeys;
    for (; begin < end; begin += batch_keys) {
      run_batch(begin, begin + batch_keys < end ? begin + batch_keys : end);
    }
    for (int64_t row = 0; row < num_rows; ++row) end_chunk(chunk, row);
  }

  void end_chunk(int64_t chunk, int64_t row) {
    const KeyRange keys = keys_of_row(task_, task_.row_begin + row);
    if (keys.end <= chunk * kChunkKeys || keys.first >= (chunk + 1) * kChunkKeys) return;
    const float sum = sum_lanes(load_f(scratch_.sums + row * kLanes));
    const float* output = scratch_.outputs + row * kv_.head_dim;
    if (is_whole()) {
      return add_chunk(total_of(row), scratch_.maxima[row], sum, output, kv_.head_dim);
    }
    const int64_t num_rows = task_.row_end - task_.row_begin;
    float* partial = rows_.partials + task_.partial +
                     ((chunk - task_.chunk_begin) * num_rows + row) * partial_floats(kv_.head_dim);
    partial[0] = scratch_.maxima[row];
    partial[1] = sum;
    for (int64_t d = 0; d < kv_.head_dim; d += kLanes) {
      store_f(partial + 16 + d, load_f(output + d));
    }
  }

  // Keys [begin, end) against all tiles. Every step is done for the whole batch before the next
  // one: a matrix unit that slept is slow to wake.
  void run_batch(int64_t begin, int64_t end) {
    const int64_t num_tiles = (task_.row_end - task_.row_begin + kTileRows - 1) / kTileRows;
    const int64_t seen = keys_of_row(task_, task_.row_end - 1).end;
    num_works_ = 0;
    int block = 0;
    for (int64_t key = begin; key < end; key += kBlockKeys, ++block) {
      load_block(block, key, (seen + kPageSize - 1) / kPageSize);
      for (int64_t tile = 0; tile < num_tiles; ++tile) add_work(block, key, tile);
    }
    for (int i = 0; i < num_works_; ++i) products_.score(i, works_[i]);
    prefetch_pages(begin / kPageSize + block * kBlockPages, block * kBlockPages, seen);
    for (int i = 0; i < num_works_; ++i) weigh(i, works_[i]);
    for (int i = 0; i < num_works_; ++i) products_.weigh_values(i, works_[i]);
    for (int i = 0; i < num_works_; ++i) add_values(i, works_[i]);
  }

  void load_block(int block, int64_t first_key, int64_t num_pages) {
    constexpr int kStep = Products::kPageStep;
    const int64_t first = keys_of_row(task_, task_.row_begin).first;
    int page = first > first_key ? static_cast<int>((first - first_key) / kPageSize) : 0;
    for (page -= page % kStep; page < kBlockPages; ++page) {
      const int64_t index = first_key / kPageSize + page;
      const int slot = block * kBlockPages + page;
      if (index < num_pages) {
        load_page(slot, page_head(kv_, task_.pages[index], task_.kv_head));
      } else if (page % kStep != 0) {
        products_.load_no_page(slot);
      }
    }
  }

  void load_page(int slot, const uint8_t* head) {
    products_.load_page(slot, head);
    if constexpr (Products::kScaled) {
      const auto* scales =
          reinterpret_cast<const uint16_t*>(head + 2 * key_bytes(kv_.kind, kv_.head_dim));
      store_f(scratch_.key_scales + slot * kPageSize, load_bf16(scales));
      store_f(scratch_.value_scales + slot * kPageSize, load_bf16(scales + kPageSize));
    }
  }

  // The next pages may lie anywhere, where no hardware prefetcher expects them.
  void prefetch_pages(int64_t first_page, int64_t count, int64_t num_keys) const {
    const int64_t bytes = kv_head_bytes(kv_.kind, kv_.head_dim);
    for (int64_t page = first_page; page < first_page + count; ++page) {
      if (page * kPageSize >= num_keys) return;
      const uint8_t* head = page_head(kv_, task_.pages[page], task_.kv_head);
      for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(head + i, 0, 2);
    }
  }

  void add_work(int block, int64_t first_key, int64_t tile) {
    TileWork& work = works_[num_works_];
    const int64_t first_row = tile * kTileRows;
    const int64_t left = task_.row_end - task_.row_begin - first_row;
    work.row_begin = work.row_end = 0;
    for (int r = 0; r < kTileRows && r < left; ++r) {
      const KeyRange keys = keys_of_row(task_, task_.row_begin + first_row + r);
      work.key_begins[r] = keys.first > first_key ? static_cast<int>(keys.first - first_key) : 0;
      const int64_t num_left = keys.end - first_key;
      work.key_ends[r] = num_left < kBlockKeys ? static_cast<int>(num_left) : kBlockKeys;
      if (work.key_begins[r] >= work.key_ends[r]) continue;
      if (work.row_end == 0) work.row_begin = r;
      work.row_end = r + 1;
    }
    if (work.row_end == 0) return;
    constexpr int kStep = Products::kPageStep;
    constexpr int kStepKeys = kStep * kPageSize;
    work.tile = static_cast<int>(tile);
    work.block = block;
    work.page_begin = work.key_begins[work.row_begin] / kStepKeys * kStep;
    work.page_end = (work.key_ends[work.row_end - 1] + kStepKeys - 1) / kStepKeys * kStep;
    ++num_works_;
  }

  void weigh(int index, TileWork& work) {
    float* maxima = scratch_.maxima + work.tile * kTileRows;
    const F32x16 old_maxima = load_f(maxima);
    alignas(64) float largest[kTileRows];
    store_f(largest, old_maxima);
    for (int r = work.row_begin; r < work.row_end; ++r) largest[r] = finish_scores(index, work, r);
    const F32x16 new_maxima = max(old_maxima, load_f(largest));
    store_f(maxima, new_maxima);
    store_f(work.factors, exp2_or_zero(sub(old_maxima, new_maxima)));
    for (int r = work.row_begin; r < work.row_end; ++r) {
      float* sums = scratch_.sums + (work.tile * kTileRows + r) * kLanes;
      const F32x16 added = weigh_row(index, work, r, maxima[r]);
      store_f(sums, fma(load_f(sums), set_f(work.factors[r]), added));
    }
  }

  // A sum of nothing but masked keys may be -0 where other rows share the tile: adding 0 makes it
  // +0.
  void add_values(int index, const TileWork& work) {
    for (int r = work.row_begin; r < work.row_end; ++r) {
      const F32x16 factor = set_f(work.factors[r]);
      float* output = scratch_.outputs + (work.tile * kTileRows + r) * kv_.head_dim;
      const float* product = scratch_.products + (index * kTileRows + r) * kv_.head_dim;
      for (int64_t d = 0; d < kv_.head_dim; d += kLanes) {
        const F32x16 added = add(load_f(product + d), zero_f());
        store_f(output + d, fma(load_f(output + d), factor, added));
      }
    }
  }

  float* row_scores(int index, int row) const {
    return scratch_.scores + (index * kTileRows + row) * kBlockKeys;
  }

  // Scales and masks a row's scores in place; returns the largest.
  float finish_scores(int index, const TileWork& work, int row) const {
    alignas(64) static constexpr float kLaneIndex[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                             8, 9, 10, 11, 12, 13, 14, 15};
    const int begin = work.key_begins[row];
    const int end = work.key_ends[row];
    F32x16 largest = set_f(kLowest);
    for (int page = work.page_begin; page < work.page_end; ++page) {
      float* scores = row_scores(index, row) + page * kPageSize;
      const bool whole = begin <= page * kPageSize && (page + 1) * kPageSize <= end;
      F32x16 score = load_f(scores);
      if constexpr (Products::kScaled) {
        score =
            mul(score, load_f(scratch_.key_scales + work.block * kBlockKeys + page * kPageSize));
      }
      if (!whole) {
        const F32x16 key = add(load_f(kLaneIndex), set_f(static_cast<float>(page * kPageSize)));
        score = select_less(key, set_f(static_cast<float>(begin)), set_f(kLowest), score);
        score = select_less(key, set_f(static_cast<float>(end)), score, set_f(kLowest));
      }
      if (Products::kScaled || !whole) store_f(scores, score);
      largest = max(largest, score);
    }
    return max_lanes(largest);
  }

  // Turns a row's scores into weights; returns their sums by lane.
  F32x16 weigh_row(int index, const TileWork& work, int row, float maximum) {
    constexpr int kStep = Products::kPageStep;
    const F32x16 limit = set_f(maximum);
    F32x16 sum = zero_f();
    for (int page = work.page_begin; page < work.page_end; page += kStep) {
      F32x16 weights[kStep];
      for (int i = 0; i < kStep; ++i) {
        const int key = (page + i) * kPageSize;
        weights[i] = exp2_or_zero(sub(load_f(row_scores(index, row) + key), limit));
        sum = add(sum, weights[i]);
        if constexpr (Products::kScaled) {
          weights[i] =
              mul(weights[i], load_f(scratch_.value_scales + work.block * kBlockKeys + key));
        }
      }
      products_.store_weights(index, row, page, weights);
    }
    return sum;
  }

  const KvView& kv_;
  const AttentionRows& rows_;
  const AttentionTask& task_;
  const AttentionScratch& scratch_;
  Products products_;
  TileWork works_[kMaxTiles];
  int num_works_ = 0;
};

template <class Products>
void attend_with(const KvView& kv, const AttentionRows& rows, const AttentionTask& task,
                 float* memory) {
  const AttentionScratch scratch(memory, kv.head_dim);
  TaskAttention<Products>(kv, rows, task, scratch).run();
}

#if defined(PAREDOWN_HAS_TILES)
template <KvKind kKind>
using AttentionProducts = AttentionTiles<kKind>;
#else
template <KvKind kKind>
using AttentionProducts = AttentionLanes<kKind, Bf16Pairs>;
#endif

void attend(const KvView& kv, const AttentionRows& rows, const AttentionTask& task,
            float* scratch) {
  switch (kv.kind) {
    case KvKind::kFp32:
      return attend_with<AttentionLanes<KvKind::kFp32, FloatPairs>>(kv, rows, task, scratch);
    case KvKind::kBf16:
      return attend_with<AttentionProducts<KvKind::kBf16>>(kv, rows, task, scratch);
    case KvKind::kInt8:
      return attend_with<AttentionProducts<KvKind::kInt8>>(kv, rows, task, scratch);
    case KvKind::kInt4:
      return attend_with<AttentionProducts<KvKind::kInt4>>(kv, rows, task, scratch);
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
  for (int64_t row = 0; row < num_rows; ++row) begin_total(total_of(row), kv.head_dim);
  for (int64_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
    for (int64_t row = 0; row < num_rows; ++row, partial += partial_floats(kv.head_dim)) {
      const KeyRange keys = keys_of_row(task, task.row_begin + row);
      if (keys.end <= chunk * kChunkKeys || keys.first >= (chunk + 1) * kChunkKeys) continue;
      add_chunk(total_of(row), partial[0], partial[1], partial + 16, kv.head_dim);
    }
  }
  for (int64_t row = 0; row < num_rows; ++row) end_total(total_of(row), kv.head_dim);
}

}  // namespace
}  // namespace paredown
