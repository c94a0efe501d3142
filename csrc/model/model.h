// The native executor: a whole batched step of a decoder-only transformer in one call, or a batch
// of whole texts that become vectors.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel_table.h"
#include "machine/thread_pool.h"
#include "model/head_runner.h"
#include "model/layer.h"
#include "model/step_memory.h"
#include "sampling/sampler.h"
#include "weights/packed_linear.h"

namespace paredown {

// Threads of a step. One of up to kMaxDecodeTokens tokens is decode, whatever they are: it is bound
// by the bytes of the weights, which few threads may read as fast as all.
struct ThreadPlan {
  int prefill;
  int decode;
};
inline constexpr int64_t kMaxDecodeTokens = 64;

struct Table {
  WeightKind kind = WeightKind::kFp32;
  int64_t num_rows = 0;
  int64_t row_bytes = 0;
  const uint8_t* values = nullptr;
  AlignedBuffer memory;  // empty where the values are borrowed
};

// A packed weight and the place it has in the model.
struct PlacedLinear {
  std::string role;
  int64_t layer;
  const PackedLinear* weight;
};

// Tokens of all slices of a step, one after the other.
struct StepInput {
  std::span<const int32_t> tokens;        // [T]
  std::span<const int32_t> starts;        // [S] position of the first token of a slice
  std::span<const int32_t> lengths;       // [S]
  std::span<const int32_t> num_logits;    // [S]
  std::span<const int32_t> page_offsets;  // [S + 1] into pages
  std::span<const int32_t> pages;
  // [S] pages between those of the sinks and the next ones of a slice that it has given up: no
  // layer sees them any more.
  std::span<const int32_t> num_released;
  // [S] tokens of the whole texts as far as they are known; empty: each ends with its slice. Read
  // where ModelConfig::switch_tokens is set.
  std::span<const int32_t> text_lengths = {};
  // Where layers have cross-attention: what `write_cross` wrote of the text that a slice reads.
  std::span<const int32_t> cross_lengths = {};  // [S] tokens
  std::span<const int32_t> cross_offsets = {};  // [S + 1] into cross_pages
  std::span<const int32_t> cross_pages = {};
};

// Whole texts, one after the other.
struct EncodeInput {
  std::span<const int32_t> tokens;   // [T]
  std::span<const int32_t> types;    // [T] token types; empty: all are 0
  std::span<const int32_t> lengths;  // [texts]
  // [texts] last tokens that see the others and that no token sees; empty: there are none. Read
  // where a token sees later ones.
  std::span<const int32_t> num_unseen = {};
};

// Vectors of whole texts, one after the other, and the pages for their keys and values.
struct CrossInput {
  const float* vectors;  // [num_rows][hidden_size]
  int64_t num_rows;
  std::span<const int32_t> lengths;       // [texts]
  std::span<const int32_t> page_offsets;  // [texts + 1] into pages
  std::span<const int32_t> pages;
};

// What the head makes of the texts, or the vectors of their tokens after the final norm.
enum class EncodeOutput { kHead, kTokens };

class Model {
 public:
  Model(ModelConfig config, Isa isa, ThreadPlan threads);

  const ModelConfig& config() const { return config_; }
  const KernelTable& kernels() const { return kernels_; }
  ThreadPlan threads() const { return threads_; }
  // Draws on the threads that steps run on: not while one runs.
  Sampler& sampler() { return sampler_; }

  void add_linear(const std::string& role, int64_t layer, const LinearSource& source);
  void set_norm(const std::string& role, int64_t layer, std::vector<float> weight,
                std::vector<float> bias);
  // For a layer of a static format: a scale above 0 for each kv head.
  void set_kv_scales(int64_t layer, std::span<const float> keys, std::span<const float> values);
  void set_embedding(WeightKind kind, std::span<const uint8_t> bytes);
  void set_positions(WeightKind kind, std::span<const uint8_t> bytes, int64_t offset);
  void set_token_types(WeightKind kind, std::span<const uint8_t> bytes);
  // What layers with relative positions add to scores: [heads][2 max_distance + 1], by distance
  // from query to key, the farthest key before the query first.
  void set_relative(std::span<const float> values);
  // The embedding is tied to the output layer, or to a step of the head: its rows are read out of
  // that one's panels. One that is packed on its own is added as the linear layer "embedding".
  void tie_embedding();

