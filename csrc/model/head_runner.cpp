#include "model/head_runner.h"

#include <algorithm>
#include <cmath>

#include "machine/round_up.h"

namespace paredown {
namespace {

// Rows of steps as wide as a vocabulary are made for few tokens at a time, and pooled at once.
constexpr int64_t kBlockFloats = int64_t{1} << 21;
constexpr int64_t kMinBlockTokens = 64;
// Columns that one thread pools.
constexpr int64_t kPooledColumns = 1024;

std::vector<HeadStep> steps_of(const HeadConfig& config, int64_t hidden_size) {
  std::vector<HeadStep> found;
  int64_t size = hidden_size;
  auto add = [&](const std::string& prefix, const std::vector<HeadStepConfig>& steps) {
    for (size_t i = 0; i < steps.size(); ++i) {
      HeadStep& step = found.emplace_back();
      step.role = prefix + std::to_string(i);
      step.config = steps[i];
      step.num_columns = size;
      if (steps[i].norm) step.norm.config = *steps[i].norm;
      size = steps[i].size;
    }
  };
  add("head.token.", config.token_steps);
  size = config.pooled_size(hidden_size);
  add("head.", config.steps);
  return found;
}

int64_t widest_of(const std::vector<HeadStepConfig>& steps, int64_t widest) {
  for (const HeadStepConfig& step : steps) widest = std::max(widest, step.size);
  return widest;
}

// Inputs are read in whole blocks of columns.
int64_t padded_stride(int64_t size) { return round_up(size, kBlockColumns) + kLanes; }

// The sum of squares, in an order of its own.
double squared_length(const float* row, int64_t size) {
  constexpr int kSums = 4;
  double sums[kSums] = {};
  for (int64_t i = 0; i < size; ++i) sums[i % kSums] += double{row[i]} * double{row[i]};
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Adds a token, number `index` of its text, to what its text has come to so far.
void pool_token(Pooling pooling, const float* token, int64_t index, bool is_last, int64_t size,
                float* pooled) {
  const bool is_first = index == 0;
  switch (pooling) {
    case Pooling::kCls:
      if (is_first) std::copy_n(token, size, pooled);
      return;
    case Pooling::kLast:
      if (is_last) std::copy_n(token, size, pooled);
      return;
    case Pooling::kMean:
    case Pooling::kMeanSqrtLen:
      if (is_first) {
        std::copy_n(token, size, pooled);
        return;
      }
      for (int64_t i = 0; i < size; ++i) pooled[i] += token[i];
      return;
    case Pooling::kWeightedMean: {
      const auto weight = static_cast<float>(index + 1);
      if (is_first) std::fill_n(pooled, size, 0.0f);
      for (int64_t i = 0; i < size; ++i) pooled[i] += weight * token[i];
      return;
    }
    case Pooling::kMax:
    case Pooling::kMaxLogRelu:
      if (is_first) {
        std::copy_n(token, size, pooled);
        return;
      }
      for (int64_t i = 0; i < size; ++i) pooled[i] = token[i] > pooled[i] ? token[i] : pooled[i];
      return;
  }
}

// What is done once all tokens of a text have been added.
void end_pooling(Pooling pooling, int64_t num_tokens, int64_t size, float* pooled) {
  if (pooling == Pooling::kMaxLogRelu) {
    for (int64_t i = 0; i < size; ++i) pooled[i] = std::log1p(std::max(pooled[i], 0.0f));
    return;
  }
  const auto count = static_cast<double>(num_tokens);
  double divisor = 1.0;
  if (pooling == Pooling::kMean) divisor = count;
  if (pooling == Pooling::kMeanSqrtLen) divisor = std::sqrt(count);
  if (pooling == Pooling::kWeightedMean) divisor = count * (count + 1.0) / 2.0;
  if (divisor == 1.0) return;
  const auto factor = static_cast<float>(divisor);
  for (int64_t i = 0; i < size; ++i) pooled[i] /= factor;
}

}  // namespace

HeadSizes head_sizes(const HeadConfig& config, int64_t hidden_size) {
  HeadSizes sizes{};
  const int64_t pooled = config.pooled_size(hidden_size);
  const int64_t token_width = widest_of(config.token_steps, kLanes);
  sizes.token_stride = padded_stride(token_width);
  sizes.text_stride = padded_stride(widest_of(config.steps, pooled));
  sizes.block_tokens = std::max(kMinBlockTokens, kBlockFloats / sizes.token_stride);
  int64_t columns = hidden_size;
  for (const HeadStep& step : steps_of(config, hidden_size)) {
    columns = std::max(columns, step.num_columns);
  }
  sizes.max_columns = round_up(columns, kBlockColumns);
  return sizes;
}

HeadMemory head_memory(const HeadConfig& config, int64_t hidden_size, int64_t num_tokens,
                       int64_t num_texts) {
  const HeadSizes sizes = head_sizes(config, hidden_size);
  HeadMemory memory{};
  if (!config.token_steps.empty()) {
    memory.tokens = std::min(num_tokens, sizes.block_tokens) * sizes.token_stride * 4;
  }
  if (!config.pooling.empty()) memory.texts = num_texts * sizes.text_stride * 4;
  return memory;
}

HeadRunner::HeadRunner(const KernelTable& kernels, ThreadPool& pool, LinearRunner& linears,
                       const HeadConfig& config, int64_t hidden_size)
    : kernels_(kernels),
      pool_(pool),
      linears_(linears),
      config_(config),
      hidden_size_(hidden_size),
      sizes_(head_sizes(config, hidden_size)),
      steps_(steps_of(config, hidden_size)) {}

void HeadRunner::reserve(int64_t num_tokens, int64_t num_texts) {
  const HeadMemory memory = head_memory(config_, hidden_size_, num_tokens, num_texts);
  auto grow = [](AlignedBuffer& buffer, int64_t num_bytes) {
    if (num_bytes > buffer.num_bytes()) buffer = AlignedBuffer(num_bytes);
  };
  for (AlignedBuffer& buffer : tokens_) grow(buffer, memory.tokens);
  for (AlignedBuffer& buffer : texts_) grow(buffer, memory.texts);
}

int64_t HeadRunner::num_bytes() const {
  return tokens_[0].num_bytes() + tokens_[1].num_bytes() + texts_[0].num_bytes() +
         texts_[1].num_bytes();
}

void HeadRunner::run_step(const HeadStep& step, Rows input, int64_t num_rows, float* output,
                          int64_t row_stride) {
  const int64_t columns = step.num_columns;
  const int64_t padded = round_up(columns, kBlockColumns);
  auto read = [&](int64_t t, float* buffer) {
    std::copy_n(input.values + t * input.row_stride, columns, buffer);
    std::fill(buffer + columns, buffer + padded, 0.0f);
    return buffer;
  };
  linears_.run(step.linear, num_rows, read,
               {output, row_stride, false, false, false, Activation::kRelu});
  if (!step.config.activation && !step.config.norm) return;
  const int64_t size = round_up(step.config.size, kLanes);
  for_rows(pool_, num_rows, [&](int64_t t) {
    float* row = output + t * row_stride;
    if (step.config.activation) {
      kernels_.activate(*step.config.activation, row, nullptr, row, size);
    }
    if (step.config.norm) kernels_.norm(step.norm.view(), row, row, step.config.size);
  });
}

// Each step writes the buffer that the one before it did not.
HeadRunner::Rows HeadRunner::run_steps(std::span<const HeadStep> steps, Rows input,
                                       int64_t num_rows, AlignedBuffer (&buffers)[2],
                                       int64_t row_stride) {
  for (const HeadStep& step : steps) {
    const AlignedBuffer& other = buffers[input.values == buffers[0].as<float>() ? 1 : 0];
    run_step(step, input, num_rows, other.as<float>(), row_stride);
    input = {other.as<float>(), row_stride};
  }
  return input;
}

void HeadRunner::pool_block(const Rows& tokens, std::span<const Part> parts, float* pooled,
                            int64_t row_stride) {
  const int64_t size = config_.token_size(hidden_size_);
  auto pool_columns = [&](const Part& part, Pooling pooling, const Range& columns, float* target) {
    for (int64_t i = 0; i < part.num_tokens; ++i) {
      const float* token = tokens.values + (part.row + i) * tokens.row_stride;
      pool_token(pooling, token + columns.begin, part.first + i,
                 part.is_last && i == part.num_tokens - 1, columns.end - columns.begin, target);
    }
    if (part.is_last) {
      end_pooling(pooling, part.first + part.num_tokens, columns.end - columns.begin, target);
    }
  };
  const int64_t num_pieces = divide_up(size, kPooledColumns);
  const auto num_items = static_cast<int64_t>(parts.size()) * num_pieces;
  for_rows(pool_, num_items, [&](int64_t item) {
    const Part& part = parts[static_cast<size_t>(item / num_pieces)];
    const int64_t begin = item % num_pieces * kPooledColumns;
    const Range columns{begin, std::min(size, begin + kPooledColumns)};
    float* target = pooled + part.text * row_stride + begin;
    for (const Pooling pooling : config_.pooling) {
      pool_columns(part, pooling, columns, target);
      target += size;
    }
  });
}

void HeadRunner::write_rows(const Rows& rows, int64_t num_rows, float* outputs) {
  const int64_t size = config_.output_size(hidden_size_);
  for_rows(pool_, num_rows, [&](int64_t t) {
    const float* row = rows.values + t * rows.row_stride;
    float* output = outputs + t * size;
    std::copy_n(row, size, output);
    if (!config_.is_normalized) return;
    const double length = std::max(std::sqrt(squared_length(row, size)), 1e-12);
    const auto factor = static_cast<float>(1.0 / length);
    for (int64_t i = 0; i < size; ++i) output[i] *= factor;
  });
}

void HeadRunner::run(const TokenVectors& tokens, float* outputs) {
  const std::span<const HeadStep> all(steps_);
  const std::span<const HeadStep> token_steps = all.first(config_.token_steps.size());
  int64_t num_tokens = 0;
  for (const int32_t length : tokens.lengths) num_tokens += length;
  const bool is_pooled = !config_.pooling.empty();
  // Without steps, all tokens lie there already.
  const int64_t block = token_steps.empty() ? num_tokens : sizes_.block_tokens;
  size_t text = 0;
  int64_t done = 0;  // tokens of `text`
  for (int64_t begin = 0; begin < num_tokens; begin += block) {
    const int64_t count = std::min(block, num_tokens - begin);
    const Rows input{tokens.values + begin * tokens.row_stride, tokens.row_stride};
    const Rows made = run_steps(token_steps, input, count, tokens_, sizes_.token_stride);
    if (!is_pooled) {
      write_rows(made, count, outputs + begin * config_.output_size(hidden_size_));
      continue;
    }
    parts_.clear();
    for (int64_t row = 0; row < count;) {
      const int64_t left = tokens.lengths[text] - done;
      const int64_t taken = std::min(left, count - row);
      parts_.push_back({static_cast<int64_t>(text), row, done, taken, taken == left});
      row += taken;
      done += taken;
      if (taken < left) break;
      ++text;
      done = 0;
    }
    pool_block(made, parts_, texts_[0].as<float>(), sizes_.text_stride);
  }
  if (!is_pooled) return;
  const auto num_texts = static_cast<int64_t>(tokens.lengths.size());
  const Rows pooled{texts_[0].as<float>(), sizes_.text_stride};
  write_rows(
      run_steps(all.subspan(token_steps.size()), pooled, num_texts, texts_, sizes_.text_stride),
      num_texts, outputs);
}

}  // namespace paredown
