// Attention of one query token over its own pages. Lanes are keys for the scores and head
// dimensions for the weighted sum; both run over keys in position order, so the bits depend on the
// sequence alone.
#pragma once

#include "math.h"

namespace paredown {
namespace {

constexpr int kMaxHeads = 4;  // query heads of one kv head that share a pass over its pages

template <KvKind kKind>
struct KvElement;
template <>
struct KvElement<KvKind::kFp32> {
  using Type = float;
  static F32x16 load(const float* p) { return load_f(p); }
  static void store(float* p, F32x16 a) { store_f(p, a); }
};
template <>
struct KvElement<KvKind::kBf16> {
  using Type = uint16_t;
  static F32x16 load(const uint16_t* p) { return load_bf16(p); }
  static void store(uint16_t* p, F32x16 a) { store_bf16(p, a); }
};

template <KvKind kKind>
inline typename KvElement<kKind>::Type* head_data(const KvView& kv, int64_t page, int64_t head) {
  const int64_t head_size = 2 * kv.head_dim * kPageSize;
  return static_cast<typename KvElement<kKind>::Type*>(kv.data) +
         (page * kv.num_kv_heads + head) * head_size;
}

template <KvKind kKind>
void write_kv_as(const KvView& kv, int32_t page, int64_t slot, const float* key,
                 const float* value) {
  using Element = KvElement<kKind>;
  for (int64_t head = 0; head < kv.num_kv_heads; ++head) {
    auto* keys = head_data<kKind>(kv, page, head);
    auto* values = keys + kv.head_dim * kPageSize + slot * kv.head_dim;
    for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
      typename Element::Type lanes[kLanes];
      Element::store(lanes, load_f(key + head * kv.head_dim + d));
      for (int i = 0; i < kLanes; ++i) keys[(d + i) * kPageSize + slot] = lanes[i];
      Element::store(values + d, load_f(value + head * kv.head_dim + d));
    }
  }
}

void write_kv(const KvView& kv, int32_t page, int64_t slot, const float* key, const float* value) {
  if (kv.kind == KvKind::kBf16) return write_kv_as<KvKind::kBf16>(kv, page, slot, key, value);
  write_kv_as<KvKind::kFp32>(kv, page, slot, key, value);
}

// Scores of kHeads query heads against kPages pages of 16 keys, from page `index` of the task.
template <KvKind kKind, int kHeads, int kPages>
inline void score_pages(const KvView& kv, const AttentionTask& task, const float* queries,
                        int64_t kv_head, int64_t index, float* scores, int64_t stride) {
  using Element = KvElement<kKind>;
  F32x16 sums[kHeads][kPages];
  const typename Element::Type* keys[kPages];
  for (int p = 0; p < kPages; ++p) {
    keys[p] = head_data<kKind>(kv, task.pages[index + p], kv_head);
    for (int h = 0; h < kHeads; ++h) sums[h][p] = zero_f();
  }
  for (int64_t d = 0; d < kv.head_dim; ++d) {
    for (int p = 0; p < kPages; ++p) {
      const F32x16 key = Element::load(keys[p] + d * kPageSize);
      for (int h = 0; h < kHeads; ++h) {
        sums[h][p] = fma(set_f(queries[h * kv.head_dim + d]), key, sums[h][p]);
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int p = 0; p < kPages; ++p) store_f(scores + h * stride + p * kPageSize, sums[h][p]);
  }
}

// Softmax in place over the valid part of `scores`; what lies outside becomes zero. Returns 1/sum.
inline float softmax(float* scores, int64_t num_slots, int64_t first, int64_t last) {
  const float lowest = -3.0e38f;
  for (int64_t i = 0; i < first; ++i) scores[i] = lowest;
  for (int64_t i = last + 1; i < num_slots; ++i) scores[i] = lowest;
  F32x16 largest = set_f(lowest);
  for (int64_t i = 0; i < num_slots; i += kLanes) largest = max(largest, load_f(scores + i));
  const F32x16 limit = set_f(max_lanes(largest));
  const F32x16 cutoff = set_f(-86.0f);
  F32x16 total = zero_f();
  for (int64_t i = 0; i < num_slots; i += kLanes) {
    const F32x16 shifted = sub(load_f(scores + i), limit);
    const F32x16 weight = select_less(shifted, cutoff, zero_f(), exp(shifted));
    total = add(total, weight);
    store_f(scores + i, weight);
  }
  return 1.0f / sum_lanes(total);
}

// output[h][d..d+16) = sum over keys of weight * value, for kHeads heads at one block of 16 dims.
template <KvKind kKind, int kHeads>
inline void weigh_values(const KvView& kv, const AttentionTask& task, int64_t kv_head,
                         const float* weights, int64_t stride, const float* inverse_sums,
                         float* output) {
  using Element = KvElement<kKind>;
  const int64_t first_page = task.first / kPageSize;
  for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
    F32x16 sums[kHeads];
    for (F32x16& sum : sums) sum = zero_f();
    for (int64_t page = first_page; page <= task.position / kPageSize; ++page) {
      const auto* values =
          head_data<kKind>(kv, task.pages[page], kv_head) + kv.head_dim * kPageSize + d;
      const int64_t start = page * kPageSize;
      const int64_t begin = start < task.first ? task.first - start : 0;
      const int64_t left = task.position + 1 - start;
      const int64_t end = left < kPageSize ? left : kPageSize;
      for (int64_t slot = begin; slot < end; ++slot) {
        const F32x16 value = Element::load(values + slot * kv.head_dim);
        const float* weight = weights + start - first_page * kPageSize + slot;
        for (int h = 0; h < kHeads; ++h) {
          sums[h] = fma(set_f(weight[h * stride]), value, sums[h]);
        }
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      store_f(output + h * kv.head_dim + d, mul(sums[h], set_f(inverse_sums[h])));
    }
  }
}

template <KvKind kKind, int kHeads>
void attend_heads(const KvView& kv, const AttentionTask& task, int64_t kv_head, int64_t head,
                  float* scores) {
  const int64_t first_page = task.first / kPageSize;
  const int64_t num_pages = task.position / kPageSize + 1 - first_page;
  const int64_t stride = num_pages * kPageSize;
  const float* queries = task.query + head * kv.head_dim;
  int64_t page = 0;
  for (; page + 2 <= num_pages; page += 2) {
    score_pages<kKind, kHeads, 2>(kv, task, queries, kv_head, first_page + page,
                                  scores + page * kPageSize, stride);
  }
  if (page < num_pages) {
    score_pages<kKind, kHeads, 1>(kv, task, queries, kv_head, first_page + page,
                                  scores + page * kPageSize, stride);
  }
  float inverse_sums[kHeads];
  const int64_t base = first_page * kPageSize;
  for (int h = 0; h < kHeads; ++h) {
    inverse_sums[h] = softmax(scores + h * stride, stride, task.first - base, task.position - base);
  }
  weigh_values<kKind, kHeads>(kv, task, kv_head, scores, stride, inverse_sums,
                              task.output + head * kv.head_dim);
}

template <KvKind kKind>
void attend_as(const KvView& kv, const AttentionTask& task, int64_t kv_head, int64_t heads_per_kv,
               float* scratch) {
  int64_t done = 0;
  while (done < heads_per_kv) {
    const int64_t head = kv_head * heads_per_kv + done;
    switch (heads_per_kv - done) {
      case 1:
        attend_heads<kKind, 1>(kv, task, kv_head, head, scratch);
        done += 1;
        break;
      case 2:
        attend_heads<kKind, 2>(kv, task, kv_head, head, scratch);
        done += 2;
        break;
      case 3:
        attend_heads<kKind, 3>(kv, task, kv_head, head, scratch);
        done += 3;
        break;
      default:
        attend_heads<kKind, kMaxHeads>(kv, task, kv_head, head, scratch);
        done += kMaxHeads;
    }
  }
}

// All query heads of one kv head. scratch: kMaxHeads floats for every key slot of the task.
void attend(const KvView& kv, const AttentionTask& task, int64_t kv_head, int64_t heads_per_kv,
            float* scratch) {
  if (kv.kind == KvKind::kBf16) {
    return attend_as<KvKind::kBf16>(kv, task, kv_head, heads_per_kv, scratch);
  }
  attend_as<KvKind::kFp32>(kv, task, kv_head, heads_per_kv, scratch);
}

}  // namespace
}  // namespace paredown
