// The table of kernels: one source, compiled once per instruction set, chosen once at run time.
//
// Letters: T token rows, N output rows of a weight, K input columns, G groups of columns.
// Exactness rule: the order in which one output is summed depends on its own row and the weight
// layout alone, never on T, on the share of a thread or on what else is in the batch.
#pragma once

#include <cstdint>

#include "kernels/weight_kinds.h"
#include "machine/isa.h"

namespace paredown {

inline constexpr int kPageSize = 16;  // tokens of a KV page

enum class ScaleKind { kFp32, kBf16, kFp16 };
// The form in which a weight takes its input: as it is, rounded to bf16, or quantized to int8.
enum class InputKind { kFp32, kBf16, kInt8 };
enum class NormKind { kRms, kLayer };
enum class Activation { kSilu, kGelu, kGeluTanh, kRelu, kTanh, kSigmoid };
enum class KvKind { kBf16, kFp32, kInt8, kInt4, kFp8 };

// bf16 in 12 bits, without loss: most of a panel's numbers share few exponents. A block in which
// another exponent occurs is wide: it lies as bf16 has it, its last quarter in a place of its own.
inline constexpr int kShortExponents = 16;
inline constexpr int64_t kWideRestBytes =
    block_bytes(WeightKind::kBf16) - block_bytes(WeightKind::kBf16Short);
struct ShortBf16 {
  const uint8_t* exponents;    // [N/16][16]
  const uint32_t* wide_ranks;  // [N/16][K/32]: 0, or the number of a wide block, from 1 on
  const uint8_t* wide_rests;   // [wide blocks][kWideRestBytes]
};

// Of a weight whose zeros are a bit each (kernels/bitmap.h).
struct BitmapView {
  const int64_t* runs;         // [N/16][num_runs]: bytes from the first value to each run of blocks
  const uint8_t* upper_bytes;  // kBf16ShortBitmap: [N/16][16]
};

// A packed weight: panels of blocks (kernels/weight_kinds.h), and beside them
// scales [N/16][weight groups][16], zero points the same (null: 2^(bits-1)).
// Steps make int8 codes with one scale per row of int4 codes: (code - zero point) * step, from -128
// to 127, for stretches of step_size columns. steps [N/16][num_steps][16], 1 to 16; step offsets
// the same, 128 - zero point * step (null: the zero point is 8); there are no other zero
// points then.
struct LinearView {
  WeightKind kind;
  ScaleKind scale_kind;
  InputKind input;
  int64_t num_rows;
  int64_t num_columns;    // padded to blocks of 32
  int64_t group_size;     // columns summed before a scale is applied: a multiple of 32, or 16
  int64_t num_groups;     // num_columns / group_size
  int64_t weight_groups;  // groups with their own weight scale: num_groups, or 1
  int64_t input_groups;   // scales of an int8 input: num_groups, 1, or one for each block
  int64_t input_codes;    // of a number of an int8 input: 1, or 2 (kernels/linear/split_input.h)
  int64_t step_size;      // columns with one step: a multiple of 32
  int64_t num_steps;      // num_columns / step_size, or 0: the codes are multiplied as they are
  float input_scale;      // int8 input: the scale of every row, or 0 for its own per row and group
  const void* values;
  const void* scales;  // null: 1
  const uint8_t* zero_points;
  const uint8_t* steps;
  const uint8_t* step_offsets;
  ShortBf16 short_bf16;
  BitmapView bitmap;
  const float* bias;  // padded to a multiple of 16, or null
};

// Files of packed weights carry this number: raise it with any change to what is described above,
// to PackedShape or to how a checkpoint's numbers come to be packed.
inline constexpr int kLayoutVersion = 6;

// How the codes of input rows lie, and what lies beside them.
enum class InputLayout {
  kRows,         // [T][code_stride bytes]
  kInterleaved,  // [T / 16][code_stride / 64][16 rows][64 bytes]: tiles of AMX, and others
  kPairs,        // interleaved, for sums of pairs of products (kernels/linear/int_pairs.h)
};

struct LinearForm;

// The input rows of a linear layer in the form its kernel reads; that form writes them. Rows are
// allocated up to a multiple of 16.
struct InputRows {
  float* values;  // fp32 input: [T][row_stride]
  int64_t row_stride;
  void* codes;  // int8, bf16, or floats rounded to bf16 where the set has no bf16 products
  int64_t code_stride;
  const LinearForm* form;  // that reads them
  // int8: [T / 16][input_groups][16]; 1.5 * 2^23 times as large where sums are read as bits
  // (kernels/linear/prepare.h)
  float* scales;
  // int8: [T / 16][num_groups][16], what a group's product with unsigned codes lacks: minus the sum
  // of the input's codes, times the zero point where it is the same for all weights, kPairs: minus
  // the products that pairs have too much of the inputs alone. Where sums are read as bits and the
  // zero point is the same, the bits of `scales` are added.
  int32_t* corrections;
};

// Columns of a weight's input that gated outputs become at a time: those with one scale, or of bf16
// a cache line.
constexpr int64_t next_group(const LinearView& w) {
  return w.input == InputKind::kBf16 ? kBlockColumns : w.group_size;
}

// The weight that reads an output, and where the form of it lies that this one reads.
struct NextInput {
  const LinearView* weight;
  InputRows rows;
};

struct OutputRows {
  float* values;  // [T][row_stride]
  int64_t row_stride;
  bool accumulate;  // add to what is there (residual)
  // More than the caches keep until it is read: store past them. Rows are 64-byte aligned.
  bool streamed;
  // The weight's panels are pairs (gate, up) and the output is activation(gate) * up.
  bool gated;
  Activation activation;
  // Gated outputs go nowhere but into the input of the weight that reads them; null: to `values`.
  const NextInput* next = nullptr;
  // Outputs of a layer without a gate become activation(output). The weight has whole panels.
  bool activated = false;
};

// The sums of two rows of codes for each token, [2 T][row_stride], from some panel on.
struct SplitSums {
  const float* values;
  int64_t row_stride;
};

// A way to multiply a weight with its input: a row of an instruction set's table, which is ordered.
// A layer takes the first form that takes it.
struct LinearForm {
  const char* name;
  bool (*takes)(const LinearView&, int64_t num_tokens);
  InputLayout layout;
  bool makes_next_input;  // of gated outputs, for the weight that reads them
  // Puts one row (num_columns floats, zero beyond the weight's own columns) in the form that `run`
  // reads.
  void (*prepare)(const LinearView&, const InputRows&, const float* row, int64_t token);
  void (*run)(const LinearView&, const InputRows&, const OutputRows&, int64_t num_tokens,
              int64_t panel_begin, int64_t panel_end, void* scratch);
};

// Working memory of one thread in `linear`: decoded columns of two panels in two bytes each or
// kManyColumns of four in one or two, scales of groups, and the sums of four panels over all
// tokens, or of more panels while tokens are few; and either sums of kPartPanels over kPartTokens
// where rows are multiplied in parts, or a group of the next weight's columns over all tokens.
inline constexpr int64_t kDecodedColumns = 1024;
inline constexpr int64_t kManyColumns = 2048;
inline constexpr int64_t kScaleFloats = 4 * 16 * kLanes;  // four panels, sixteen groups
inline constexpr int64_t kMinSums = 256;                  // times 16 rows
inline constexpr int64_t kPartPanels = 64;
inline constexpr int64_t kPartTokens = 512;
inline constexpr int64_t kMinPartTokens = 64;  // fewer tokens are never multiplied in parts
inline constexpr int64_t kMaxNextGroup = 128;  // nor are longer groups made, nor for fewer tokens
static_assert(4 * kManyColumns >= 2 * kDecodedColumns * 2);
constexpr int64_t linear_scratch_bytes(int64_t num_tokens) {
  const int64_t padded = (num_tokens + kLanes - 1) / kLanes * kLanes;
  int64_t num_sums = 4 * padded > kMinSums ? 4 * padded : kMinSums;
  if (padded > kMinPartTokens) {
    const int64_t parts = kPartPanels * (padded < kPartTokens ? padded : kPartTokens);
    const int64_t groups = kMaxNextGroup / kLanes * padded;
    num_sums += parts > groups ? parts : groups;
  }
  return kLanes * (8 * kManyColumns + num_sums * 4) + kScaleFloats * 4 + 4096;
}

struct NormView {
  NormKind kind;
  float eps;
  const float* weight;
  const float* bias;  // layer norm only; may be null
};

// Pages of one layer: [page][kv head]{keys, values, key scales, value scales}. Neighbouring head
// dimensions of a key, and neighbouring keys of a dimension, lie together as dot products and
// matrix tiles want them: two bf16 numbers, four bytes.
//   bf16     keys [head_dim/2][16 keys][2 dims], values [head_dim/16][8][16 dims][2 keys]
//   fp32     the two of a pair lie in rows of their own: [...][2][16]
//   int8     keys [head_dim/4][16 keys][4 dims], values [head_dim/16][4][16 dims][4 keys]; signed
//   fp8      as int8, e4m3, the four in the order 0, 2, 1, 3
//   int4     keys [head_dim/8][16 keys][4 bytes], byte j: dim j low nibble, dim j + 4 high; values
//            [head_dim/16][4][8 dims][4 keys], dim d low, d + 8 high; 8 is zero
//   scales   [16] bf16 each, one per token (int8, fp8, int4); not there in static formats
// A slot depends on its token alone, and all that is stored is finite: a masked key adds exactly 0.
struct KvView {
  KvKind kind;
  uint8_t* data;
  int64_t num_kv_heads;
  int64_t head_dim;
  const float* static_scales;  // [keys, values][kv heads]; null: a scale per token, in the page
};

// Static: the scales of a layer's codes are given, not found for each token.
struct KvFormat {
  KvKind kind;
  bool is_static;
};

constexpr bool is_coded(KvKind kind) { return kind != KvKind::kFp32 && kind != KvKind::kBf16; }

// Bytes of one kv head of a page.
inline constexpr int64_t kv_head_bytes(KvFormat format, int64_t head_dim) {
  const int64_t num_elements = 2 * head_dim * kPageSize;
  const int64_t scale_bytes = format.is_static ? 0 : 2 * kPageSize * 2;
  if (format.kind == KvKind::kFp32) return 4 * num_elements;
  if (format.kind == KvKind::kBf16) return 2 * num_elements;
  return (format.kind == KvKind::kInt4 ? num_elements / 2 : num_elements) + scale_bytes;
}
inline int64_t kv_head_bytes(const KvView& kv) {
  return kv_head_bytes({kv.kind, kv.static_scales != nullptr}, kv.head_dim);
}

// What is done to the query or key heads of a token between projection and attention.
struct HeadsView {
  const NormView* norm;  // per head; null: none
  const float* cos;      // [num_turned]; null: no rotary positions
  const float* sin;
  int64_t num_turned;  // pairs (d, d + num_turned) of the first dimensions; the others stay
  float scale;
  int64_t head_dim;
};

// Attention is summed in blocks of keys inside chunks of keys, both at fixed positions. Chunks are
// independent partial results, merged in ascending order, so that threads may share them.
inline constexpr int kBlockPages = 4;
inline constexpr int kWeightPages = 4;  // whose weights are stored together
inline constexpr int kBlockKeys = kBlockPages * kPageSize;
inline constexpr int kChunkKeys = 512;
inline constexpr int kTileRows = 16;
inline constexpr int kTaskRows = 8 * kTileRows;

// Numbers added to the scores of a head at each distance from query to key, times log2(e), in
// rows of relative_head_floats(max_distance): so that 16 keys are one load wherever they begin,
// the first and the last number stand kLanes times.
struct RelativeView {
  const float* values;  // [heads][...], by distance; null: there are none
  int64_t max_distance;
};
inline constexpr int64_t relative_head_floats(int64_t max_distance) {
  return 2 * (max_distance + kLanes - 1) + 1;
}

struct AttentionRows {
  const float* queries;  // [T][query_stride], rotated
  int64_t query_stride;
  float* outputs;  // [T][output_stride]
  int64_t output_stride;
  float* partials;  // where tasks that see only some chunks of their rows leave their results
  // [T][sink_query_stride], the queries that meet the sinks: rotated as at the last place that a
  // window and the sinks leave free, so that no distance grows with the text.
  const float* sink_queries = nullptr;
  int64_t sink_query_stride = 0;
  float query_scale = 1.0f;  // of queries that are not scaled yet
  RelativeView relative{};
};

// Query rows of one sequence over one kv head: row = token * heads_per_kv + head.
struct AttentionTask {
  const int32_t* pages;  // of the sinks, then those from page number (of the sinks) + num_released
  int64_t num_released;  // pages behind the sinks that no query sees any more
  int64_t start;         // position of token 0
  int64_t token;         // its row in AttentionRows
  int64_t window;        // keys are seen at distances below this; 0: at any
  int64_t num_keys;      // of the text, where queries see later keys as well; 0: they do not
  int64_t num_sinks;     // first keys that every query sees beside them: at most a chunk
  int64_t kv_head;
  int64_t heads_per_kv;
  int64_t row_begin;
  int64_t row_end;  // at most kTaskRows after row_begin
  int64_t chunk_begin;
  int64_t chunk_end;
  bool has_sinks;   // they come before the chunks, as one more
  int64_t partial;  // first float of [chunk][row][partial_floats]; -1: all chunks are in this task
  float soft_cap;   // scores become cap * tanh(score / cap); 0: they stay
};

// A partial result: the largest score, the sum of weights, 14 floats unused, the weighted values.
inline constexpr int64_t partial_floats(int64_t head_dim) { return 16 + head_dim; }

// Working memory of `attend`: see AttentionScratch (kernels/attention/scratch.h).
inline constexpr int64_t attention_scratch_floats(int64_t head_dim) {
  const int64_t padded = (head_dim + 63) / 64 * 64;
  const int64_t queries = kTaskRows * (padded + 4);
  const int64_t blocks = kBlockKeys * (padded + 2) + 256;
  const int64_t tiles = kTileRows * (4 * kBlockKeys + 3 * head_dim + 4);
  const int64_t state = kTaskRows * (1 + kLanes + head_dim + 2);
  return (queries + blocks + tiles + state + 15) / 16 * 16;
}

// The way in which an instruction set meets queries with the pages of a kind.
struct AttentionForm {
  KvKind kind;
  const char* name;
  void (*run)(const KvView&, const AttentionRows&, const AttentionTask&, float* scratch);
};

// Tokens of a block, whose least or largest number bounds those of all.
inline constexpr int64_t kTokenBlock = 64;

struct KernelTable {
  const char* name;
  bool prefers_short_bf16;   // over bf16, where memory bounds a product
  int64_t bf16_input_bytes;  // of one number in InputRows::codes for a weight with bf16 input
  const LinearForm* linear_forms;
  int64_t num_linear_forms;
  // The form that takes this many tokens, on whatever parts of the weight and the tokens it runs.
  const LinearForm& (*linear_form)(const LinearView&, int64_t num_tokens);
  // Whether `linear` can make the input of `next` of its gated outputs.
  bool (*makes_input)(const LinearView&, const LinearView& next, int64_t num_tokens);
  // Runs the form of the input rows. scratch: linear_scratch_bytes(num_tokens), 64-byte aligned.
  // Begins and ends at even panels, at those of whole groups where it makes the next input.
  void (*linear)(const LinearView&, const InputRows&, const OutputRows&, int64_t num_tokens,
                 int64_t panel_begin, int64_t panel_end, void* scratch);
  // What the codes of input row `token` lack of `row`, into `rest`, which may be the same.
  void (*input_rest)(const LinearView&, const InputRows&, const float* row, int64_t token,
                     float* rest);
  // Finishes `num_tokens` outputs of the panels from the sums of two rows for each, side by side.
  void (*finish_split)(const LinearView&, const OutputRows&, const SplitSums&, int64_t num_tokens,
                       int64_t panel_begin, int64_t panel_end);
  void (*norm)(const NormView&, const float* input, float* output, int64_t size);
  void (*prepare_heads)(const HeadsView&, float* heads, int64_t num_heads);
  void (*write_kv)(const KvView&, int32_t page, int64_t slot, const float* key, const float* value);
  // All slots of a page, to the same bits; rows lie row_stride floats apart.
  void (*write_page)(const KvView&, int32_t page, const float* keys, const float* values,
                     int64_t row_stride);
  const AttentionForm* attention_forms;
  int64_t num_attention_forms;
  void (*attend)(const KvView&, const AttentionRows&, const AttentionTask&, float* scratch);
  // Merges the partial results of all chunks of a task and writes its output rows.
  void (*merge)(const KvView&, const AttentionRows&, const AttentionTask&);
  void (*activate)(Activation, const float* gate, const float* up, float* output, int64_t size);
  // Each number becomes cap * tanh(number / cap).
  void (*soft_cap)(float* numbers, int64_t size, float cap);
  void (*embed)(WeightKind, const void* row, float* output, int64_t size, bool accumulate);
  // See kernels/weigh.h: what sampling does to every token of the vocabulary.
  float (*largest)(const float* row, int64_t size, int64_t* index);
  double (*largest_double)(const double* numbers, int64_t size, int64_t* index);
  double (*weigh_floats)(const float* logits, int64_t size, double largest, double temperature,
                         double* distances, double* weights);
  double (*weigh_doubles)(const double* logits, int64_t size, double largest, double temperature,
                          double* distances, double* weights);
  double (*sum)(const double* numbers, int64_t size);
  void (*block_maxima)(const double* numbers, int64_t size, double* maxima);
  void (*block_maxima_floats)(const float* numbers, int64_t size, float* maxima);
  // Peak loops for `doctor`: run about `num_operations` multiply-adds in registers; the return
  // value only keeps the work alive.
  float (*peak_fp32)(int64_t num_operations);
  float (*peak_bf16)(int64_t num_operations);
  float (*peak_int8)(int64_t num_operations);
  float (*read_memory)(const void* data, int64_t num_bytes);
};

const KernelTable& kernel_table(Isa isa);

}  // namespace paredown
