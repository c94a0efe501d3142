// Linear layers: the table of forms in which a weight is multiplied with its input. Lanes are
// output rows, so every output is summed over its columns in one fixed order, whatever the number
// of tokens, the form, the tile or the thread.
#pragma once

#include "kernels/linear/bitmap_few.h"
#include "kernels/linear/blocks_many.h"
#include "kernels/linear/coded_floats.h"
#include "kernels/linear/int_few.h"
#include "kernels/linear/int_pairs.h"
#include "kernels/linear/int_shared.h"
#include "kernels/linear/split_input.h"
#include "kernels/linear/tile_groups.h"
#include "kernels/linear/tile_rows.h"
#include "kernels/linear/tile_steps.h"

namespace paredown {
namespace {

// Shorter rows are those of models that the last cache may hold.
constexpr int64_t kShortRowColumns = 768;

inline bool has_int8_input(const LinearView& w) { return w.input == InputKind::kInt8; }
inline bool has_steps(const LinearView& w) { return w.num_steps > 0; }
inline bool has_groups(const LinearView& w) { return w.num_groups > 1; }

// So few tokens that codes are decoded in registers: for more, once to memory or for tiles.
inline bool few_tokens(const LinearView& w, int64_t num_tokens) {
  if (w.group_size == 32) return num_tokens <= kFewTokensShortGroups;
  const bool short_rows =
      w.num_columns < kShortRowColumns && is_row(weight_bits(w.kind), has_steps(w));
  if (short_rows) return num_tokens <= kFewTokensShortRows;
  return num_tokens <= (has_steps(w) ? kFewTokensSteps : kFewTokens);
}

// Several groups too wide to be decoded at once are read in registers, whatever the tokens.
inline bool fits_decoded(const LinearView& w) {
  return !has_groups(w) || w.group_size <= kDecodedColumns;
}

inline bool reads_in_registers(const LinearView& w, int64_t num_tokens) {
  return has_int8_input(w) && (few_tokens(w, num_tokens) || !fits_decoded(w));
}
inline bool takes_int8_in_registers(const LinearView& w, int64_t num_tokens) {
  return w.kind == WeightKind::kInt8 && reads_in_registers(w, num_tokens);
}
inline bool takes_bitmap_in_registers(const LinearView& w, int64_t num_tokens) {
  return w.kind == WeightKind::kInt8Bitmap &&
         (num_tokens <= 2 || reads_in_registers(w, num_tokens));
}
inline bool takes_int4_in_registers(const LinearView& w, int64_t num_tokens) {
  return w.kind == WeightKind::kInt4 && !has_steps(w) && reads_in_registers(w, num_tokens);
}
inline bool takes_steps_in_registers(const LinearView& w, int64_t num_tokens) {
  return has_steps(w) && reads_in_registers(w, num_tokens);
}
inline bool takes_many(const LinearView& w, int64_t num_tokens) {
  return has_int8_input(w) && num_tokens > 2 && fits_decoded(w);
}
inline bool takes_blocks(const LinearView& w, int64_t) { return traits_of(w.kind).is_blocked; }
inline bool takes_blocks_in_registers(const LinearView& w, int64_t num_tokens) {
  return takes_blocks(w, num_tokens) && num_tokens == 1;
}
inline bool takes_int8_input(const LinearView& w, int64_t) { return has_int8_input(w); }
inline bool takes_bf16_input(const LinearView& w, int64_t) {
  return w.input == InputKind::kBf16 && !is_integer(w.kind);
}
inline bool takes_floats(const LinearView& w, int64_t) {
  return w.input == InputKind::kFp32 && !is_integer(w.kind) && w.kind != WeightKind::kFp8;
}
inline bool takes_fp32_input(const LinearView& w, int64_t) { return w.input == InputKind::kFp32; }

// Codes whose inputs are not rounded to int8.
inline bool takes_codes(const LinearView& w, int64_t) {
  return is_integer(w.kind) && w.input != InputKind::kInt8;
}
inline bool takes_one_code_row(const LinearView& w, int64_t num_tokens) {
  return takes_codes(w, num_tokens) && num_tokens == 1;
}
#if defined(PAREDOWN_DOTS_AS_FLOATS)
inline bool takes_code_pairs(const LinearView& w, int64_t num_tokens) {
  return takes_codes(w, num_tokens) && w.input == InputKind::kBf16;
}
// Of codes of four bits decoding hides behind the products of four tokens, however many there are.
inline bool takes_pairs_in_registers(const LinearView& w, int64_t num_tokens) {
  return takes_code_pairs(w, num_tokens) && (num_tokens == 1 || w.kind == WeightKind::kInt4);
}
#endif

#if defined(PAREDOWN_HAS_TILES)
inline bool fills_tiles(const LinearView& w, int64_t num_tokens) {
  return has_int8_input(w) && !few_tokens(w, num_tokens);
}
inline bool takes_group_tiles(const LinearView& w, int64_t num_tokens) {
  const bool fits_bytes = w.kind != WeightKind::kInt8 || w.zero_points == nullptr;
  return fills_tiles(w, num_tokens) && has_groups(w) && fits_bytes && fits_decoded(w);
}
inline bool takes_step_tiles(const LinearView& w, int64_t num_tokens) {
  return fills_tiles(w, num_tokens) && has_steps(w);
}
inline bool takes_row_tiles(const LinearView& w, int64_t num_tokens) {
  return fills_tiles(w, num_tokens) && !has_groups(w) && w.num_columns % 64 == 0;
}
#else
// Blocks are expanded for each tile of tokens.
inline bool takes_short_bitmap_in_registers(const LinearView& w, int64_t num_tokens) {
  return w.kind == WeightKind::kBf16ShortBitmap && num_tokens <= kFewShortTokens;
}
inline bool takes_short_in_registers(const LinearView& w, int64_t num_tokens) {
  return w.kind == WeightKind::kBf16Short && num_tokens <= kFewShortTokens;
}
#endif

// Panels that are multiplied together: an odd one at the end has no form.
inline bool has_whole(const LinearView& w, int num_together) {
  return (w.num_rows + kLanes - 1) / kLanes % num_together == 0;
}

#if defined(PAREDOWN_PAIRS_PRODUCTS)
inline bool takes_pairs(const LinearView& w, int64_t num_tokens) {
  return num_tokens >= kMinPairTokens && has_whole(w, kPairPanels) && has_int8_input(w) &&
         weight_bits(w.kind) <= kPairBits && w.zero_points == nullptr && may_read_bits(w) &&
         w.group_size <= kDecodedColumns;
}
#endif

#if defined(PAREDOWN_SHARES_CODES)
inline bool shares_codes(const LinearView& w, int64_t num_tokens, int64_t most_tokens) {
  return num_tokens >= kMinSharedTokens && num_tokens <= most_tokens && has_int8_input(w) &&
         has_whole(w, kSharedPanels);
}
inline bool takes_shared_rows(const LinearView& w, int64_t num_tokens) {
  return shares_codes(w, num_tokens, kMaxSharedRowTokens) && !has_groups(w) &&
         (w.kind == WeightKind::kInt8 || has_steps(w));
}
inline bool takes_shared_groups(const LinearView& w, int64_t num_tokens) {
  return shares_codes(w, num_tokens, kMaxSharedGroupTokens) && has_groups(w) &&
         (w.weight_groups == 1 || may_read_bits(w)) && w.group_size <= kDecodedColumns &&
         w.input_groups > 1 && (w.kind == WeightKind::kInt8 || w.kind == WeightKind::kInt4);
}
#endif

// The first row that takes a layer runs it.
constexpr LinearForm kLinearForms[] = {
    {"GGUF blocks, decode in registers", takes_blocks_in_registers, InputLayout::kRows, false,
     quantize_blocks, block_one_token},
    {"GGUF blocks, decoded for tiles of tokens", takes_blocks, InputLayout::kRows, false,
     quantize_blocks, block_tokens},
#if defined(PAREDOWN_PAIRS_PRODUCTS)
    {"int2-int4 groups, two columns to a product", takes_pairs, InputLayout::kPairs, true,
     quantize_row, pair_linear},
#endif
#if defined(PAREDOWN_SHARES_CODES)
    {"int rows, codes shared by tiles of tokens", takes_shared_rows, InputLayout::kInterleaved,
     false, quantize_row, shared_rows},
    {"int groups, codes shared by tiles of tokens", takes_shared_groups, InputLayout::kInterleaved,
     false, quantize_row, shared_groups},
#endif
#if defined(PAREDOWN_HAS_TILES)
    {"int groups on AMX tiles", takes_group_tiles, InputLayout::kInterleaved, false, quantize_row,
     group_tiles},
    {"int4 with steps on AMX tiles", takes_step_tiles, InputLayout::kInterleaved, false,
     quantize_row, step_tiles},
    {"int rows on AMX tiles", takes_row_tiles, InputLayout::kInterleaved, false, quantize_row,
     row_tiles<true>},
    {"bf16 on AMX tiles", takes_bf16_input, InputLayout::kInterleaved, false, round_row,
     row_tiles<false>},
#endif
    {"int8 decode in registers", takes_int8_in_registers, InputLayout::kRows, false, quantize_row,
     int_few_tokens<8, false>},
    {"int8 bitmap, expanded in registers", takes_bitmap_in_registers, InputLayout::kRows, false,
     quantize_row, bitmap_few_tokens},
    {"int4 decode in registers, with steps", takes_steps_in_registers, InputLayout::kRows, false,
     quantize_row, int_few_tokens<4, true>},
    {"int4 decode in registers", takes_int4_in_registers, InputLayout::kRows, false, quantize_row,
     int_few_tokens<4, false>},
    {"int prefill, codes unpacked into the cache", takes_many, InputLayout::kRows, true,
     quantize_row, int_many_tokens},
    {"int decode in registers, two tokens at a time", takes_int8_input, InputLayout::kRows, false,
     quantize_row, int_two_tokens},
#if !defined(PAREDOWN_HAS_TILES)
    {"bf16 in 12 bits, decode in registers", takes_short_in_registers, InputLayout::kRows, false,
     round_row, short_few_tokens},
    {"bf16 bitmap in 12 bits, expanded in registers", takes_short_bitmap_in_registers,
     InputLayout::kRows, false, round_row, short_bitmap_few_tokens},
    {"bf16 products", takes_bf16_input, InputLayout::kRows, true, round_row, bf16_linear},
#endif
    {"fp32 products", takes_floats, InputLayout::kRows, false, copy_row, float_linear},
#if defined(PAREDOWN_DOTS_AS_FLOATS)
    {"int decode in registers, bf16 products", takes_pairs_in_registers, InputLayout::kRows, false,
     pair_row, few_coded_tokens<PairNumbers>},
    {"int codes unpacked into the cache, bf16 products", takes_code_pairs, InputLayout::kRows,
     false, pair_row, many_coded_tokens<PairNumbers>},
#endif
    {"int decode in registers, fp32 products", takes_one_code_row, InputLayout::kRows, false,
     float_row, few_coded_tokens<FloatNumbers>},
    {"int codes unpacked into the cache, fp32 products", takes_codes, InputLayout::kRows, false,
     float_row, many_coded_tokens<FloatNumbers>},
    {"fp8 unpacked, fp32 products", takes_fp32_input, InputLayout::kRows, false, copy_row,
     fp8_linear},
};
constexpr int64_t kNumLinearForms = sizeof(kLinearForms) / sizeof(kLinearForms[0]);

const LinearForm& linear_form(const LinearView& w, int64_t num_tokens) {
  for (const LinearForm& form : kLinearForms) {
    if (form.takes(w, num_tokens)) return form;
  }
  __builtin_trap();  // some row takes every kind and input, whatever the tokens
}

bool makes_input(const LinearView& w, const LinearView& next, int64_t num_tokens) {
  return num_tokens > kMinPartTokens && takes_groups(w, next) &&
         linear_form(w, num_tokens).makes_next_input;
}

void linear(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
            int64_t panel_begin, int64_t panel_end, void* scratch) {
  in.form->run(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  if (out.streamed) stream_fence();
}

}  // namespace
}  // namespace paredown
