// The table of kernels: one source, compiled once per instruction set, chosen once at run time.
//
// Letters: T token rows, N output rows of a weight, K input columns, G groups of columns.
// Exactness rule: the order in which one output is summed depends on its own row and the weight
// layout alone, never on T, on the share of a thread or on what else is in the batch.
#pragma once

#include <cstdint>

#include "isa.h"

namespace paredown {

inline constexpr int kLanes = 16;     // output rows of a panel, keys of a page
inline constexpr int kPageSize = 16;  // tokens of a KV page

enum class WeightKind { kFp32, kFp16, kBf16, kInt8, kInt4 };
enum class ScaleKind { kFp32, kBf16 };
enum class NormKind { kRms, kLayer };
enum class Activation { kSilu, kGelu, kGeluTanh, kRelu };
enum class KvKind { kBf16, kFp32 };

// A packed weight: panels of 16 output rows, columns ascending inside a panel.
//   fp32, fp16  [N/16][K][16]
//   bf16        [N/16][K/2][16 rows][2 columns]
//   int8        [N/16][K/4][16 rows][4 columns]                 unsigned codes
//   int4        [N/16][K/8][16 rows][4 bytes]  byte j: column j low nibble, column j + 4 high
//   scales      [N/16][G][16], zero points [N/16][G][16] (null: 2^(bits-1))
// With one scale per row (weight_groups == 1) activations still have their own groups.
struct LinearView {
  WeightKind kind;
  ScaleKind scale_kind;
  int64_t num_rows;
  int64_t num_columns;    // padded: a multiple of 32 for integers, of 2 for bf16
  int64_t group_size;     // columns that share an activation scale (integers)
  int64_t num_groups;     // activation groups
  int64_t weight_groups;  // weight groups: num_groups, or 1
  const void* values;
  const void* scales;
  const uint8_t* zero_points;
  const float* bias;  // padded to a multiple of 16, or null
};

// The input rows of a linear layer in the form its kernel reads. `prepare` fills what it needs.
struct InputRows {
  const float* values;  // [T][row_stride]
  int64_t row_stride;   // floats; at least num_columns rounded up to 32, the tail is zero
  int8_t* codes;        // [T][code_stride]
  int64_t code_stride;  // bytes
  float* scales;        // [T][group_stride]
  int32_t* sums;        // [T][group_stride] sum of the codes of a group
  int64_t group_stride;
  uint32_t* pairs;  // [T][row_stride]: for two columns (high pair, low pair) of bf16
};

struct OutputRows {
  float* values;  // [T][row_stride]
  int64_t row_stride;
  bool accumulate;  // add to what is there (residual)
};

// One query token's attention over its own pages.
struct AttentionTask {
  const float* query;  // [num_heads][head_dim], scaled and rotated
  float* output;       // [num_heads][head_dim]
  const int32_t* pages;
  int64_t position;  // attends to keys first..position
  int64_t first;
};

// Pages of one layer: [page][kv head]{keys [head_dim][16], values [16][head_dim]}.
struct KvView {
  KvKind kind;
  void* data;
  int64_t num_kv_heads;
  int64_t head_dim;
};

struct NormView {
  NormKind kind;
  float eps;
  const float* weight;
  const float* bias;  // layer norm only; may be null
};

struct KernelTable {
  const char* name;
  void (*prepare)(const LinearView&, const InputRows&, int64_t row_begin, int64_t row_end);
  void (*linear)(const LinearView&, const InputRows&, const OutputRows&, int64_t num_tokens,
                 int64_t panel_begin, int64_t panel_end);
  void (*norm)(const NormView&, const float* input, float* output, int64_t size);
  void (*rotate)(float* heads, int64_t num_heads, int64_t head_dim, const float* cos,
                 const float* sin);
  void (*write_kv)(const KvView&, int32_t page, int64_t slot, const float* key, const float* value);
  void (*attend)(const KvView&, const AttentionTask&, int64_t kv_head, int64_t heads_per_kv,
                 float* scratch);
  void (*activate)(Activation, const float* gate, const float* up, float* output, int64_t size);
  void (*embed)(WeightKind, const void* row, float* output, int64_t size, bool accumulate);
  // Peak loops for `doctor`: run about `num_operations` multiply-adds in registers; the return
  // value only keeps the work alive.
  float (*peak_fp32)(int64_t num_operations);
  float (*peak_bf16)(int64_t num_operations);
  float (*peak_int8)(int64_t num_operations);
  float (*read_memory)(const void* data, int64_t num_bytes);
};

const KernelTable& kernel_table(Isa isa);

}  // namespace paredown