  // As above with what another model had packed; the bytes are not copied and outlive the model.
  void borrow_linear(const std::string& role, int64_t layer, const PackedShape& shape,
                     std::span<const uint8_t> bytes);
  void borrow_embedding(WeightKind kind, std::span<const uint8_t> bytes);
  void borrow_positions(WeightKind kind, std::span<const uint8_t> bytes, int64_t offset);
  void borrow_token_types(WeightKind kind, std::span<const uint8_t> bytes);

  // Throws std::invalid_argument unless every weight is there with the sizes of the config.
  void check_weights();
  std::vector<PlacedLinear> linears() const;

  // Bytes of weights that a decode step reads: of experts, as many as a token is sent to. (The
  // embedding table is read by row, not counted.)
  int64_t weight_bytes() const;
  // Bytes of working memory that steps have taken so far: at most `step_bytes` of the largest.
  int64_t step_bytes() const;

  // pairs[2i] is copied to pairs[2i + 1], over all layers, in order. Throws std::invalid_argument
  // before touching anything.
  void copy_pages(std::span<const int32_t> pairs);
  // Checks everything before touching anything, the weights too where they were not; throws
  // std::invalid_argument.
  void check(const StepInput& input);
  // logits: [sum of num_logits][vocab_size]. The input must have passed `check`.
  void step(const StepInput& input, float* logits);

  // As `check`, for `write_cross`.
  void check(const CrossInput& input);
  // Writes the keys and values of all layers' cross-attention. The input must have passed `check`.
  void write_cross(const CrossInput& input);

  // As `check`, for `encode`.
  void check(const EncodeInput& input, EncodeOutput output);
  // Rows of what `encode` gives, and numbers of a row.
  int64_t encoded_rows(const EncodeInput& input, EncodeOutput output) const;
  int64_t encoded_size(EncodeOutput output) const;
  // vectors: [encoded_rows][encoded_size]. The input must have passed `check`.
  void encode(const EncodeInput& input, EncodeOutput output, float* vectors);

 private:
  struct Row {
    int64_t position;
    const int32_t* pages;
    int64_t num_released;
    bool is_long;  // of a text that turns as long ones do
  };

