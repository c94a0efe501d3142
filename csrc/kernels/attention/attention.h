// Attention over pages: which kind of products computes a task, and the merging of its parts.
#pragma once

#include "kernels/attention/lanes.h"
#include "kernels/attention/task.h"
#if defined(PAREDOWN_HAS_TILES)
#include "kernels/attention/byte_tiles.h"
#include "kernels/attention/tiles.h"
#else
#include "kernels/attention/digits.h"
#endif

namespace paredown {
namespace {

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
