#include "sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "sampling/race.h"

namespace paredown {
namespace {

// Fewer logits than this in all rows are not worth waking a thread for.
constexpr int64_t kMinSharedLogits = 1 << 15;

// Buckets of a non-negative number, in ascending order: 64 to each power of two from 2^-12 on.
constexpr int kBucketsPerOctave = 64;
constexpr int kNumBuckets = 32 * kBucketsPerOctave;
constexpr int kBucketShift = 52 - 6;
constexpr uint64_t kFirstBits = std::bit_cast<uint64_t>(0x1p-12) >> kBucketShift;

size_t bucket_of(double key) {
  const uint64_t bits = std::bit_cast<uint64_t>(key) >> kBucketShift;
  if (bits < kFirstBits) return 0;
  return static_cast<size_t>(std::min<uint64_t>(bits - kFirstBits, kNumBuckets - 1));
}

// The least key of a bucket, and of those after it.
double bucket_begin(size_t bucket) {
  if (bucket == 0) return 0.0;
  if (bucket == kNumBuckets) return std::numeric_limits<double>::infinity();
  return std::bit_cast<double>((kFirstBits + bucket) << kBucketShift);
}

// Of a top-k that is found among few tokens: how far rounding may move a distance, and temperatures
// that leave distances their digits.
constexpr double kBoundSlack = 0x1p-40;
constexpr double kMaxFewTemperature = 1e100;

void drop_below(double least, double* weights, int64_t size) {
  for (int64_t i = 0; i < size; ++i) weights[i] = weights[i] < least ? 0.0 : weights[i];
}

}  // namespace

Sampler::Sampler(const KernelTable& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), scratch_(static_cast<size_t>(pool.max_threads())) {}

void Sampler::sample(const float* logits, std::span<SamplingState* const> states,
                     std::span<SampledRow> rows) {
  if (states.empty()) return;
  const int64_t size = states.front()->vocab_size();
  for_rows(states.size(), size, [&](size_t i, Scratch& scratch) {
    sample_row(logits + static_cast<int64_t>(i) * size, *states[i], scratch, rows[i]);
  });
}

void Sampler::sample_runs(const float* logits, std::span<const DraftedRows> rows,
                          std::span<SamplingState* const> states,
                          std::span<std::vector<SampledRow>> runs) {
  if (states.empty()) return;
  const int64_t size = states.front()->vocab_size();
  for_rows(states.size(), size, [&](size_t i, Scratch& scratch) {
    const std::span<const int32_t> draft = rows[i].draft;
    const float* row = logits + rows[i].first * size;
    for (size_t j = 0; j <= draft.size(); ++j, row += size) {
      SampledRow& sampled = runs[i].emplace_back();
      sample_row(row, *states[i], scratch, sampled);
      if (sampled.status != RowStatus::kOk) break;
      if (j < draft.size() && sampled.token != draft[j]) break;
    }
    states[i]->forget_masks();
  });
}

RowStatus Sampler::distribution(const float* logits, SamplingState& state, double* probs) {
  const int64_t size = state.vocab_size();
  reserve(size);
  Scratch& scratch = scratch_.front();
  double largest = 0.0;
  int32_t best = -1;
  const RowStatus status = find_best(logits, state, scratch, largest, best);
  if (status != RowStatus::kOk) return status;
  if (state.config().is_greedy()) {
    std::fill_n(probs, size, 0.0);
    probs[best] = 1.0;
    return status;
  }
  weigh(logits, state, largest, scratch);
  const double* weights = scratch.weights.data();
  const double total = kernels_.sum(weights, size);
  for (int64_t i = 0; i < size; ++i) probs[i] = weights[i] / total;
  return status;
}

void Sampler::logprobs(const float* logits, int64_t vocab_size, std::span<const int32_t> tokens,
                       int num_top, std::span<SampledRow> rows) {
  for_rows(tokens.size(), vocab_size, [&](size_t i, Scratch& scratch) {
    SampledRow& row = rows[i];
    row.token = tokens[i];
    row.has_logprobs = true;
    row.status = row_logprobs(logits + static_cast<int64_t>(i) * vocab_size, vocab_size, tokens[i],
                              num_top, scratch, row.logprobs);
  });
}

void Sampler::reserve(int64_t vocab_size) {
  const auto padded = static_cast<size_t>((vocab_size + 7) / 8 * 8);
  for (Scratch& scratch : scratch_) {
    if (scratch.logits.size() >= padded) continue;
    scratch.distances.resize(padded);
    scratch.weights.resize(padded);
    scratch.blocks.resize(padded / kTokenBlock + 2 * 8);
    scratch.block_logits.resize(padded / kTokenBlock + 1);
    scratch.masked_logits.resize(padded);
    scratch.buckets.resize(kNumBuckets);
    scratch.ids.resize(padded + 1);
    scratch.candidates.reserve(padded);
    scratch.few.reserve(padded);
    scratch.sorted_blocks.reserve(padded / kTokenBlock + 1);
    scratch.logits.resize(padded);  // last: it says that all is there
  }
}

template <class Body>
void Sampler::for_rows(size_t num_rows, int64_t vocab_size, Body&& body) {
  reserve(vocab_size);
  const auto count = static_cast<int64_t>(num_rows);
  if (count < 2 || count * vocab_size < kMinSharedLogits) {
    for (size_t i = 0; i < num_rows; ++i) body(i, scratch_.front());
    return;
  }
  pool_.run_items(count, [&](int share, const Range& rows) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      body(static_cast<size_t>(i), scratch_[static_cast<size_t>(share)]);
    }
  });
}

