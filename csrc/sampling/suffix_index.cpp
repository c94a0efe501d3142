#include "sampling/suffix_index.h"

#include <algorithm>
#include <stdexcept>

namespace paredown {
namespace {

// SplitMix64's finalizer (Steele, Lea and Flood, 2014).
uint64_t mixed(uint64_t bits) {
  bits += 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return bits ^ bits >> 31;
}

// How many tokens before this position are those at the end of `tail`.
int64_t match_length(std::span<const int32_t> tail, const std::vector<int32_t>& token_ids,
                     int64_t position) {
  const int64_t size = static_cast<int64_t>(tail.size());
  const int64_t limit = std::min(size, position);
  int64_t length = 0;
  while (length < limit && tail[size - 1 - length] == token_ids[position - 1 - length]) ++length;
  return length;
}

// A token, and the places after which it came.
using Vote = std::pair<int32_t, std::vector<SuffixIndex::Place>>;

}  // namespace

SuffixIndex::SuffixIndex(int min_match, int max_match, int max_places)
    : min_match_(min_match), max_match_(max_match), max_places_(max_places) {
  if (min_match < 1 || max_match < min_match || max_places < 1) {
    throw std::invalid_argument("an index takes 1 <= min_match <= max_match and 1 <= max_places");
  }
}

int64_t SuffixIndex::num_tokens(int64_t sequence) const {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? 0 : static_cast<int64_t>(found->second.size());
}

void SuffixIndex::extend(int64_t sequence, std::span<const int32_t> token_ids) {
  std::vector<int32_t>& known = sequences_[sequence];
  const int64_t start = std::max<int64_t>(static_cast<int64_t>(known.size()), min_match_);
  known.insert(known.end(), token_ids.begin(), token_ids.end());
  const int64_t end = static_cast<int64_t>(known.size());
  for (int64_t position = start; position < end; ++position) {
    std::vector<Place>& places = places_[hash(known.data() + position - min_match_)];
    if (static_cast<int>(places.size()) == max_places_) places.erase(places.begin());
    places.emplace_back(sequence, position);
  }
}

void SuffixIndex::remove(int64_t sequence) {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) throw std::out_of_range("no sequence has this number");
  const std::vector<int32_t>& token_ids = found->second;
  const int64_t end = static_cast<int64_t>(token_ids.size());
  for (int64_t position = min_match_; position < end; ++position) {
    const auto run = places_.find(hash(token_ids.data() + position - min_match_));
    if (run == places_.end()) continue;  // all its places were this sequence's
    std::erase_if(run->second, [&](const Place& place) { return place.first == sequence; });
    if (run->second.empty()) places_.erase(run);
  }
  sequences_.erase(found);
}

std::optional<SuffixIndex::Match> SuffixIndex::find(std::span<const int32_t> tail) const {
  const auto last = [](std::span<const int32_t> span, std::size_t size) {
    return span.last(std::min(size, span.size()));
  };
  std::optional<Match> match = longest(last(tail, max_match_), nullptr);
  if (match || tail.empty()) return match;
  const std::span<const int32_t> before = last(tail.first(tail.size() - 1), max_match_);
  match = longest(before, &tail.back());
  if (!match || match->length < kMinBeforeChange) return std::nullopt;
  for (Place& place : match->places) ++place.second;
  return match;
}

std::vector<int32_t> SuffixIndex::continue_from(const Match& match, int64_t max_tokens,
                                                std::optional<int64_t> own) const {
  std::vector<int32_t> draft;
  std::vector<Place> places = match.places;
  while (static_cast<int64_t>(draft.size()) < max_tokens) {
    const int64_t num_drafted = static_cast<int64_t>(draft.size());
    std::vector<Vote> votes;
    for (const Place& place : places) {
      const auto sequence = sequences_.find(place.first);
      if (sequence == sequences_.end()) continue;
      const int64_t size = static_cast<int64_t>(sequence->second.size());
      const int64_t index = place.second + num_drafted;
      if (index >= size && (place.first != own || index - size >= num_drafted)) continue;
      const int32_t token_id = index < size ? sequence->second[index] : draft[index - size];
      const auto vote = std::find_if(votes.begin(), votes.end(),
                                     [&](const Vote& one) { return one.first == token_id; });
      if (vote == votes.end()) {
        votes.push_back({token_id, {place}});
      } else {
        vote->second.push_back(place);
      }
    }
    if (votes.empty()) break;
    // Of equally many the first, which has the latest place.
    Vote& most = *std::max_element(votes.begin(), votes.end(), [](const Vote& a, const Vote& b) {
      return a.second.size() < b.second.size();
    });
    draft.push_back(most.first);
    places = std::move(most.second);
  }
  return draft;
}

uint64_t SuffixIndex::hash(const int32_t* run) const {
  uint64_t bits = 0;
  for (int i = 0; i < min_match_; ++i) bits = mixed(bits ^ static_cast<uint32_t>(run[i]));
  return bits;
}

std::optional<SuffixIndex::Match> SuffixIndex::longest(std::span<const int32_t> tail,
                                                       const int32_t* changed) const {
  if (static_cast<int>(tail.size()) < min_match_) return std::nullopt;
  const auto run = places_.find(hash(tail.data() + tail.size() - min_match_));
  if (run == places_.end()) return std::nullopt;
  Match best{0, {}};
  for (auto place = run->second.rbegin(); place != run->second.rend(); ++place) {
    const std::vector<int32_t>& token_ids = sequences_.at(place->first);
    if (changed != nullptr && token_ids[place->second] == *changed) continue;
    const int64_t length = match_length(tail, token_ids, place->second);
    // Shorter than a run: another of the same hash.
    if (length < min_match_ || length < best.length) continue;
    if (length > best.length) best = {length, {}};
    best.places.push_back(*place);
  }
  if (best.places.empty()) return std::nullopt;
  return best;
}

}  // namespace paredown
