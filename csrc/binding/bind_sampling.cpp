// What Python sees of sampling. Arrays are checked here; nothing below sees a Python object.
#include "binding/bind_sampling.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>

#include "binding/arrays.h"
#include "machine/isa.h"
#include "sampling/sampler.h"

namespace nb = nanobind;

namespace paredown {
namespace {

using Logits = Array<float, 2>;
using Masks = Array<uint32_t, 2>;
using Doubles = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
void read(const nb::dict& settings, const char* key, T& value) {
  if (settings.contains(key)) value = nb::cast<T>(settings[key]);
}

SamplingConfig make_sampling_config(const nb::dict& settings) {
  SamplingConfig config;
  read(settings, "temperature", config.temperature);
  read(settings, "top_k", config.top_k);
  read(settings, "top_p", config.top_p);
  read(settings, "min_p", config.min_p);
  read(settings, "typical_p", config.typical_p);
  read(settings, "repetition_penalty", config.repetition_penalty);
  read(settings, "presence_penalty", config.presence_penalty);
  read(settings, "frequency_penalty", config.frequency_penalty);
  read(settings, "logit_bias", config.logit_bias);
  read(settings, "allowed_tokens", config.allowed_tokens);
  read(settings, "bad_words", config.bad_words);
  read(settings, "min_tokens", config.min_tokens);
  read(settings, "ending_tokens", config.ending_tokens);
  read(settings, "num_logprobs", config.num_logprobs);
  read(settings, "seed", config.seed);
  return config;
}

// A sampler on threads of its own. The sampler is the first base: Python takes one for the other.
class PooledSampler : public Sampler {
 public:
  PooledSampler(const std::string& isa, int num_threads)
      : PooledSampler(isa, std::make_unique<ThreadPool>(num_threads)) {}

 private:
  PooledSampler(const std::string& isa, std::unique_ptr<ThreadPool> pool)
      : Sampler(kernel_table(choose_isa(isa)), *pool), pool_(std::move(pool)) {}

