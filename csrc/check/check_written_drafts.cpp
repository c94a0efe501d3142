#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>

#include "check/checks.h"
#include "check/random_model.h"
#include "model/draft.h"

namespace paredown {
namespace {

// A sequence of which the first tokens are known, and go on with at most num_draft_tokens others.
struct Unwritten {
  Sequence sequence;
  int64_t num_known;
  int32_t num_draft_tokens;
  std::unique_ptr<SamplingState> state;
};

// Some that draw from all tokens, some from a few that the model may not know; the same seed gives
// the same settings.
SamplingConfig random_config(Random& random, int64_t vocab_size) {
  SamplingConfig config;
  config.temperature = below(random, 3) == 0 ? 0.0 : 0.9;
  config.top_k = below(random, 2) * 20;
  config.repetition_penalty = below(random, 2) == 0 ? 1.0 : 1.3;
  config.seed = random();
  if (below(random, 4) == 0) config.allowed_tokens = {0, static_cast<int32_t>(vocab_size - 1)};
  if (below(random, 4) == 0) config.bad_words = {{0}, {5, 7}};
  return config;
}

std::vector<Unwritten> random_drafts(Random& random, int64_t vocab_size) {
  std::vector<Unwritten> drafts;
  for (Sequence& sequence : random_sequences(random)) {
    const auto length = static_cast<int64_t>(sequence.tokens.size());
    const auto num_draft_tokens = static_cast<int32_t>(below(random, std::min<int64_t>(length, 8)));
    const int64_t num_known = length - num_draft_tokens;
    std::vector<int32_t> prompt(sequence.tokens.begin(), sequence.tokens.begin() + num_known);
    for (int32_t& token : prompt) token %= static_cast<int32_t>(vocab_size);
    drafts.push_back(
        {std::move(sequence), num_known, num_draft_tokens,
         std::make_unique<SamplingState>(random_config(random, vocab_size), vocab_size, prompt)});
  }
  return drafts;
}

// The logits after the last of some tokens of one sequence.
std::vector<float> run(Model& model, const Sequence& sequence, int64_t start,
                       const std::vector<int32_t>& tokens) {
  const std::vector<int32_t> starts{static_cast<int32_t>(start)};
  const std::vector<int32_t> lengths{static_cast<int32_t>(tokens.size())};
  const std::vector<int32_t> one{1};
  const std::vector<int32_t> zero{0};
  const std::vector<int32_t> offsets{0, static_cast<int32_t>(sequence.pages.size())};
  std::vector<float> logits(kVocab);
  const StepInput input{tokens, starts, lengths, one, offsets, sequence.pages, zero};
  model.check(input);
  model.step(input, logits.data());
  return logits;
}

std::vector<int32_t> known_tokens(const Unwritten& draft, int64_t first) {
  const auto begin = draft.sequence.tokens.begin();
  return {begin + first, begin + draft.num_known};
}

// A step and a draw for each token, of one sequence alone.
std::vector<int32_t> write_alone(Model& model, const Unwritten& draft) {
  std::vector<int32_t> written;
  std::vector<int32_t> next = known_tokens(draft, 0);
  int64_t start = 0;
  const auto num_draft_tokens = static_cast<size_t>(draft.num_draft_tokens);
  do {
    std::vector<float> logits = run(model, draft.sequence, start, next);
    if (written.size() == num_draft_tokens) break;
    logits.resize(static_cast<size_t>(draft.state->vocab_size()),
                  -std::numeric_limits<float>::infinity());
    SamplingState* states[] = {draft.state.get()};
    SampledRow rows[1];
    model.sampler().sample(logits.data(), states, rows);
    if (rows[0].status != RowStatus::kOk) break;
    start += static_cast<int64_t>(next.size());
    next = {rows[0].token};
    written.push_back(rows[0].token);
  } while (written.size() < num_draft_tokens);
  for (size_t i = 0; i < written.size(); ++i) draft.state->pop();
  return written;
}

// All in one call, each from a place of its own on: what is before that was computed earlier.
std::vector<std::vector<int32_t>> write_together(Model& model, Random& random,
                                                 const std::vector<Unwritten>& drafts) {
  std::vector<int32_t> tokens, starts, lengths, num_logits, offsets{0}, pages, num_draft_tokens;
  std::vector<SamplingState*> states;
  for (const Unwritten& draft : drafts) {
    const int64_t start = below(random, draft.num_known);
    const auto begin = draft.sequence.tokens.begin();
    if (start > 0) run(model, draft.sequence, 0, {begin, begin + start});
    tokens.insert(tokens.end(), begin + start, begin + draft.num_known);
    starts.push_back(static_cast<int32_t>(start));
    lengths.push_back(static_cast<int32_t>(draft.num_known - start));
    num_logits.push_back(draft.num_draft_tokens > 0);
    pages.insert(pages.end(), draft.sequence.pages.begin(), draft.sequence.pages.end());
    offsets.push_back(static_cast<int32_t>(pages.size()));
    num_draft_tokens.push_back(draft.num_draft_tokens);
    states.push_back(draft.state.get());
  }
  const std::vector<int32_t> zeros(drafts.size());
  const DraftInput input{
      {tokens, starts, lengths, num_logits, offsets, pages, zeros}, states, num_draft_tokens};
  check_drafts(model, input);
  return write_drafts(model, input);
}

// The drafts are those that are written alone, the states are as they were, and the pages hold all
// tokens but the last: with it, sequences go on with the same bits.
bool same_drafts(const Case& test, uint32_t seed, int64_t vocab_size) {
  Random random(seed);
  Random again(seed);
  const std::unique_ptr<Model> together = random_model(random, test);
  const std::unique_ptr<Model> alone = random_model(again, test);
  const std::vector<Unwritten> drafts = random_drafts(random, vocab_size);
  const std::vector<std::vector<int32_t>> written = write_together(*together, random, drafts);
  for (size_t i = 0; i < drafts.size(); ++i) {
    const Unwritten& draft = drafts[i];
    if (draft.state->num_tokens() != draft.num_known) return false;
    if (written[i] != write_alone(*alone, draft)) return false;
    const std::vector<int32_t> last{written[i].empty() ? known_tokens(draft, 0).back()
                                                       : written[i].back()};
    const int64_t place = draft.num_known + static_cast<int64_t>(written[i].size()) - 1;
    if (run(*together, draft.sequence, place, last) != run(*alone, draft.sequence, place, last)) {
      return false;
    }
  }
  return true;
}

bool refuses_impossible(const Case& test) {
  Random random(24);
  const std::unique_ptr<Model> model = random_model(random, test);
  const std::vector<int32_t> tokens{1, 2}, starts{0, 0}, ones{1, 1}, zeros{0, 0};
  const std::vector<int32_t> offsets{0, 1, 2}, pages{3, 5};
  SamplingState first({}, kVocab, {});
  SamplingState second({}, kVocab, {});
  SamplingState wider({}, kVocab + 1, {});
  const std::vector<SamplingState*> both{&first, &second}, twice{&first, &first},
      different{&first, &wider};
  const std::vector<int32_t> fitting{16, 1}, too_many{17, 1}, negative{-1, 1}, none{0, 1};
  const StepInput step{tokens, starts, ones, ones, offsets, pages, zeros};
  const auto misfit = [&](const DraftInput& input) {
    return is_refused([&] { check_drafts(*model, input); });
  };
  return !misfit({step, both, fitting}) && misfit({step, both, too_many}) &&
         misfit({step, both, negative}) && misfit({step, both, none}) &&
         misfit({step, twice, fitting}) && misfit({step, different, fitting});
}

}  // namespace

void check_written_drafts(Outcome& outcome) {
  for (Isa isa : supported_isas()) {
    for (WeightKind kind : {WeightKind::kBf16, WeightKind::kInt8, WeightKind::kInt4}) {
      for (int64_t vocab_size : {kVocab, kVocab + 9, kVocab - 7}) {
        const Case test{isa,
                        kind,
                        {KvKind::kInt8, false},
                        false,
                        kind == WeightKind::kInt8,
                        kind == WeightKind::kInt4,
                        {KvKind::kBf16, false}};
        for (uint32_t seed = 0; seed < 4; ++seed) {
          const bool passed = same_drafts(test, seed, vocab_size);
          outcome.count(passed);
          if (!passed) {
            std::printf("drafts differ: %s, kind %d, vocabulary of %d, seed %u\n", isa_name(isa),
                        static_cast<int>(kind), static_cast<int>(vocab_size), seed);
          }
        }
      }
    }
  }
  const bool refused = refuses_impossible(
      {Isa::kGeneric, WeightKind::kFp32, {KvKind::kBf16, false}, false, false, false});
  outcome.count(refused);
  if (!refused) std::printf("impossible drafts are not refused, or a possible one is\n");
}

}  // namespace paredown
