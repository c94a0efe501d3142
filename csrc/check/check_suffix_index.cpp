#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "check/checks.h"
#include "check/random.h"
#include "sampling/suffix_index.h"

namespace paredown {
namespace {

using Texts = std::map<int64_t, std::vector<int32_t>>;

// How long the longest end of `tail` is that stands before a token of these texts.
int64_t scan(const Texts& texts, const std::vector<int32_t>& tail, int64_t max_match) {
  int64_t best = 0;
  for (const auto& [number, text] : texts) {
    for (std::size_t position = 1; position < text.size(); ++position) {
      const std::size_t limit =
          std::min({position, tail.size(), static_cast<std::size_t>(max_match)});
      std::size_t length = 0;
      while (length < limit && text[position - 1 - length] == tail[tail.size() - 1 - length]) {
        ++length;
      }
      best = std::max(best, static_cast<int64_t>(length));
    }
  }
  return best;
}

bool is_found_as_by_a_scan(Random& random) {
  const int min_match = 1 + static_cast<int>(below(random, 3));
  const int max_match = min_match + static_cast<int>(below(random, 6));
  SuffixIndex index(min_match, max_match, 1000);
  Texts texts;
  for (int step = 0; step < 60; ++step) {
    const int64_t number = below(random, 4);
    if (below(random, 5) == 0 && texts.contains(number)) {
      index.remove(number);
      texts.erase(number);
      continue;
    }
    std::vector<int32_t> more(static_cast<std::size_t>(below(random, 7)));
    for (int32_t& token : more) token = static_cast<int32_t>(below(random, 3)) - 1;
    index.extend(number, more);
    std::vector<int32_t>& text = texts[number];
    text.insert(text.end(), more.begin(), more.end());
    const int64_t expected = scan(texts, text, max_match);
    const auto match = index.find(text);
    if (expected < min_match) {
      // What stands before a changed token may be found.
      if (match && match->length < SuffixIndex::kMinBeforeChange) return false;
      continue;
    }
    if (!match || match->length != expected) return false;
    const std::size_t max_tokens = static_cast<std::size_t>(1 + below(random, 20));
    const auto draft = index.continue_from(*match, static_cast<int64_t>(max_tokens), number);
    if (draft.empty() || draft.size() > max_tokens) return false;
    // What came after the text that is gone is not known.
    index.remove(number);
    texts.erase(number);
    index.continue_from(*match, static_cast<int64_t>(max_tokens), std::nullopt);
  }
  for (const auto& [number, text] : texts) index.remove(number);
  return index.num_runs() == 0 && index.num_sequences() == 0;
}

}  // namespace

void check_suffix_index(Outcome& outcome) {
  Random random(11);
  for (int round = 0; round < 100; ++round) {
    const bool passed = is_found_as_by_a_scan(random);
    if (!passed) std::printf("suffix index: round %d is not a scan's\n", round);
    outcome.count(passed);
  }
}

}  // namespace paredown
