// bf16 and fp8 weights times inputs rounded to bf16, summed in fp32. Sets without a bf16 product
// multiply the same rounded numbers as floats.
#pragma once

#include "linear_float.h"
#include "stretch.h"

namespace paredown {
namespace {

// fp8 blocks of one panel as bf16 blocks.
inline void decode_fp8(const uint8_t* blocks, int64_t num_columns, uint8_t* pairs) {
  for (int64_t quad = 0; quad < num_columns / 4; ++quad, blocks += 64, pairs += 128) {
    const U8x64 codes = load_u8(blocks);
    // Columns lie in the order 0, 2, 1, 3.
    I32x16 first;
    I32x16 second;
    bf16_from_fp8(codes, first, second);
    store_i(pairs, first);
    store_i(pairs + 64, second);
  }
}

inline F32x16 row_scales(const LinearView& w, int64_t panel) {
  return w.scales == nullptr ? set_f(1.0f) : load_scales(w, panel * kLanes);
}

#if !defined(PAREDOWN_HAS_TILES)

template <int kTokens, int kPanels>
inline void add_pairs(const uint8_t* pairs, int64_t panel_bytes, int64_t num_pairs,
                      const uint8_t* x, int64_t row_bytes, F32x16 (&sums)[kTokens][kPanels]) {
  for (int64_t k = 0; k < num_pairs; ++k, pairs += 64, x += 4) {
    I32x16 weights[kPanels];
    for (int p = 0; p < kPanels; ++p) weights[p] = load_i(pairs + p * panel_bytes);
    for (int t = 0; t < kTokens; ++t) {
      uint32_t pair;
      __builtin_memcpy(&pair, x + t * row_bytes, sizeof(pair));
      for (int p = 0; p < kPanels; ++p) sums[t][p] = dot_bf16(sums[t][p], weights[p], pair);
    }
  }
}

// Of four panels 256 KB, which leave room in the second cache for inputs and for what comes next.
constexpr int64_t kBf16StretchColumns = 2048;
// Few tiles would fetch the next stretch all at once.
constexpr int64_t kMinFetchingTokens = 64;
// All tokens pass over a stretch of columns of some panels, which stays in the second cache; their
// sums wait in `carry`.
template <int kPanels>
void bf16_dot_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                     int64_t num_tokens, int64_t panel, int64_t panel_end, float* carry) {
  const int64_t panel_bytes = w.num_columns / kBlockColumns * block_bytes(WeightKind::kBf16);
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    const auto* pairs = static_cast<const uint8_t*>(w.values) + panel * panel_bytes;
    for (int64_t first = 0; first < w.num_columns; first += kBf16StretchColumns) {
      const bool is_last = first + kBf16StretchColumns >= w.num_columns;
      const int64_t columns = is_last ? w.num_columns - first : kBf16StretchColumns;
      NextStretch<kPanels> next(w, panel, {first, columns, is_last}, num_tokens / kFloatTokens + 1);
      token_tiles<kFloatTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
        if (num_tokens >= kMinFetchingTokens) next.fetch_share();
        if (is_last) fetch_outputs<tokens.value, kPanels>(out, token, panel);
        F32x16 sums[tokens.value][kPanels];
        float* waiting = carry + token * kPanels * kLanes;
        for (int i = 0; i < tokens.value * kPanels; ++i) {
          sums[i / kPanels][i % kPanels] = first == 0 ? zero_f() : load_f(waiting + i * kLanes);
        }
        const auto* x = static_cast<const uint8_t*>(in.codes) + token * in.code_stride + first * 2;
        add_pairs<tokens.value, kPanels>(pairs + first * 2 * kLanes, panel_bytes, columns / 2, x,
                                         in.code_stride, sums);
        if (!is_last) {
          for (int i = 0; i < tokens.value * kPanels; ++i) {
            store_f(waiting + i * kLanes, sums[i / kPanels][i % kPanels]);
          }
          return;
        }
        finish_rows<tokens.value, kPanels>(w, out, token, panel, sums);
      });
    }
  }
  if constexpr (kPanels > 1) {
    bf16_dot_linear<kPanels / 2>(w, in, out, num_tokens, panel, panel_end, carry);
  }
}

// One scale per row; columns are decoded a stretch at a time, the sums wait in `scratch`.
template <int kPanels = 2>
void fp8_dot_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                    int64_t num_tokens, int64_t panel, int64_t panel_end, void* scratch) {
  auto* decoded = static_cast<uint8_t*>(scratch);
  auto* carry = reinterpret_cast<float*>(decoded + 2 * kLanes * kDecodedColumns * 2);
  constexpr int64_t kDecodedBytes = kLanes * kDecodedColumns * 2;
  const int64_t panel_bytes = w.num_columns * kLanes;
  for (; panel + kPanels <= panel_end; panel += kPanels) {
    for (int64_t first = 0; first < w.num_columns; first += kDecodedColumns) {
      const bool is_last = first + kDecodedColumns >= w.num_columns;
      const int64_t columns = is_last ? w.num_columns - first : kDecodedColumns;
      const auto* codes = static_cast<const uint8_t*>(w.values) + first * kLanes;
      for (int p = 0; p < kPanels; ++p) {
        decode_fp8(codes + (panel + p) * panel_bytes, columns, decoded + p * kDecodedBytes);
      }
      token_tiles<kFloatTokens>(num_tokens, 0, [&](auto tokens, int64_t token) {
        F32x16 sums[tokens.value][kPanels];
        float* waiting = carry + token * kPanels * kLanes;
        for (int i = 0; i < tokens.value * kPanels; ++i) {
          sums[i / kPanels][i % kPanels] = first == 0 ? zero_f() : load_f(waiting + i * kLanes);
        }
        const auto* x = static_cast<const uint8_t*>(in.codes) + token * in.code_stride + first * 2;
        add_pairs<tokens.value, kPanels>(decoded, kDecodedBytes, columns / 2, x, in.code_stride,
                                         sums);
        for (int t = 0; t < tokens.value; ++t) {
          for (int p = 0; p < kPanels; ++p) {
            if (is_last) sums[t][p] = mul(sums[t][p], row_scales(w, panel + p));
            if (!is_last) store_f(waiting + (t * kPanels + p) * kLanes, sums[t][p]);
          }
          if (is_last) finish<kPanels>(w, out, token + t, panel, sums[t]);
        }
      });
    }
  }
  if constexpr (kPanels > 1) {
    fp8_dot_linear<kPanels / 2>(w, in, out, num_tokens, panel, panel_end, scratch);
  }
}

void bf16_linear(const LinearView& w, const InputRows& in, const OutputRows& out,
                 int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  if constexpr (kHasBf16Dot) {
    if (w.kind == WeightKind::kFp8) {
      return fp8_dot_linear(w, in, out, num_tokens, panel_begin, panel_end, scratch);
    }
    return bf16_dot_linear<kFloatPanels>(w, in, out, num_tokens, panel_begin, panel_end,
                                         static_cast<float*>(scratch));
  } else {
    const auto* rounded = static_cast<float*>(in.codes);
    if (w.kind == WeightKind::kFp8) {
      InputRows floats = in;
      floats.values = static_cast<float*>(in.codes);
      floats.row_stride = in.code_stride / 4;
      return coded_linear(w, floats, out, num_tokens, panel_begin, panel_end);
    }
    plain_linear<WeightKind::kBf16, kFloatPanels>(w, rounded, in.code_stride / 4, out, num_tokens,
                                                  panel_begin, panel_end);
  }
}

#endif

}  // namespace
}  // namespace paredown
