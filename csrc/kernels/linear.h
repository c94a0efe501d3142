// Linear layers: which form multiplies a weight with its input. Lanes are output rows, so every
// output is summed over its columns in one fixed order, whatever the number of tokens, the tile or
// the thread.
#pragma once

#include "linear_tile_groups.h"

namespace paredown {
namespace {

template <int kBits>
void int_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
#if defined(PAREDOWN_HAS_TILES)
  const bool fits_bytes = kBits < 8 || w.zero_points == nullptr;
  if (num_tokens > kFewTokens) {
    if (w.num_groups == 1 && w.num_columns % 64 == 0) {
      constexpr WeightKind kKinds[] = {WeightKind::kInt2, WeightKind::kInt2, WeightKind::kInt2,
                                       WeightKind::kInt3, WeightKind::kInt4, WeightKind::kInt5,
                                       WeightKind::kInt6, WeightKind::kInt8, WeightKind::kInt8};
      return row_tiles<kKinds[kBits]>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
    }
    if (w.num_groups > 1 && fits_bytes && fits_decoded(w)) {
      return group_tiles<kBits>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
    }
  }
#endif
  if (num_tokens > kManyTokens && fits_decoded(w)) {
    return int_many<kBits>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
  }
  if (num_tokens == 1) {
    return int_few<kBits, 2 * kIntPanels>(w, in, out, num_tokens, panel_begin, panel_end);
  }
  int_few<kBits, kIntPanels>(w, in, out, num_tokens, panel_begin, panel_end);
}

template <WeightKind kKind>
void linear_of(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
               int64_t panel_begin, int64_t panel_end, void* scratch) {
  if constexpr (is_integer(kKind)) {
    if (w.input == InputKind::kInt8) {
      return int_linear<weight_bits(kKind)>(w, in, out, num_tokens, panel_begin, panel_end,
                                            scratch);
    }
  }
  if constexpr (kKind == WeightKind::kBf16 || kKind == WeightKind::kFp8) {
    if (w.input == InputKind::kBf16) {
#if defined(PAREDOWN_HAS_TILES)
      return row_tiles<kKind>(w, in, out, num_tokens, panel_begin, panel_end, scratch);
#else
      return bf16_linear(w, in, out, num_tokens, panel_begin, panel_end, scratch);
#endif
    }
  }
  float_linear<kKind>(w, in, out, num_tokens, panel_begin, panel_end);
}

void linear(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
            int64_t panel_begin, int64_t panel_end, void* scratch) {
  using Linear = void (*)(const LinearView&, const InputRows&, const OutputRows&, int64_t, int64_t,
                          int64_t, void*);
  // In the order of WeightKind.
  static constexpr Linear kForms[] = {
      linear_of<WeightKind::kFp32>, linear_of<WeightKind::kFp16>, linear_of<WeightKind::kBf16>,
      linear_of<WeightKind::kFp8>,  linear_of<WeightKind::kInt2>, linear_of<WeightKind::kInt3>,
      linear_of<WeightKind::kInt4>, linear_of<WeightKind::kInt5>, linear_of<WeightKind::kInt6>,
      linear_of<WeightKind::kInt8>};
  kForms[static_cast<int>(w.kind)](w, in, out, num_tokens, panel_begin, panel_end, scratch);
}

}  // namespace
}  // namespace paredown