  void reserve(int64_t num_tokens);
  void add_layer(const LayerConfig& config);
  RotaryTable* rotary_table(const AttentionConfig& attention);
  bool is_long(const StepInput& input, size_t slice) const;
  void embed_rows(std::span<const int32_t> tokens, std::span<const int32_t> types);
  void turn(int64_t t);
  void project_heads(int64_t index);
  bool has_cross() const;
  void check_cross(const StepInput& input) const;
  void check_cross_pages(std::span<const int32_t> lengths, std::span<const int32_t> page_offsets,
                         std::span<const int32_t> pages) const;
  void project_cross(int64_t index, const CrossInput& input, const Range& rows);
  void plan_cross(const StepInput& input, std::span<const int32_t> num_tokens);
  void run_cross(int64_t index);
  OutputRows wide_rows() const;
  void mix_layer(int64_t index);
  void encode_group(const EncodeInput& group, EncodeOutput output, float* vectors);
  void check_unseen(const EncodeInput& input) const;
  void place_texts(const EncodeInput& group);
  void norm_hidden(const Norm& norm);
  void norm_sums_later(const Norm& norm);
  void norm_sums();
  void run_attention_output(int64_t index);
  void run_mlp(int64_t index);
  void run_mlp_into(int64_t index, const OutputRows& output);
  bool is_added_at_once(int64_t index, NormRole norm) const;
  OutputRows sublayer_output(int64_t index, NormRole norm);
  void add_sublayer(int64_t index, NormRole norm);
  void keep_row(int64_t to, int64_t from);
  void keep_asked_rows(const StepInput& input);
  bool pools_few_rows() const;
  void keep_pooled_rows(const EncodeInput& group);
  auto normed_rows(const LinearGroup& group, const Norm& norm);
  void run_normed(const LinearGroup& group, const Norm& norm, int64_t num_rows,
                  const OutputRows& output);
  bool scales_in_attention(int64_t index) const;
  void rotate_and_store(int64_t index);
  void finish_logits(float* logits);
  bool fills_page(int64_t t, int64_t end) const;
  void check_released(const StepInput& input, size_t slice) const;
  void activate(const MlpConfig& mlp);
  KvView kv_view(int64_t layer) const;
  Layer& layer_at(int64_t layer);
  const LayerConfig& layer_config(int64_t layer) const {
    return config_.layers[static_cast<size_t>(layer)];
  }
  const LinearSlot& linear_slot(const std::string& role, int64_t layer) const;
  Norm& norm_slot(const std::string& role, int64_t layer);
  Table make_table(WeightKind kind, std::span<const uint8_t> bytes) const;
  Table embedding_table(WeightKind kind, std::span<const uint8_t> bytes) const;
  Table position_table(WeightKind kind, std::span<const uint8_t> bytes, int64_t offset) const;
  Table type_table(WeightKind kind, std::span<const uint8_t> bytes) const;
  void put_embedding(Table table);
  void put_positions(Table table, int64_t offset);
  void check_outer_weights() const;
  // The output layer, or the tied step of the head; null: there is neither.
  const LinearGroup* tied_group() const;
  // The packed weight whose rows are those of the embedding; null: it is a table.
  const PackedLinear* packed_embedding() const;
  // The kind of numbers of embedding_row.
  WeightKind embedding_kind() const;
  // `scratch` takes the row where it does not lie in one piece: hidden_size floats, padded to
  // blocks.
  const void* embedding_row(int32_t token, void* scratch) const;

  template <class Body>
  void for_rows(int64_t num_rows, Body&& body);

  ModelConfig config_;
  const KernelTable& kernels_;
  ThreadPlan threads_;
  ThreadPool pool_;
  LinearRunner linears_;
  std::map<AttentionShape, AttentionRunner> attentions_;
  std::map<AttentionShape, AttentionRunner> cross_attentions_;
  std::list<RotaryTable> rotary_tables_;
  int64_t kept_window_;
  ExpertRunner experts_;
  Sampler sampler_;
  std::vector<Layer> layers_;
  Norm embedding_norm_;
  Norm final_norm_;
  std::unique_ptr<HeadRunner> head_;
  LinearGroup output_;
  LinearGroup embedding_rows_;  // empty, or the embedding packed
  std::vector<LinearSlot> slots_;
  std::map<std::pair<int64_t, std::string>, size_t> slots_by_name_;  // into slots_
  Table embedding_;
  bool tied_ = false;
  Table positions_;
  int64_t position_offset_ = 0;
  Table token_types_;
  std::vector<float> relative_;       // as RelativeView has it
  bool are_weights_checked_ = false;  // since the last one was added
  AlignedBuffer kv_;
  // Keys and values of texts that are encoded, of one layer at a time, and the numbers of their
  // pages in order.
  AlignedBuffer text_kv_;
  std::vector<int32_t> text_pages_;
  std::vector<int32_t> text_rows_;  // of each text, that are left in the end
  bool is_encoding_ = false;
  const Norm* sum_norm_ = nullptr;  // that rows of hidden_ still wait for

  // Working memory of a step, grown when a larger one comes.
  int64_t num_tokens_ = 0;
  int64_t max_tokens_ = 0;
  RowSizes sizes_;
  std::vector<Row> rows_;
  std::vector<AttentionSlice> slices_;
  std::vector<AttentionSlice> cross_slices_;  // where layers have cross-attention
  AlignedBuffer hidden_;                      // [T][hidden]
  AlignedBuffer wide_;                        // [T][wide]: q, k, v; gate, up; what a sublayer adds
  AlignedBuffer attended_;                    // [T][wide], heads used
  AlignedBuffer activated_;                   // [T][wide], intermediate used
  AlignedBuffer sink_queries_;                // [T][heads], with cosines and sines of their own
};

}  // namespace paredown