void Sampler::sample_row(const float* logits, SamplingState& state, Scratch& scratch,
                         SampledRow& row) {
  const SamplingConfig& config = state.config();
  double largest = 0.0;
  const float* allowed = logits;
  row.status = find_best(allowed, state, scratch, largest, row.token);
  if (row.status != RowStatus::kOk) return;
  if (!config.is_greedy()) row.token = draw(allowed, state, largest, scratch);
  row.has_logprobs = config.num_logprobs >= 0;
  if (row.has_logprobs) {
    row_logprobs(logits, state.vocab_size(), row.token, config.num_logprobs, scratch, row.logprobs);
  }
  state.push(row.token);
}

RowStatus Sampler::find_best(const float*& logits, SamplingState& state, Scratch& scratch,
                             double& largest, int32_t& best) {
  const int64_t size = state.vocab_size();
  int64_t index = 0;
  largest = kernels_.largest(logits, size, &index);
  if (!std::isfinite(largest)) return RowStatus::kNotFinite;
  if (state.has_mask()) {
    float* masked = scratch.masked_logits.data();
    state.apply_mask(logits, masked);
    logits = masked;
    largest = kernels_.largest(logits, size, &index);
    if (!std::isfinite(largest)) return RowStatus::kNothingAllowed;
  }
  if (state.has_edits()) {
    double* edited = scratch.logits.data();
    std::copy_n(logits, size, edited);
    state.edit(edited);
    largest = kernels_.largest_double(edited, size, &index);
    if (!std::isfinite(largest)) return RowStatus::kNothingAllowed;
  }
  best = static_cast<int32_t>(index);
  return RowStatus::kOk;
}

void Sampler::weigh(const float* logits, SamplingState& state, double largest, Scratch& scratch) {
  const SamplingConfig& config = state.config();
  const int64_t size = state.vocab_size();
  double* distances = scratch.distances.data();
  double* weights = scratch.weights.data();
  const double* edited = state.has_edits() ? scratch.logits.data() : nullptr;
  if (edited ? weigh_few(edited, config, size, largest, scratch)
             : weigh_few(logits, config, size, largest, scratch)) {
    return truncate(config, size, kernels_.sum(weights, size), scratch);
  }
  double total =
      edited ? kernels_.weigh_doubles(edited, size, largest, config.temperature, distances, weights)
             : kernels_.weigh_floats(logits, size, largest, config.temperature, distances, weights);
  if (config.top_k > 0) {
    if (config.top_k < size) {
      keep_first(size, config.top_k, std::numeric_limits<double>::infinity(), scratch);
    }
    total = kernels_.sum(weights, size);
  }
  truncate(config, size, total, scratch);
}

