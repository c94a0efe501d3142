// The working memory of one attention task, and the arithmetic that both kinds of products share.
#pragma once

#include "kv_pages.h"

namespace paredown {
namespace {

constexpr float kLowest = -3.0e38f;  // below every score; not -inf, whose differences are NaN

// Parts of attention_scratch_floats(head_dim) floats, which begin as zeros.
struct AttentionScratch {
  AttentionScratch(float* memory, int64_t head_dim) {
    const int64_t padded = (head_dim + 31) / 32 * 32;
    auto take = [&memory](int64_t size) {
      float* part = memory;
      memory += size;
      return part;
    };
    queries = take(kTaskRows * padded);
    keys = reinterpret_cast<uint16_t*>(take(kBlockKeys * padded / 2));
    values = reinterpret_cast<uint16_t*>(take(kBlockKeys * padded / 2 + 256));
    scores = take(kTileRows * kBlockKeys);
    weights = reinterpret_cast<uint16_t*>(take(kTileRows * kBlockKeys));
    products = take(kTileRows * head_dim);
    key_scales = take(kBlockKeys);
    value_scales = take(kBlockKeys);
    maxima = take(kTaskRows);
    sums = take(kTaskRows * kLanes);
    outputs = take(kTaskRows * head_dim);
    total_maxima = take(kTaskRows);
    total_sums = take(kTaskRows);
  }

  float* queries;     // [rows][head_dim], or tiles of bf16: [tile][high, low][head_dim/32][16][32]
  uint16_t* keys;     // a block's keys as bf16, when its pages hold something else
  uint16_t* values;   // its values, the same
  float* scores;      // [16][keys of a block]
  uint16_t* weights;  // [high, low][keys/32][16][32] bf16
  float* products;    // [16][head_dim]
  float* key_scales;  // [keys of a block]
  float* value_scales;
  float* maxima;        // per row, of the chunk so far
  float* sums;          // [rows][16 lanes], of the chunk so far
  float* outputs;       // [rows][head_dim], of the chunk so far
  float* total_maxima;  // per row, of all chunks so far
  float* total_sums;
};

// e^x for x <= 0; exactly 0 where it is too small to matter, as for a masked score.
inline F32x16 exp_or_zero(F32x16 x) { return select_less(x, set_f(-86.0f), zero_f(), exp(x)); }

// old * factor + added. A sum of nothing but masked keys may be -0 on one path and +0 on another:
// adding 0 makes both +0.
inline F32x16 rescale_and_add(F32x16 old, float factor, F32x16 added) {
  return fma(old, set_f(factor), add(added, zero_f()));
}

}  // namespace
}  // namespace paredown
