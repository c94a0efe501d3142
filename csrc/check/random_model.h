// Small models with random weights and random batches of sequences, for the checks.
#pragma once

#include <memory>
#include <vector>

#include "check/random.h"
#include "model/model.h"

namespace paredown {

inline constexpr int64_t kVocab = 61;
inline constexpr int64_t kHidden = 48;  // no multiple of 32: rows of integer weights are padded
inline constexpr int64_t kContext = 96;
inline constexpr int64_t kPages = 24;  // of a model without cross-attention
inline constexpr int64_t kCrossModelPages = 96;

struct Case {
  Isa isa;
  WeightKind kind;
  KvFormat kv;
  bool asymmetric;
  bool learned_positions;
  bool has_experts = false;  // in the first layer, and an expert that every token passes
  KvFormat last_kv = kv;     // of the last layer
  bool unequal = false;      // two layers more, of other shapes and forms, between the two
  bool has_bitmaps = false;  // int8 and bf16, whose inputs are rounded; half of their numbers zero
  // All layers have cross-attention, and relative positions in place of others.
  bool has_cross = false;
};

// Encoders with norms on sums, with windows on both sides, with relative positions, and causal
// ones.
inline constexpr int kNumEncoderVariants = 4;
struct EncoderCase {
  Isa isa;
  WeightKind kind;
  KvKind kv;
  int variant;
};

struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> pages;
  std::vector<float> logits;
  int64_t done = 0;
  // Of the text that it reads across, where the model has cross-attention.
  int32_t cross_length = 0;
  std::vector<int32_t> cross_pages = {};
};

// The same random numbers give the same weights on every instruction set.
std::unique_ptr<Model> random_model(Random& random, const Case& test);

std::unique_ptr<Model> random_encoder(Random& random, const EncoderCase& test);

// Up to four sequences of any length on pages of their own.
std::vector<Sequence> random_sequences(Random& random);

// Computes all sequences to their ends side by side, in random chunks or each in one.
void run_sequences(Model& model, Random& random, std::vector<Sequence*> sequences, bool whole);

}  // namespace paredown