int32_t Sampler::draw(const float* logits, SamplingState& state, double largest, Scratch& scratch) {
  const SamplingConfig& config = state.config();
  const int64_t size = state.vocab_size();
  const int64_t num_blocks = (size + kTokenBlock - 1) / kTokenBlock;
  double* bounds = scratch.blocks.data();
  double* distances = scratch.distances.data();
  double* weights = scratch.weights.data();
  Race race(config.seed, static_cast<uint64_t>(state.num_tokens()));
  if (config.truncates() || state.has_edits()) {
    weigh(logits, state, largest, scratch);
    kernels_.block_maxima(weights, size, bounds);
    return race.run(bounds, size, [&](int64_t block) { return weights + block * kTokenBlock; });
  }
  // Nothing asks for all weights: those of the best token of each block, and of blocks that may
  // win.
  float* block_logits = scratch.block_logits.data();
  kernels_.block_maxima_floats(logits, size, block_logits);
  kernels_.weigh_floats(block_logits, num_blocks, largest, config.temperature, distances, bounds);
  return race.run(bounds, size, [&](int64_t block) {
    const int64_t begin = block * kTokenBlock;
    const int64_t count = std::min(kTokenBlock, size - begin);
    kernels_.weigh_floats(logits + begin, count, largest, config.temperature, distances, weights);
    drop_below(config.min_p, weights, count);
    return weights;
  });
}

void Sampler::truncate(const SamplingConfig& config, int64_t size, double total, Scratch& scratch) {
  double* distances = scratch.distances.data();
  double* weights = scratch.weights.data();
  if (config.top_p < 1) {
    // All tokens below this together are less than the share left out, and last in the order.
    drop_below((1 - config.top_p) * total / static_cast<double>(2 * size), weights, size);
    keep_first(size, size, config.top_p * total, scratch);
  }
  // The largest weight is 1: no step so far drops the best token.
  if (config.min_p > 0) drop_below(config.min_p, weights, size);
  if (config.typical_p < 1) {
    // -log p = distance + log of the sum, and the entropy is the mean of that: the log cancels.
    total = kernels_.sum(weights, size);
    double mean = 0.0;
    for (int64_t i = 0; i < size; ++i) {
      if (weights[i] > 0) mean += weights[i] * distances[i];
    }
    mean /= total;
    for (int64_t i = 0; i < size; ++i) distances[i] = std::fabs(distances[i] - mean);
    keep_first(size, size, config.typical_p * total, scratch);
  }
}

// Top-k where k is small beside the vocabulary. The k-th largest of the maxima of blocks bounds the
// k-th largest logit: at least k tokens reach it, and few others. Only those are weighed. False,
// and nothing done, where that bounds too little.
template <class Logit>
bool Sampler::weigh_few(const Logit* logits, const SamplingConfig& config, int64_t size,
                        double largest, Scratch& scratch) {
  const int64_t num_blocks = (size + kTokenBlock - 1) / kTokenBlock;
  const int64_t count = config.top_k;
  if (count == 0 || 4 * count > 3 * num_blocks || config.temperature > kMaxFewTemperature) {
    return false;
  }
  double* maxima = scratch.blocks.data();
  block_maxima(logits, size, scratch);
  scratch.sorted_blocks.assign(maxima, maxima + num_blocks);
  const auto kth = scratch.sorted_blocks.begin() + count - 1;
  std::nth_element(scratch.sorted_blocks.begin(), kth, scratch.sorted_blocks.end(),
                   std::greater<>());
  if (!std::isfinite(*kth)) return false;
  // Rounding may put a logit that is a little less at the same distance.
  const double bound = *kth - (largest - *kth) * kBoundSlack;
  double* distances = scratch.distances.data();
  double* weights = scratch.weights.data();
  int32_t* ids = scratch.ids.data();
  int64_t num_ids = 0;
  for (int64_t block = 0; block < num_blocks; ++block) {
    if (maxima[block] < bound) continue;
    const int64_t end = std::min((block + 1) * kTokenBlock, size);
    for (int64_t i = block * kTokenBlock; i < end; ++i) {
      if (logits[i] < bound) continue;
      distances[num_ids] = logits[i];
      ids[num_ids++] = static_cast<int32_t>(i);
    }
  }
  kernels_.weigh_doubles(distances, num_ids, largest, config.temperature, distances, weights);
  std::vector<Weighed>& few = scratch.few;
  few.clear();
  for (int64_t i = 0; i < num_ids; ++i) few.push_back({distances[i], ids[i], weights[i]});
  std::nth_element(few.begin(), few.begin() + count - 1, few.end());
  few.resize(static_cast<size_t>(count));
  std::fill_n(weights, size, 0.0);
  for (const Weighed& one : few) {
    weights[one.token] = one.weight;
    distances[one.token] = one.distance;
  }
  return true;
}

