// Texts become vectors: whole texts run through all layers side by side, without padding, and
// nothing of them is kept.

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "machine/round_up.h"
#include "model/model.h"

namespace paredown {
namespace {

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

// Says that keys and values lie in the memory of texts, until it ends.
class Encoding {
 public:
  explicit Encoding(bool& is_encoding) : is_encoding_(is_encoding) { is_encoding_ = true; }
  ~Encoding() { is_encoding_ = false; }
  Encoding(const Encoding&) = delete;
  Encoding& operator=(const Encoding&) = delete;

 private:
  bool& is_encoding_;
};

// All layers share the memory of one: what is left there by another must be finite numbers.
bool has_float_pages(const ModelConfig& config) {
  const KvKind first = config.layers.front().kv.kind;
  return !is_coded(first) &&
         std::all_of(config.layers.begin(), config.layers.end(),
                     [&](const LayerConfig& layer) { return layer.kv.kind == first; });
}

// Tokens of a text that others see.
int64_t num_keys(const EncodeInput& input, size_t text) {
  return input.lengths[text] - (input.num_unseen.empty() ? 0 : input.num_unseen[text]);
}

}  // namespace

void Model::check(const EncodeInput& input, EncodeOutput output) {
  if (!are_weights_checked_) check_weights();
  if (output == EncodeOutput::kHead && head_ == nullptr) fail("the model has no head");
  if (config_.num_sinks > 0) fail("whole texts have no attention sinks");
  if (!has_float_pages(config_)) fail("keys and values of texts are kept in bf16 or fp32");
  int64_t num_tokens = 0;
  for (const int32_t length : input.lengths) {
    if (length < 1 || length > config_.max_positions) {
      fail("a text of " + std::to_string(length) + " tokens; possible are 1 to " +
           std::to_string(config_.max_positions));
    }
    num_tokens += length;
  }
  if (num_tokens != std::ssize(input.tokens) ||
      (!input.types.empty() && input.types.size() != input.tokens.size())) {
    fail("the texts do not add up to the tokens, or to their types");
  }
  for (const int32_t token : input.tokens) {
    if (token < 0 || token >= config_.vocab_size) {
      fail("token " + std::to_string(token) + " is outside the vocabulary");
    }
  }
  check_unseen(input);
  const int64_t num_types = std::max<int64_t>(1, config_.num_token_types);
  for (const int32_t type : input.types) {
    if (type < 0 || type >= num_types) {
      fail("token type " + std::to_string(type) + "; possible are 0 to " +
           std::to_string(num_types - 1));
    }
  }
}

// Every token sees some other: of what sees nothing there is no mean.
void Model::check_unseen(const EncodeInput& input) const {
  if (input.num_unseen.empty()) return;
  if (input.num_unseen.size() != input.lengths.size()) {
    fail("tokens that none sees are counted for each text");
  }
  for (size_t i = 0; i < input.lengths.size(); ++i) {
    const int64_t num_unseen = input.num_unseen[i];
    if (num_unseen < 0 || num_unseen >= input.lengths[i]) {
      fail("of a text of " + std::to_string(input.lengths[i]) + " tokens " +
           std::to_string(num_unseen) + " are not seen");
    }
    for (const LayerConfig& layer : config_.layers) {
      const AttentionConfig& attention = layer.attention;
      if (num_unseen > 0 &&
          (attention.is_causal || (attention.window > 0 && num_unseen >= attention.window))) {
        fail("tokens that none sees see the text before them: not with such a window");
      }
    }
  }
}

int64_t Model::encoded_rows(const EncodeInput& input, EncodeOutput output) const {
  const bool are_pooled = output == EncodeOutput::kHead && !config_.head->pooling.empty();
  return are_pooled ? std::ssize(input.lengths) : std::ssize(input.tokens);
}

int64_t Model::encoded_size(EncodeOutput output) const {
  if (output == EncodeOutput::kTokens) return config_.hidden_size;
  return config_.head->output_size(config_.hidden_size);
}

void Model::encode(const EncodeInput& input, EncodeOutput output, float* vectors) {
  const Encoding encoding(is_encoding_);
  size_t text = 0;
  size_t token = 0;
  while (text < input.lengths.size()) {
    size_t num_texts = 0;
    size_t num_tokens = 0;
    TextGroup group;
    while (text + num_texts < input.lengths.size() &&
           group.takes(input.lengths[text + num_texts])) {
      num_tokens += static_cast<size_t>(input.lengths[text + num_texts++]);
    }
    const EncodeInput part{
        input.tokens.subspan(token, num_tokens),
        input.types.empty() ? input.types : input.types.subspan(token, num_tokens),
        input.lengths.subspan(text, num_texts),
        input.num_unseen.empty() ? input.num_unseen : input.num_unseen.subspan(text, num_texts)};
    encode_group(part, output, vectors);
    vectors += encoded_rows(part, output) * encoded_size(output);
    text += num_texts;
    token += num_tokens;
  }
}

// Each text begins a page of its own.
void Model::place_texts(const EncodeInput& group) {
  int64_t num_pages = 0;
  for (const int32_t length : group.lengths) num_pages += divide_up(length, kPageSize);
  const int64_t num_bytes = num_pages * largest_page_bytes(config_);
  if (num_bytes > text_kv_.num_bytes()) text_kv_ = AlignedBuffer(num_bytes);
  text_pages_.resize(static_cast<size_t>(num_pages));
  std::iota(text_pages_.begin(), text_pages_.end(), 0);
  rows_.clear();
  slices_.clear();
  const int32_t* pages = text_pages_.data();
  for (size_t i = 0; i < group.lengths.size(); ++i) {
    const int64_t length = group.lengths[i];
    const bool is_long = config_.switch_tokens > 0 && length > config_.switch_tokens;
    for (int64_t position = 0; position < length; ++position) {
      rows_.push_back({position, pages, 0, is_long});
    }
    slices_.push_back({pages, 0, length, 0, num_keys(group, i)});
    pages += divide_up(length, kPageSize);
  }
}

// Whether the head reads the first tokens of texts, or the last ones, alone.
bool Model::pools_few_rows() const {
  const std::vector<Pooling>& pooling = config_.head->pooling;
  return !pooling.empty() && std::all_of(pooling.begin(), pooling.end(), [](Pooling one) {
    return one == Pooling::kCls || one == Pooling::kLast;
  });
}

// Keeps of each text the rows that are pooled: what is left of the last layer runs on them.
void Model::keep_pooled_rows(const EncodeInput& group) {
  const std::vector<Pooling>& pooling = config_.head->pooling;
  const auto reads = [&](Pooling one) {
    return std::find(pooling.begin(), pooling.end(), one) != pooling.end();
  };
  slices_.clear();
  const int32_t* pages = text_pages_.data();
  int64_t to = 0;
  int64_t begin = 0;
  for (size_t i = 0; i < group.lengths.size(); ++i) {
    const int64_t length = group.lengths[i];
    text_rows_[i] = 0;
    auto keep = [&](int64_t position) {
      keep_row(to++, begin + position);
      slices_.push_back({pages, position, 1, 0, num_keys(group, i)});
      ++text_rows_[i];
    };
    if (reads(Pooling::kCls)) keep(0);
    if (reads(Pooling::kLast) && (length > 1 || !reads(Pooling::kCls))) keep(length - 1);
    begin += length;
    pages += divide_up(length, kPageSize);
  }
  num_tokens_ = to;
  layers_.back().attention->plan(slices_);
}

void Model::encode_group(const EncodeInput& group, EncodeOutput output, float* vectors) {
  num_tokens_ = std::ssize(group.tokens);
  pool_.use(num_tokens_ <= kMaxDecodeTokens ? threads_.decode : threads_.prefill);
  reserve(num_tokens_);
  if (head_ != nullptr) head_->reserve(num_tokens_, std::ssize(group.lengths));
  place_texts(group);
  for (auto& [shape, attention] : attentions_) attention.plan(slices_);
  embed_rows(group.tokens, group.types);
  text_rows_.assign(group.lengths.begin(), group.lengths.end());
  for (int64_t layer = 0; layer < config_.num_layers(); ++layer) {
    project_heads(layer);
    const bool is_last = layer == config_.num_layers() - 1;
    if (is_last && output == EncodeOutput::kHead && pools_few_rows()) keep_pooled_rows(group);
    mix_layer(layer);
  }
  norm_sums();
  norm_hidden(final_norm_);
  const float* hidden = hidden_.as<float>();
  if (output == EncodeOutput::kHead) {
    return head_->run({hidden, sizes_.hidden_stride, text_rows_}, vectors);
  }
  for (int64_t t = 0; t < num_tokens_; ++t) {
    std::copy_n(hidden + t * sizes_.hidden_stride, config_.hidden_size,
                vectors + t * config_.hidden_size);
  }
}

}  // namespace paredown
