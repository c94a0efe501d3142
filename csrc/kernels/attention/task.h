// Attention of query rows over pages: tiles of 16 rows, blocks of 64 keys, one pass with an online
// softmax (FlashAttention-2, arXiv 2307.08691, Algorithm 1; chunks merged as in Flash-Decoding).
//
// Blocks and chunks lie at fixed positions, and each row's masked keys add exactly nothing, so a
// row's bits depend on its sequence and position alone, not on the rows it shares a tile with.
#pragma once

#include "kernels/attention/relative.h"
#include "kernels/attention/softmax.h"
#include "kernels/attention/totals.h"

namespace paredown {
namespace {

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
        products_(kv, scratch, num_rows_),
        relative_(rows.relative),
        softmax_(scratch, products_, relative_, task.soft_cap) {}

  void run() {
    for_rows([this](int64_t row, int64_t token, int64_t column) {
      outputs_[row] = rows_.outputs + (task_.token + token) * rows_.output_stride + column;
      if (has_totals()) begin_total(total_of(row), kv_.head_dim);
    });
    if (task_.has_sinks) run_sinks();
    num_released_ = task_.num_released;
    for_rows([this](int64_t row, int64_t token, int64_t column) {
      products_.load_query(row, rows_.queries + (task_.token + token) * rows_.query_stride + column,
                           rows_.query_scale * kLog2E);
      keys_[row] = keys_of_token(task_, token);
      if (relative_.is_there()) {
        relative_.set_row(row, column / kv_.head_dim, task_.start + token);
      }
    });
    for (int64_t chunk = task_.chunk_begin; chunk < task_.chunk_end; ++chunk) {
      run_chunk(chunk, chunk - task_.chunk_begin + task_.has_sinks);
    }
    if (!has_totals()) return;
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
          row, rows_.sink_queries + (task_.token + token) * rows_.sink_query_stride + column,
          rows_.query_scale * kLog2E);
      keys_[row] = sinks_of_token(task_, token);
    });
    run_chunk(0, 0);
  }

  bool is_whole() const { return task_.partial < 0; }
  bool has_one_chunk() const {
    return task_.chunk_end - task_.chunk_begin == 1 && !task_.has_sinks;
  }
  bool has_totals() const { return is_whole() && !has_one_chunk(); }

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
    if (is_whole() && has_one_chunk()) {
      return write_normalized(output, sum, outputs_[row], kv_.head_dim);
    }
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
      softmax_.weigh(work, [this](int num_rows) { fetch_share(num_rows); });
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
    softmax_.begin_block();
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

  void fetch_share(int num_shares) {
    if (next_page_ >= next_end_) return;
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
    work.first_key = first_key;
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

  const KvView& kv_;
  const AttentionRows& rows_;
  const AttentionTask& task_;
  const AttentionScratch& scratch_;
  const int64_t num_rows_;
  Products products_;
  RelativeScores relative_;
  TileSoftmax<Products> softmax_;
  KeyRange keys_[kTaskRows];
  float* outputs_[kTaskRows];
  int64_t num_released_ = 0;  // before the keys that are seen now
  int64_t next_page_ = 0;     // of the pages still to be fetched for the next block
  int64_t next_end_ = 0;
};

}  // namespace
}  // namespace paredown
