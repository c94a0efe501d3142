#include "retrieve/searcher.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "retrieve/row_largest.h"

namespace paredown {
namespace {

constexpr int64_t kCacheLine = 64;
// Scores that wait to be looked at stay in the second cache. Many rows at once are a long run
// through memory, few leave room for many queries.
constexpr int64_t kWaitingScores = int64_t{1} << 16;
constexpr int64_t kMostRows = 4096;
// Queries that read the vectors together: beyond it the products bound the search, not memory.
constexpr int64_t kMostQueries = 64;
// Hits of a share that are kept at a time.
constexpr int64_t kMostKept = int64_t{1} << 20;
// Tokens of documents that are one item of work.
constexpr int64_t kItemTokens = 8192;

// One for each share of a job, and each query.
using Kept = std::vector<std::vector<TopHits>>;

Kept none_kept(int num_shares, int64_t num_queries, int64_t most) {
  Kept kept(static_cast<size_t>(num_shares));
  for (std::vector<TopHits>& of_share : kept) {
    for (int64_t query = 0; query < num_queries; ++query) of_share.emplace_back(most);
  }
  return kept;
}

// Queries that may read the vectors together.
int64_t queries_at_once(int64_t most) {
  return std::clamp<int64_t>(kMostKept / std::max<int64_t>(most, 1), 1, kMostQueries);
}

void merge(Kept& kept, Hits& hits) {
  for (size_t query = 0; query < kept.front().size(); ++query) {
    TopHits& best = kept.front()[query];
    for (size_t share = 1; share < kept.size(); ++share) {
      for (const Hit& hit : kept[share][query].hits()) best.offer(hit);
    }
    hits.push_back(std::move(best).sorted());
  }
}

void check_offsets(std::span<const int64_t> offsets, int64_t end) {
  bool fits = offsets.front() == 0 && offsets.back() == end;
  for (size_t i = 1; i < offsets.size() && fits; ++i) fits = offsets[i - 1] < offsets[i];
  if (!fits) throw std::invalid_argument("offsets rise from 0 to the number of vectors");
}

}  // namespace

// Of one share: what queries come to with some rows, [query][stride], and what kernels work in.
struct Searcher::Scores {
  int64_t num_rows = 0;
  int64_t stride = 0;
  AlignedBuffer values;
  AlignedBuffer scratch;

  Scores() = default;
  Scores(int64_t num_queries, int64_t rows)
      : num_rows(rows),
        stride(rows + kCacheLine / 4),
        values(num_queries * stride * 4),
        scratch(linear_scratch_bytes(num_queries)) {}

  const float* row(int64_t query) const { return values.as<float>() + query * stride; }
};

Searcher::Searcher(Isa isa, int num_threads, const VectorShape& shape,
                   std::span<const uint8_t> values, std::span<const float> scales,
                   std::span<const int64_t> offsets)
    : kernels_(kernel_table(isa)),
      pool_(num_threads),
      shape_(shape),
      offsets_(offsets.begin(), offsets.end()) {
  check_vectors(shape);
  if (static_cast<int64_t>(values.size()) != shape.num_bytes() ||
      static_cast<int64_t>(scales.size()) != shape.num_scales() ||
      reinterpret_cast<uintptr_t>(values.data()) % kCacheLine != 0) {
    throw std::invalid_argument("the bytes of the vectors do not fit their shape");
  }
  view_ = view_of(shape, values.data(), scales.data());
  if (offsets_.empty()) return;
  check_offsets(offsets_, shape.num_vectors);
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

Searcher::~Searcher() = default;

const std::vector<Searcher::Scores>& Searcher::scores_for(int64_t num_queries) {
  if (num_queries == num_queries_) return scores_;
  const int64_t fitting = kWaitingScores / num_queries / kVectorUnit * kVectorUnit;
  const int64_t num_rows = std::clamp(fitting, kVectorUnit, kMostRows);
  num_queries_ = 0;  // until all is there
  scores_.clear();
  for (int i = 0; i < pool_.num_threads(); ++i) scores_.emplace_back(num_queries, num_rows);
  num_queries_ = num_queries;
  return scores_;
}

void Searcher::score(const QueryRows& queries, Range rows, const Scores& scores) const {
  LinearView part = view_;
  const int64_t panel = rows.begin / kLanes;
  part.num_rows = rows.end - rows.begin;
  part.values = static_cast<const uint8_t*>(view_.values) + panel * shape_.panel_bytes();
  if (view_.scales != nullptr) part.scales = static_cast<const float*>(view_.scales) + rows.begin;
  const OutputRows output{scores.values.as<float>(), scores.stride, false, false, false,
                          Activation::kSilu};
  kernels_.linear(part, queries.input(), output, queries.num_rows(), 0, part.num_rows / kLanes,
                  scores.scratch.get());
}

namespace {

// Offers `count` scores of vectors from number `first` on. Most blocks have none that is kept.
void keep_best(const KernelTable& kernels, const float* scores, int64_t first, int64_t count,
               TopHits& kept) {
  float maxima[kMostRows / kTokenBlock];
  kernels.block_maxima_floats(scores, count, maxima);
  for (int64_t begin = 0; begin < count; begin += kTokenBlock) {
    if (!kept.may_keep(maxima[begin / kTokenBlock])) continue;
    for (int64_t i = begin; i < std::min(begin + kTokenBlock, count); ++i) {
      if (kept.may_keep(scores[i])) kept.offer({scores[i], first + i});
    }
  }
}

}  // namespace

Hits Searcher::top(const float* queries, int64_t num_queries, int64_t most) {
  Hits hits;
  most = std::min(most, shape_.num_vectors);
  const int64_t at_once = queries_at_once(most);
  for (int64_t begin = 0; begin < num_queries; begin += at_once) {
    const int64_t count = std::min(at_once, num_queries - begin);
    const QueryRows rows(kernels_, view_, queries + begin * shape_.num_dims, count,
                         shape_.num_dims);
    Kept kept = none_kept(pool_.num_threads(), count, most);
    const std::vector<Scores>& scores = scores_for(count);
    const int64_t size = scores.front().num_rows;
    pool_.run_items(divide_up(shape_.num_vectors, size), [&](int share, const Range& items) {
      const Scores& own = scores[static_cast<size_t>(share)];
      for (int64_t first = items.begin * size; first < items.end * size; first += size) {
        const int64_t end = std::min(first + size, shape_.num_rows());
        score(rows, {first, end}, own);
        const int64_t num_real = std::min(end, shape_.num_vectors) - first;
        for (int64_t query = 0; query < count && num_real > 0; ++query) {
          keep_best(kernels_, own.row(query), first, num_real,
                    kept[static_cast<size_t>(share)][static_cast<size_t>(query)]);
        }
      }
    });
    merge(kept, hits);
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
    const QueryRows rows(kernels_, view_, tokens + own.front() * shape_.num_dims, num_tokens,
                         shape_.num_dims);
    Kept kept = none_kept(pool_.num_threads(), static_cast<int64_t>(own.size()) - 1, most);
    const std::vector<Scores>& scores = scores_for(num_tokens);
    std::vector<MaxSims> max_sims(static_cast<size_t>(pool_.num_threads()), MaxSims(own));
    pool_.run_items(static_cast<int64_t>(items_.size()) - 1, [&](int share, const Range& items) {
      const auto index = static_cast<size_t>(share);
      const Range documents{items_[static_cast<size_t>(items.begin)],
                            items_[static_cast<size_t>(items.end)]};
      meet(rows, documents, scores[index], max_sims[index], kept[index]);
    });
    merge(kept, hits);
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
    score(queries, {first, end}, scores);
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
