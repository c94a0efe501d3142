// The working memory of one attention task, and the arithmetic that all kinds of products share.
#pragma once

#include "kernels/attention/kv_pages.h"

namespace paredown {
namespace {

constexpr float kLowest = -3.0e38f;  // below every score; not -inf, whose differences are NaN

// Parts of attention_scratch_floats(head_dim) floats, which begin as zeros.
struct AttentionScratch {
  AttentionScratch(float* memory, int64_t head_dim) {
    const int64_t padded = (head_dim + 63) / 64 * 64;
    auto take = [&memory](int64_t size) {
      float* part = memory;
      memory += size;
      return part;
    };
    queries = take(kTaskRows * padded);
    query_scales = take(kTaskRows);
    query_sums = reinterpret_cast<int32_t*>(take(3 * kTaskRows));
    keys = reinterpret_cast<uint16_t*>(take(kBlockKeys * padded / 2));
    values = reinterpret_cast<uint16_t*>(take(kBlockKeys * padded / 2 + 256));
    key_scales = take(kBlockKeys);
    value_scales = take(kBlockKeys);
    scores = take(3 * kTileRows * kBlockKeys);
    weights = reinterpret_cast<uint16_t*>(take(kTileRows * kBlockKeys));
    weight_scales = take(kTileRows);
    weight_sums = reinterpret_cast<int32_t*>(take(3 * kTileRows));
    products = take(3 * kTileRows * head_dim);
    maxima = take(kTaskRows);
    sums = take(kTaskRows * kLanes);
    outputs = take(kTaskRows * head_dim);
    total_maxima = take(kTaskRows);
    total_sums = take(kTaskRows);
  }

  float* queries;        // as the kind of products wants them
  float* query_scales;   // per row, where queries are digits
  int32_t* query_sums;   // [rows][digits], the same
  uint16_t* keys;        // keys of the block, when pages hold something else
  uint16_t* values;      // its values, the same
  float* key_scales;     // [keys]
  float* value_scales;   // [keys]
  float* scores;         // [16][keys of a block], or [digits x 16][keys] int32
  uint16_t* weights;     // as the kind of products wants them
  float* weight_scales;  // [16], where weights are digits
  int32_t* weight_sums;  // [16][digits], the same
  float* products;       // [16][head_dim], weighted values of one block, or x digits, int32
  float* maxima;         // per row, of the chunk so far
  float* sums;           // [rows][16 lanes], of the chunk so far
  float* outputs;        // [rows][head_dim], of the chunk so far
  float* total_maxima;   // per row, of all chunks so far
  float* total_sums;
};

// Scores are kept in powers of two: queries take this factor once beside their own scale, weights
// are 2^score.
constexpr float kLog2E = 1.44269504088896341f;

// One tile of query rows against one block of keys.
struct TileWork {
  int tile;
  int64_t first_key;  // of the block
  int row_begin;      // rows that see a key of the block; they follow each other, as positions rise
  int row_end;
  int page_begin;  // pages of the block that any of them sees
  int page_end;
  bool whole;  // all rows see all keys; key_begins and key_ends are not set
  int key_begins[kTileRows];
  int key_ends[kTileRows];
  alignas(64) float factors[kTileRows];  // of what the rows have summed so far
};

}  // namespace
}  // namespace paredown
