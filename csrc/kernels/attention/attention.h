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

// What computes pages of codes where there are fast products of bytes.
#if defined(PAREDOWN_HAS_TILES)
template <KvKind kKind>
using ByteProducts = AttentionByteTiles<kKind>;
constexpr const char* kByteProducts = "codes on AMX tiles, queries in three bytes";
#else
template <KvKind kKind>
using ByteProducts = AttentionDigits<kKind>;
constexpr const char* kByteProducts = "byte products, queries in three bytes";
#endif
// And where there are none: in a template, so that only one of both is compiled.
template <KvKind kKind, bool kBytes>
struct CodeProducts {
  using Type = AttentionLanes<kKind, CodeQuads>;
  static constexpr const char* kName = "fp32 products of unpacked codes";
};
template <KvKind kKind>
struct CodeProducts<kKind, true> {
  using Type = ByteProducts<kKind>;
  static constexpr const char* kName = kByteProducts;
};

// bf16 pages, and fp8 pages, which are unpacked to bf16.
#if defined(PAREDOWN_HAS_TILES)
template <KvKind kKind>
using Bf16Products = AttentionTiles<kKind>;
constexpr const char* kBf16Products = "bf16 on AMX tiles, queries in two numbers";
constexpr const char* kFp8Products = "fp8 as bf16 on AMX tiles, queries in two numbers";
#else
template <KvKind kKind>
using Bf16Products = AttentionLanes<kKind, Bf16Pairs>;
constexpr const char* kBf16Products = "fp32 products of bf16";
constexpr const char* kFp8Products = "fp32 products of unpacked fp8";
#endif

// One row for each kind of pages.
template <KvKind kKind>
using AttentionCodes = CodeProducts<kKind, kHasByteDot>;
constexpr AttentionForm kAttentionForms[] = {
    {KvKind::kBf16, kBf16Products, attend_with<Bf16Products<KvKind::kBf16>>},
    {KvKind::kFp32, "fp32 products", attend_with<AttentionLanes<KvKind::kFp32, FloatPairs>>},
    {KvKind::kInt8, AttentionCodes<KvKind::kInt8>::kName,
     attend_with<AttentionCodes<KvKind::kInt8>::Type>},
    {KvKind::kInt4, AttentionCodes<KvKind::kInt4>::kName,
     attend_with<AttentionCodes<KvKind::kInt4>::Type>},
    {KvKind::kFp8, kFp8Products, attend_with<Bf16Products<KvKind::kFp8>>},
};
constexpr int64_t kNumAttentionForms = sizeof(kAttentionForms) / sizeof(kAttentionForms[0]);

void attend(const KvView& kv, const AttentionRows& rows, const AttentionTask& task,
            float* scratch) {
  for (const AttentionForm& form : kAttentionForms) {
    if (form.kind == kv.kind) return form.run(kv, rows, task, scratch);
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
