#include "retrieve/searcher.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "retrieve/row_largest.h"

namespace paredown {
namespace {

// Tokens of documents that are one item of work.
constexpr int64_t kItemTokens = 8192;

void check_offsets(std::span<const int64_t> offsets, int64_t end) {
  bool fits = offsets.front() == 0 && offsets.back() == end;
  for (size_t i = 1; i < offsets.size() && fits; ++i) fits = offsets[i - 1] < offsets[i];
  if (!fits) throw std::invalid_argument("offsets rise from 0 to the number of vectors");
}

}  // namespace

Searcher::Searcher(Isa isa, int num_threads, const StoredVectors& stored,
                   std::span<const int64_t> offsets)
    : kernels_(kernel_table(isa)),
      pool_(num_threads),
      vectors_(kernels_, stored),
      offsets_(offsets.begin(), offsets.end()) {
  if (offsets_.empty()) return;
  check_offsets(offsets_, shape().num_vectors);
  plan_items();
}

void Searcher::plan_items() {
  for (int64_t document = 0; document < num_documents();) {
    items_.push_back(document);
    const int64_t end = offsets_[static_cast<size_t>(document)] + kItemTokens;
    const auto next = std::lower_bound(offsets_.begin() + document + 1, offsets_.end() - 1, end);
    document = next - offsets_.begin();
  }
  items_.push_back(num_documents());
}

Hits Searcher::top(const float* queries, int64_t num_queries, int64_t most) {
  Hits hits;
  most = std::min(most, shape().num_vectors);
  const int64_t at_once = queries_at_once(most);
  for (int64_t begin = 0; begin < num_queries; begin += at_once) {
    const int64_t count = std::min(at_once, num_queries - begin);
    const QueryRows rows = vectors_.rows_of(queries + begin * shape().num_dims, count);
    KeptHits kept(pool_.num_threads(), count, most);
    const std::vector<Scores>& scores = scores_.of(pool_.num_threads(), count);
    const int64_t size = scores.front().num_rows;
    pool_.run_items(divide_up(shape().num_vectors, size), [&](int share, const Range& items) {
      const Scores& own = scores[static_cast<size_t>(share)];
      for (int64_t first = items.begin * size; first < items.end * size; first += size) {
        const int64_t end = std::min(first + size, shape().num_rows());
        vectors_.score(rows, {first, end}, own);
        const int64_t num_real = std::min(end, shape().num_vectors) - first;
        for (int64_t query = 0; query < count && num_real > 0; ++query) {
          keep_best(kernels_, own.row(query), first, num_real,
                    kept.of_share(share)[static_cast<size_t>(query)]);
        }
      }
    });
    kept.move_to(hits);
  }
  return hits;
}

// The largest similarities of the tokens of some queries with the document that is at hand.
class Searcher::MaxSims {
 public:
  explicit MaxSims(std::span<const int64_t> query_offsets)
      : ends_(query_offsets.begin() + 1, query_offsets.end()),
        largest_(static_cast<size_t>(query_offsets.back() - query_offsets.front())) {
    for (int64_t& end : ends_) end -= query_offsets.front();
    clear();
  }

  // Takes columns [begin, end) of the scores.
  void add(const Scores& scores, int64_t begin, int64_t end) {
    int64_t token = 0;
    for (float& largest : largest_) {
      largest = row_largest(scores.row(token++) + begin, end - begin, largest);
    }
  }

  // The document's score for each query, and ready for the next document. A sum does not depend on
  // what other queries there are.
  void finish(int64_t document, std::vector<TopHits>& kept) {
    const float* largest = largest_.data();
    for (size_t query = 0; query < ends_.size(); ++query) {
      const float* end = largest_.data() + ends_[query];
      float sums[4] = {};
      for (int chain = 0; largest < end; ++largest, ++chain) sums[chain % 4] += *largest;
      const float score = (sums[0] + sums[2]) + (sums[1] + sums[3]);
      if (kept[query].may_keep(score)) kept[query].offer({score, document});
    }
    clear();
  }

 private:
  void clear() { std::fill(largest_.begin(), largest_.end(), -INFINITY); }

  std::vector<int64_t> ends_;   // of each query's tokens
  std::vector<float> largest_;  // for each token
};

Hits Searcher::top_max_sim(const float* tokens, std::span<const int64_t> query_offsets,
                           int64_t most) {
  check_offsets(query_offsets, query_offsets.back());
  if (offsets_.empty()) throw std::invalid_argument("the vectors are no tokens of documents");
  Hits hits;
  most = std::min(most, num_documents());
  const auto at_once = static_cast<size_t>(queries_at_once(most));
  const size_t num_queries = query_offsets.size() - 1;
  for (size_t first = 0; first < num_queries;) {
    // As many as have few tokens together, or one.
    size_t end = first + 1;
    while (end < std::min(first + at_once, num_queries) &&
           query_offsets[end + 1] - query_offsets[first] <= kMostQueries) {
      ++end;
    }
    const auto own = query_offsets.subspan(first, end - first + 1);
    const int64_t num_tokens = own.back() - own.front();
    const QueryRows rows = vectors_.rows_of(tokens + own.front() * shape().num_dims, num_tokens);
    KeptHits kept(pool_.num_threads(), static_cast<int64_t>(own.size()) - 1, most);
    const std::vector<Scores>& scores = scores_.of(pool_.num_threads(), num_tokens);
    std::vector<MaxSims> max_sims(static_cast<size_t>(pool_.num_threads()), MaxSims(own));
    pool_.run_items(static_cast<int64_t>(items_.size()) - 1, [&](int share, const Range& items) {
      const auto index = static_cast<size_t>(share);
      const Range documents{items_[static_cast<size_t>(items.begin)],
                            items_[static_cast<size_t>(items.end)]};
      meet(rows, documents, scores[index], max_sims[index], kept.of_share(share));
    });
    kept.move_to(hits);
    first = end;
  }
  return hits;
}

void Searcher::meet(const QueryRows& queries, Range documents, const Scores& scores,
                    MaxSims& max_sims, std::vector<TopHits>& kept) const {
  const auto offset = [&](int64_t document) { return offsets_[static_cast<size_t>(document)]; };
  const int64_t last = round_up(offset(documents.end), kVectorUnit);
  int64_t document = documents.begin;
  for (int64_t first = offset(document) / kVectorUnit * kVectorUnit; document < documents.end;
       first += scores.num_rows) {
    const int64_t end = std::min(first + scores.num_rows, last);
    vectors_.score(queries, {first, end}, scores);
    for (; document < documents.end && offset(document) < end; ++document) {
      const int64_t document_end = offset(document + 1);
      max_sims.add(scores, std::max(offset(document), first) - first,
                   std::min(document_end, end) - first);
      if (document_end > end) break;  // the rest of it comes with the next rows
      max_sims.finish(document, kept);
    }
  }
}

}  // namespace paredown
