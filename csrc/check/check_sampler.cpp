#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>

#include "check/checks.h"
#include "check/random.h"
#include "sampling/race.h"
#include "sampling/sampler.h"

namespace paredown {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

SamplingConfig random_config(Random& random, int64_t vocab_size) {
  const auto token = [&] { return static_cast<int32_t>(below(random, vocab_size)); };
  const auto one_of = [&](std::initializer_list<double> values) {
    return *(values.begin() + below(random, static_cast<int64_t>(values.size())));
  };
  SamplingConfig config;
  config.temperature = one_of({0.0, 1e-310, 0.7, 1.0, 100.0});
  config.top_k = below(random, 3) == 0 ? below(random, vocab_size + 2) : 0;
  config.top_p = one_of({1e-9, 0.9, 1.0});
  config.min_p = one_of({0.0, 0.1, 1.0});
  config.typical_p = one_of({0.5, 1.0, 1.0});
  config.repetition_penalty = one_of({1.0, 1.3});
  config.frequency_penalty = one_of({0.0, -0.5});
  if (below(random, 2)) config.logit_bias = {{token(), -100.0}, {token(), 3.0}};
  if (below(random, 4) == 0) config.allowed_tokens = {token(), token(), token()};
  if (below(random, 2)) config.bad_words = {{token()}, {token(), token(), token()}};
  config.min_tokens = below(random, 3);
  config.ending_tokens = {token()};
  config.num_logprobs = static_cast<int>(below(random, 5)) - 1;
  config.seed = random();
  return config;
}

struct Batch {
  std::vector<float> logits;
  std::vector<std::unique_ptr<SamplingState>> states;

  std::vector<SampledRow> run(Sampler& sampler) {
    std::vector<SamplingState*> pointers;
    for (const auto& state : states) pointers.push_back(state.get());
    std::vector<SampledRow> rows(states.size());
    sampler.sample(logits.data(), pointers, rows);
    return rows;
  }
};

// The same seed gives the same batch.
Batch random_batch(uint32_t seed, size_t num_rows, int64_t vocab_size) {
  Random random(seed);
  Batch batch;
  for (size_t i = 0; i < num_rows; ++i) {
    std::vector<float> row = floats(random, vocab_size, 0.0f, 4.0f);
    // Ties, tokens that the model rules out, and now and then a row that failed.
    for (float& x : row) {
      if (below(random, 3) == 0) x = std::round(x);
      if (below(random, 9) == 0) x = kNever;
    }
    if (below(random, 20) == 0) row.back() = std::numeric_limits<float>::quiet_NaN();
    batch.logits.insert(batch.logits.end(), row.begin(), row.end());
    std::vector<int32_t> prompt(static_cast<size_t>(below(random, 9)));
    for (int32_t& token : prompt) token = static_cast<int32_t>(below(random, vocab_size));
    batch.states.push_back(
        std::make_unique<SamplingState>(random_config(random, vocab_size), vocab_size, prompt));
    if (below(random, 3) == 0) {
      const auto num_words = static_cast<size_t>((vocab_size + 31) / 32);
      std::vector<uint32_t> masks(num_words * 2);
      for (uint32_t& word : masks)
        word = below(random, 3) == 0 ? 0u : below(random, 2) ? ~0u : random();
      batch.states.back()->mask_next(masks, num_words);
    }
  }
  return batch;
}

bool is_same(const SampledRow& one, const SampledRow& other) {
  const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
  return one.status == other.status && one.token == other.token &&
         bits(one.logprobs.chosen) == bits(other.logprobs.chosen) &&
         one.logprobs.top == other.logprobs.top;
}

// What the sampler drew is the first of a race with the probabilities that it shows, all of whose
// tokens run.
bool draws_from_distribution(Sampler& sampler, uint32_t seed, int64_t vocab_size) {
  Batch batch = random_batch(seed, 1, vocab_size);
  SamplingState& state = *batch.states.front();
  std::vector<double> probs(static_cast<size_t>(vocab_size));
  const RowStatus status = sampler.distribution(batch.logits.data(), state, probs.data());
  const auto position = static_cast<uint64_t>(state.num_tokens());
  const SampledRow row = batch.run(sampler).front();
  if (row.status != status) return false;
  if (row.status != RowStatus::kOk) return state.num_generated() == 0;
  const std::vector<double> bounds(probs.size(), 1.0);
  const int32_t expected =
      Race(state.config().seed, position).run(bounds.data(), vocab_size, [&](int64_t block) {
        return probs.data() + block * kTokenBlock;
      });
  return state.num_generated() == 1 && row.token == expected;
}

bool refuses_unknown_tokens() {
  SamplingState state({}, 5, {});
  try {
    state.push(5);
  } catch (const std::invalid_argument&) {
    return state.num_tokens() == 0;
  }
  return false;
}

}  // namespace

void check_sampler(Outcome& outcome) {
  ThreadPool lone(1);
  ThreadPool pool(3);
  const auto count = [&](bool passed, const char* what, Isa isa, int64_t vocab_size) {
    outcome.count(passed);
    if (!passed) {
      std::printf("%s: %s, vocabulary of %lld\n", what, isa_name(isa),
                  static_cast<long long>(vocab_size));
    }
  };
  for (int64_t vocab_size : {1, 2, 15, 64, 257, 1031, 4500}) {
    const auto seed = static_cast<uint32_t>(vocab_size);
    Sampler first(kernel_table(Isa::kGeneric), lone);
    const std::vector<SampledRow> expected = random_batch(seed, 40, vocab_size).run(first);
    for (Isa isa : supported_isas()) {
      Sampler sampler(kernel_table(isa), pool);
      const std::vector<SampledRow> rows = random_batch(seed, 40, vocab_size).run(sampler);
      bool same = true;
      for (size_t i = 0; i < rows.size(); ++i) same = same && is_same(rows[i], expected[i]);
      count(same, "sampled rows differ", isa, vocab_size);
      bool drawn = true;
      for (uint32_t i = 0; i < 60; ++i) {
        drawn = drawn && draws_from_distribution(sampler, i, vocab_size);
      }
      count(drawn, "a token is not the first by its distribution", isa, vocab_size);
    }
  }
  count(refuses_unknown_tokens(), "an unknown token is taken", Isa::kGeneric, 5);
}

}  // namespace paredown