void Sampler::block_maxima(const float* logits, int64_t size, Scratch& scratch) {
  const int64_t num_blocks = (size + kTokenBlock - 1) / kTokenBlock;
  kernels_.block_maxima_floats(logits, size, scratch.block_logits.data());
  std::copy_n(scratch.block_logits.data(), num_blocks, scratch.blocks.data());
}

void Sampler::block_maxima(const double* logits, int64_t size, Scratch& scratch) {
  kernels_.block_maxima(logits, size, scratch.blocks.data());
}

// Keeps the first tokens by (distance, id) that have a weight: as many as `max_count`, and no more
// than are needed to reach `wanted` weight. Only the bucket where that happens is sorted. Tokens
// fall on either side at random, so ids are listed without a branch.
void Sampler::keep_first(int64_t size, int64_t max_count, double wanted, Scratch& scratch) {
  const double* keys = scratch.distances.data();
  double* weights = scratch.weights.data();
  int32_t* ids = scratch.ids.data();
  int64_t num_ids = 0;
  for (int64_t i = 0; i < size; ++i) {
    ids[num_ids] = static_cast<int32_t>(i);
    num_ids += weights[i] > 0;
  }
  Bucket* buckets = scratch.buckets.data();
  std::fill_n(buckets, kNumBuckets, Bucket{});
  for (int64_t i = 0; i < num_ids; ++i) {
    Bucket& bucket = buckets[bucket_of(keys[ids[i]])];
    bucket.mass += weights[ids[i]];
    bucket.count += 1;
  }
  size_t last = 0;
  double reached = 0.0;
  int64_t num_kept = 0;
  for (; last < kNumBuckets; ++last) {
    const Bucket& bucket = buckets[last];
    if (num_kept + bucket.count >= max_count || reached + bucket.mass >= wanted) break;
    num_kept += bucket.count;
    reached += bucket.mass;
  }
  if (last == kNumBuckets) return;
  const double begin = bucket_begin(last);
  const double end = bucket_begin(last + 1);
  int64_t num_inside = 0;
  for (int64_t i = 0; i < num_ids; ++i) {
    const int32_t id = ids[i];
    const double key = keys[id];
    weights[id] = key >= end ? 0.0 : weights[id];
    ids[num_inside] = id;
    num_inside += (key >= begin) & (key < end);
  }
  std::vector<Candidate>& candidates = scratch.candidates;
  candidates.clear();
  for (int64_t i = 0; i < num_inside; ++i) candidates.push_back({keys[ids[i]], ids[i]});
  std::sort(candidates.begin(), candidates.end());
  for (const Candidate& candidate : candidates) {
    if (num_kept >= max_count || reached >= wanted) {
      weights[candidate.token] = 0.0;
    } else {
      num_kept += 1;
      reached += weights[candidate.token];
    }
  }
}

RowStatus Sampler::row_logprobs(const float* logits, int64_t size, int32_t token, int num_top,
                                Scratch& scratch, RowLogprobs& result) {
  int64_t best_index = 0;
  const double largest = kernels_.largest(logits, size, &best_index);
  if (!std::isfinite(largest)) return RowStatus::kNotFinite;
  double* distances = scratch.distances.data();
  const double log_total = std::log(
      kernels_.weigh_floats(logits, size, largest, 1.0, distances, scratch.weights.data()));
  const auto logprob = [&](int32_t id) { return -distances[id] - log_total; };
  result.chosen = logprob(token);
  result.top.clear();
  const auto limit = static_cast<size_t>(std::min<int64_t>(num_top, size));
  if (limit == 0) return RowStatus::kOk;
  // Ascending by (distance, id): few of a row's numbers get past the last place.
  std::vector<Candidate>& best = scratch.candidates;
  best.clear();
  for (int64_t i = 0; i < size; ++i) {
    if (best.size() == limit && distances[i] >= best.back().key) continue;
    if (best.size() == limit) best.pop_back();
    const Candidate candidate{distances[i], static_cast<int32_t>(i)};
    best.insert(std::upper_bound(best.begin(), best.end(), candidate), candidate);
  }
  for (const Candidate& one : best) result.top.emplace_back(one.token, logprob(one.token));
  return RowStatus::kOk;
}

}  // namespace paredown
