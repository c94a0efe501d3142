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
    keys = reinterpret_cast<uint16_t*>(take(kBatchBlocks * kBlockKeys * padded / 2));
    values = reinterpret_cast<uint16_t*>(take(kBatchBlocks * kBlockKeys * padded / 2 + 256));
    key_scales = take(kBatchBlocks * kBlockKeys);
    value_scales = take(kBatchBlocks * kBlockKeys);
    scores = take(kTaskRows * kBlockKeys);
    weights = reinterpret_cast<uint16_t*>(take(kTaskRows * kBlockKeys));
    products = take(kTaskRows * head_dim);
    maxima = take(kTaskRows);
    sums = take(kTaskRows * kLanes);
    outputs = take(kTaskRows * head_dim);
    total_maxima = take(kTaskRows);
    total_sums = take(kTaskRows);
  }

  float* queries;     // [rows][head_dim], or tiles of bf16: [tile][high, low][head_dim/32][16][32]
  uint16_t* keys;     // keys of the batch's blocks as bf16, when pages hold something else
  uint16_t* values;   // their values, the same
  float* key_scales;  // [block][keys]
  float* value_scales;
  float* scores;        // [work][16][keys of a block]
  uint16_t* weights;    // [work][high, low][keys/32][16][32] bf16
  float* products;      // [work][16][head_dim] weighted values of one block
  float* maxima;        // per row, of the chunk so far
  float* sums;          // [rows][16 lanes], of the chunk so far
  float* outputs;       // [rows][head_dim], of the chunk so far
  float* total_maxima;  // per row, of all chunks so far
  float* total_sums;
};

// Scores are kept in powers of two: queries take this factor once, weights are 2^score.
constexpr float kLog2E = 1.44269504088896341f;

// One tile of query rows against one block of keys.
struct TileWork {
  int tile;
  int block;      // of the batch
  int row_begin;  // rows that see a key of the block; they follow each other, as positions rise
  int row_end;
  int page_begin;  // pages of the block that any of them sees, whole page steps
  int page_end;
  int key_begins[kTileRows];
  int key_ends[kTileRows];
  alignas(64) float factors[kTileRows];  // of what the rows have summed so far
};

}  // namespace
}  // namespace paredown
