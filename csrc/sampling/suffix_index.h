// Where the last tokens of a text have stood before, and what came next there.
//
// The hash chains of LZ77 (Ziv and Lempel, 1977) over tokens. Each run of `min_match` tokens keeps
// its latest `max_places` places; a search looks at those only and compares backwards from there. A
// token costs O(1) to add and a search O(max_places * max_match), however long the text is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace paredown {

class SuffixIndex {
 public:
  static constexpr int kMaxMatch = 32;
  static constexpr int kMaxPlaces = 8;
  // As many tokens before one that was changed say where it was changed.
  static constexpr int kMinBeforeChange = 8;

  // The number of a sequence, and the position in it of the token after a run.
  using Place = std::pair<int64_t, int64_t>;

  // The longest run that was found, and its places, the latest first.
  struct Match {
    int64_t length;
    std::vector<Place> places;
  };

  // Throws std::invalid_argument unless 1 <= min_match <= max_match and 1 <= max_places.
  SuffixIndex(int min_match, int max_match, int max_places);

  // Different runs that have a place.
  int64_t num_runs() const { return static_cast<int64_t>(places_.size()); }
  int64_t num_sequences() const { return static_cast<int64_t>(sequences_.size()); }
  // Of a sequence; 0 where there is none of this number.
  int64_t num_tokens(int64_t sequence) const;
  int max_match() const { return max_match_; }

  // A sequence, new or known, goes on by these tokens. A run at its end counts once there is a
  // token after it.
  void extend(int64_t sequence, std::span<const int32_t> token_ids);

  // Forgets a sequence, with all its places. Throws std::out_of_range where there is none.
  void remove(int64_t sequence);

  // The longest end of `tail`, of `min_match` to `max_match` tokens, among the places kept. Where
  // it is not among them its last token may be a changed one: then the longest of those before it,
  // of kMinBeforeChange or more, and the places behind the other token. Of `tail` no more than the
  // last max_match + 1 tokens count.
  std::optional<Match> find(std::span<const int32_t> tail) const;

  // What came next: at each step the token that most of the places agree on, of equally many the
  // latest; places that went another way are left behind. Of a sequence that is gone nothing came.
  //
  // A place in the sequence `own`, whose end is being drafted, goes on into the draft itself, as an
  // overlapping copy of LZ77 does: a loop is drafted for as long as one likes.
  std::vector<int32_t> continue_from(const Match& match, int64_t max_tokens,
                                     std::optional<int64_t> own) const;

 private:
  uint64_t hash(const int32_t* run) const;
  std::optional<Match> longest(std::span<const int32_t> tail, const int32_t* changed) const;

  int min_match_, max_match_, max_places_;
  std::unordered_map<int64_t, std::vector<int32_t>> sequences_;
  // By the hash of a run, the oldest place first.
  std::unordered_map<uint64_t, std::vector<Place>> places_;
};

}  // namespace paredown