  std::unique_ptr<ThreadPool> pool_;
};

// None or (log-probability, [(token, log-probability)])
nb::object logprobs_of(const SampledRow& row) {
  if (!row.has_logprobs) return nb::none();
  return nb::make_tuple(row.logprobs.chosen, row.logprobs.top);
}

// (status, log-probabilities)
nb::tuple as_tuple(const SampledRow& row) {
  return nb::make_tuple(static_cast<int>(row.status), logprobs_of(row));
}

void check_states(const std::vector<SamplingState*>& states, int64_t vocab_size) {
  std::vector<SamplingState*> sorted(states);
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    throw std::invalid_argument("two rows have the same state");
  }
  for (const SamplingState* state : states) {
    if (state == nullptr) throw std::invalid_argument("a state is None");
    if (state->vocab_size() != vocab_size) {
      throw std::invalid_argument("a state has another vocabulary than the logits");
    }
  }
}

// The token of each row; and by index those rows of which there is more to say, as there is of few.
std::pair<nb::list, nb::dict> sample(Sampler& sampler, Logits logits,
                                     const std::vector<SamplingState*>& states) {
  check_states(states, static_cast<int64_t>(logits.shape(1)));
  if (logits.shape(0) != states.size()) {
    throw std::invalid_argument("logits must be [states, vocab_size]");
  }
  std::vector<SampledRow> rows(states.size());
  {
    nb::gil_scoped_release release;
    sampler.sample(logits.data(), states, rows);
  }
  nb::list tokens;
  nb::dict others;
  for (size_t i = 0; i < rows.size(); ++i) {
    tokens.append(rows[i].token);
    const bool has_more = rows[i].status != RowStatus::kOk || rows[i].has_logprobs;
    if (has_more) others[nb::int_(i)] = as_tuple(rows[i]);
  }
  return {tokens, others};
}

// For each state its tokens: (token, status, None or log-probabilities).
nb::list sample_runs(Sampler& sampler, Logits logits, const std::vector<int64_t>& first_rows,
                     const std::vector<std::vector<int32_t>>& drafts,
                     const std::vector<SamplingState*>& states) {
  check_states(states, static_cast<int64_t>(logits.shape(1)));
  if (first_rows.size() != states.size() || drafts.size() != states.size()) {
    throw std::invalid_argument("there must be rows and draft tokens for each state");
  }
  const auto num_rows = static_cast<int64_t>(logits.shape(0));
  std::vector<DraftedRows> rows;
  for (size_t i = 0; i < states.size(); ++i) {
    if (first_rows[i] < 0 || first_rows[i] + std::ssize(drafts[i]) >= num_rows) {
      throw std::invalid_argument("the rows of a state are not all there");
    }
    rows.push_back({first_rows[i], drafts[i]});
  }
  std::vector<std::vector<SampledRow>> runs(states.size());
  {
    nb::gil_scoped_release release;
    sampler.sample_runs(logits.data(), rows, states, runs);
  }
  nb::list found;
  for (const std::vector<SampledRow>& run : runs) {
    nb::list tokens;
    for (const SampledRow& row : run) {
      tokens.append(nb::make_tuple(row.token, static_cast<int>(row.status), logprobs_of(row)));
    }
    found.append(tokens);
  }
  return found;
}

int distribution(Sampler& sampler, Logits logits, SamplingState& state, Doubles probs) {
  if (static_cast<int64_t>(logits.size()) != state.vocab_size() || probs.size() != logits.size()) {
    throw std::invalid_argument("logits and probs must be [1, vocab_size]");
  }
  nb::gil_scoped_release release;
  return static_cast<int>(sampler.distribution(logits.data(), state, probs.data()));
}

nb::list logprobs(Sampler& sampler, Logits logits, Ints tokens, int num_top) {
  const auto vocab_size = static_cast<int64_t>(logits.shape(1));
  if (tokens.size() != logits.shape(0)) {
    throw std::invalid_argument("there must be one token for each row of logits");
  }
  for (const int32_t token : ints(tokens)) {
    if (token < 0 || token >= vocab_size) throw std::invalid_argument("a token is unknown");
  }
  std::vector<SampledRow> rows(tokens.size());
  {
    nb::gil_scoped_release release;
    sampler.logprobs(logits.data(), vocab_size, ints(tokens), num_top, rows);
  }
  nb::list found;
  for (const SampledRow& row : rows) found.append(as_tuple(row));
  return found;
}

}  // namespace

void bind_sampling(nb::module_& m) {
  nb::class_<SamplingState>(m, "SamplingState")
      .def(
          "__init__",
          [](SamplingState* self, const nb::dict& settings, int64_t vocab_size, Ints prompt) {
            new (self) SamplingState(make_sampling_config(settings), vocab_size, ints(prompt));
          },
          nb::arg("settings"), nb::arg("vocab_size"), nb::arg("prompt"))
      .def_prop_ro("num_tokens", &SamplingState::num_tokens)
      .def_prop_ro("vocab_size", &SamplingState::vocab_size)
      .def("push", &SamplingState::push, nb::arg("token"))
      .def("pop", &SamplingState::pop)
      .def(
          "allow_next", [](SamplingState& self, Ints tokens) { self.allow_next(ints(tokens)); },
          nb::arg("tokens"))
      .def(
          "mask_next",
          [](SamplingState& self, Masks masks) {
            self.mask_next({masks.data(), masks.size()}, masks.shape(1));
          },
          nb::arg("masks"));

  nb::class_<Sampler>(m, "Sampler")
      .def("sample", sample, nb::arg("logits"), nb::arg("states"))
      .def("sample_runs", sample_runs, nb::arg("logits"), nb::arg("first_rows"), nb::arg("drafts"),
           nb::arg("states"))
      .def("distribution", distribution, nb::arg("logits"), nb::arg("state"), nb::arg("probs"))
      .def("logprobs", logprobs, nb::arg("logits"), nb::arg("tokens"), nb::arg("num_top"));
  nb::class_<PooledSampler, Sampler>(m, "PooledSampler")
      .def(nb::init<const std::string&, int>(), nb::arg("isa"), nb::arg("num_threads"));
}

}  // namespace paredown
