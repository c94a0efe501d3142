// The kinds of weights that lie in blocks with their own scales, as GGUF has them: one row for each
// of what differs. A block is 256 columns, or 32. Its groups of columns have scales s and minima m
// of few bits, and the block two numbers d and e for all of them, in 16 bits:
//   a weight is d s (code - zero point) - e m
// Blocks of 32 columns are one group, whose s and m are 1 (e is taken off with its sign turned).
//
// A block of 16 rows, packed: its runs of 32 columns as blocks of integer codes (weight_kinds.h);
// scales, and behind them minima, four groups to a quad; d; e. Quads of factors are planes of bits
// like codes, of 4 and then 2 bits, or [16 rows][4 groups] signed bytes.
#pragma once

#include "kernels/weight_kinds.h"

namespace paredown {

enum class Factors { kNone, kFourBits, kSixBits, kBytes };

// What codes of four bits stand for, as unsigned bytes; kNone: themselves.
enum class CodeTable { kNone, kIq4, kE2m1 };

struct BlockForm {
  WeightKind kind;
  int bits;  // of a code
  int64_t columns;
  int64_t group_columns;
  Factors factors;
  int factor_zero;  // what is taken off scales
  bool has_minima;
  int zero_point;  // of codes, or of what a table makes of them
  CodeTable table;
  int product_bits;     // of what is multiplied
  bool has_bf16_scale;  // d is bf16; else fp16

  constexpr int num_groups() const { return static_cast<int>(columns / group_columns); }
  constexpr bool is_short() const { return columns == kBlockColumns; }
  constexpr int num_factors() const {
    return factors == Factors::kNone ? 0 : num_groups() * (has_minima ? 2 : 1);
  }
  constexpr int64_t run_bytes() const { return kBlockColumns * kLanes / 8 * bits; }
  constexpr int64_t factor_offset() const { return columns / kBlockColumns * run_bytes(); }
  constexpr int64_t factor_bytes() const {
    const int64_t all = num_factors() * kLanes;
    if (factors == Factors::kFourBits) return all / 2;
    return factors == Factors::kSixBits ? all * 3 / 4 : all;
  }
  constexpr int64_t half_offset() const { return factor_offset() + factor_bytes(); }
  constexpr int64_t bytes() const { return half_offset() + (has_minima ? 2 : 1) * 2 * kLanes; }
};

// IQ4's values of four-bit codes, 128 above, and twice those of e2m1 (OCP MX), 12 above.
// By CodeTable.
inline constexpr uint8_t kCodeTables[][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241},
    {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0},
};
constexpr const uint8_t* code_table(CodeTable table) {
  return kCodeTables[static_cast<int>(table)];
}

inline constexpr BlockForm kBlockForms[] = {
    {WeightKind::kQ2K, 2, 256, 16, Factors::kFourBits, 0, true, 0, CodeTable::kNone, 2, false},
    {WeightKind::kQ3K, 3, 256, 16, Factors::kSixBits, 32, false, 4, CodeTable::kNone, 3, false},
    {WeightKind::kQ4K, 4, 256, 32, Factors::kSixBits, 0, true, 0, CodeTable::kNone, 4, false},
    {WeightKind::kQ5K, 5, 256, 32, Factors::kSixBits, 0, true, 0, CodeTable::kNone, 5, false},
    {WeightKind::kQ6K, 6, 256, 16, Factors::kBytes, 0, false, 32, CodeTable::kNone, 6, false},
    {WeightKind::kIq4Xs, 4, 256, 32, Factors::kBytes, 0, false, 128, CodeTable::kIq4, 8, false},
    {WeightKind::kQ41, 4, 32, 32, Factors::kNone, 0, true, 0, CodeTable::kNone, 4, false},
    {WeightKind::kQ51, 5, 32, 32, Factors::kNone, 0, true, 0, CodeTable::kNone, 5, false},
    {WeightKind::kIq4Nl, 4, 32, 32, Factors::kNone, 0, false, 128, CodeTable::kIq4, 8, false},
    {WeightKind::kMxfp4, 4, 32, 32, Factors::kNone, 0, false, 12, CodeTable::kE2m1, 5, true},
};

constexpr const BlockForm& block_form(WeightKind kind) {
  const BlockForm* form = kBlockForms;
  while (form->kind != kind) ++form;
  return *form;
}

constexpr bool block_forms_fit() {
  for (const BlockForm& form : kBlockForms) {
    const WeightTraits& traits = traits_of(form.kind);
    if (!traits.is_blocked || traits.block_columns != form.columns) return false;
    if (traits.block_bytes != form.bytes() || traits.bits != form.bits) return false;
  }
  return true;
}
static_assert(block_forms_fit());

}  // namespace paredown
