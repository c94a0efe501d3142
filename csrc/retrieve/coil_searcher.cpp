#include "retrieve/coil_searcher.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

namespace paredown {
namespace {

// As many sums of document scores at a time as stay in the L2 cache.
constexpr int64_t kWaitingSums = int64_t{1} << 18;
// Tokens of the queries that are searched together, beyond those of one: each list that they ask
// for has buffers of its own.
constexpr int64_t kMostTokens = 2048;
// Work items for each thread at least, as long as there are enough documents.
constexpr int64_t kItemsOfThread = 4;

void check_lists(const PostingLists& lists, int64_t num_documents) {
  const std::span<const int64_t> offsets = lists.offsets;
  const auto end = static_cast<int64_t>(lists.documents.size());
  if (end != lists.vectors.shape.num_vectors) {
    throw std::invalid_argument("each posting has a vector and a document");
  }
  bool rises = offsets.size() >= 2 && offsets.front() == 0 && offsets.back() == end;
  for (size_t i = 1; i < offsets.size() && rises; ++i) rises = offsets[i - 1] < offsets[i];
  if (!rises) throw std::invalid_argument("its lists do not lead from 0 to the last posting");
  for (size_t i = 1; i < offsets.size(); ++i) {
    const uint32_t* document = lists.documents.data() + offsets[i - 1];
    const uint32_t* last = lists.documents.data() + offsets[i] - 1;
    bool falls = false;
    for (; document < last; ++document) falls |= document[0] > document[1];
    if (falls || *last >= num_documents) {
      throw std::invalid_argument("a list has documents that fall or that there are none of");
    }
  }
}

Range next_batch(const CoilQueries& queries, int64_t begin, int64_t most) {
  const auto offset = [&](int64_t query) { return queries.offsets[static_cast<size_t>(query)]; };
  const int64_t last = std::min(begin + most, static_cast<int64_t>(queries.offsets.size()) - 1);
  int64_t end = begin + 1;
  while (end < last && offset(end + 1) - offset(begin) <= kMostTokens) ++end;
  return {begin, end};
}

}  // namespace

// A list that some queries ask for: the queries, and the vectors of their tokens.
struct CoilSearcher::Asked {
  int64_t list;
  std::vector<int64_t> queries;
  QueryRows rows;
};

struct CoilSearcher::Batch {
  int64_t num_queries;
  std::vector<Asked> asked;  // the lists in ascending order
  std::optional<QueryRows> cls;

  // The most rows of queries that meet vectors together.
  int64_t most_rows() const {
    int64_t most = cls ? num_queries : 1;
    for (const Asked& one : asked) most = std::max(most, one.rows.num_rows());
    return most;
  }
};

// The summed scores of a batch's queries for some documents, [query][stride].
struct CoilSearcher::Sums {
  int64_t stride;
  std::vector<float> values;

  Sums(int64_t num_queries, int64_t num_documents)
      : stride(num_documents), values(static_cast<size_t>(num_queries * num_documents)) {}

  float* row(int64_t query) { return values.data() + query * stride; }
};

CoilSearcher::CoilSearcher(Isa isa, int num_threads, const PostingLists& lists,
                           int64_t num_documents, const std::optional<StoredVectors>& cls)
    : kernels_(kernel_table(isa)),
      pool_(num_threads),
      vectors_(kernels_, lists.vectors),
      offsets_(lists.offsets.begin(), lists.offsets.end()),
      documents_(lists.documents),
      num_documents_(num_documents) {
  if (num_documents < 1 || num_documents > kMaxVectors) {
    throw std::invalid_argument("there are 1 to 2^32 documents");
  }
  check_lists(lists, num_documents);
  if (!cls) return;
  if (cls->shape.num_vectors != num_documents) {
    throw std::invalid_argument("each document has a vector of CLS, or none has");
  }
  cls_.emplace(kernels_, *cls);
}

void CoilSearcher::check(const CoilQueries& queries) const {
  const auto num_lists = static_cast<int64_t>(offsets_.size()) - 1;
  const auto num_tokens = static_cast<int64_t>(queries.lists.size());
  bool fits = !queries.offsets.empty() && queries.offsets.front() == 0 &&
              queries.offsets.back() == num_tokens;
  for (size_t i = 1; i < queries.offsets.size() && fits; ++i) {
    fits = queries.offsets[i - 1] <= queries.offsets[i];
  }
  for (const int64_t list : queries.lists) fits = fits && list >= 0 && list < num_lists;
  if (!fits || (queries.cls != nullptr) != cls_.has_value()) {
    throw std::invalid_argument("queries have tokens of the lists, and CLS where documents do");
  }
}

CoilSearcher::Batch CoilSearcher::batch_of(const CoilQueries& queries, Range some) const {
  struct Token {
    int64_t list;
    int64_t query;
    int64_t row;
  };
  std::vector<Token> tokens;
  for (int64_t query = some.begin; query < some.end; ++query) {
    const auto index = static_cast<size_t>(query);
    for (int64_t row = queries.offsets[index]; row < queries.offsets[index + 1]; ++row) {
      tokens.push_back({queries.lists[static_cast<size_t>(row)], query - some.begin, row});
    }
  }
  std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) {
    return a.list != b.list ? a.list < b.list : a.row < b.row;
  });
  Batch batch{some.end - some.begin, {}, {}};
  std::vector<float> rows;
  const int64_t num_dims = shape().num_dims;
  for (size_t i = 0; i < tokens.size();) {
    const int64_t list = tokens[i].list;
    std::vector<int64_t> asking;
    rows.clear();
    for (; i < tokens.size() && tokens[i].list == list && asking.size() < kMostQueries; ++i) {
      asking.push_back(tokens[i].query);
      const float* vector = queries.tokens + tokens[i].row * num_dims;
      rows.insert(rows.end(), vector, vector + num_dims);
    }
    const auto num_rows = static_cast<int64_t>(asking.size());
    batch.asked.push_back({list, std::move(asking), vectors_.rows_of(rows.data(), num_rows)});
  }
  if (cls_) {
    const float* first = queries.cls + some.begin * cls_->shape().num_dims;
    batch.cls.emplace(cls_->rows_of(first, batch.num_queries));
  }
  return batch;
}

Hits CoilSearcher::top(const CoilQueries& queries, int64_t most) {
  check(queries);
  Hits hits;
  most = std::min(most, num_documents_);
  const int64_t at_once = queries_at_once(most);
  const auto num_queries = static_cast<int64_t>(queries.offsets.size()) - 1;
  for (int64_t begin = 0; begin < num_queries;) {
    const Batch batch = batch_of(queries, next_batch(queries, begin, at_once));
    const int num_shares = pool_.num_threads();
    const int64_t fair = divide_up(num_documents_, kItemsOfThread * num_shares);
    const int64_t size = round_up(std::min(fair, kWaitingSums / batch.num_queries), kVectorUnit);
    KeptHits kept(num_shares, batch.num_queries, most);
    const std::vector<Scores>& scores = scores_.of(num_shares, batch.most_rows());
    std::vector<Sums> sums(static_cast<size_t>(num_shares), Sums(batch.num_queries, size));
    pool_.run_items(divide_up(num_documents_, size), [&](int share, const Range& items) {
      const auto index = static_cast<size_t>(share);
      for (int64_t first = items.begin * size; first < items.end * size; first += size) {
        const Range documents{first, std::min(first + size, num_documents_)};
        add_all(batch, documents, scores[index], sums[index]);
        for (int64_t query = 0; query < batch.num_queries; ++query) {
          keep_best(kernels_, sums[index].row(query), first, documents.end - first,
                    kept.of_share(share)[static_cast<size_t>(query)]);
        }
      }
    });
    kept.move_to(hits);
    begin += batch.num_queries;
  }
  return hits;
}

void CoilSearcher::add_all(const Batch& batch, Range documents, const Scores& scores,
                           Sums& sums) const {
  std::fill(sums.values.begin(), sums.values.end(), 0.0f);
  if (batch.cls) add_cls(batch, documents, scores, sums);
  for (const Asked& asked : batch.asked) add_list(asked, documents, scores, sums);
}

void CoilSearcher::add_cls(const Batch& batch, Range documents, const Scores& scores,
                           Sums& sums) const {
  for (int64_t first = documents.begin; first < documents.end; first += scores.num_rows) {
    const int64_t end = std::min(first + scores.num_rows, documents.end);
    cls_->score(*batch.cls, {first, round_up(end, kVectorUnit)}, scores);
    for (int64_t query = 0; query < batch.num_queries; ++query) {
      std::copy_n(scores.row(query), end - first, sums.row(query) + first - documents.begin);
    }
  }
}

void CoilSearcher::add_list(const Asked& asked, Range documents, const Scores& scores,
                            Sums& sums) const {
  const uint32_t* all = documents_.data();
  const auto list = static_cast<size_t>(asked.list);
  const auto place_of = [&](int64_t document) {
    return std::lower_bound(all + offsets_[list], all + offsets_[list + 1], document) - all;
  };
  const int64_t begin = place_of(documents.begin);
  const int64_t end = place_of(documents.end);
  // The largest score of each query vector among the places of the current document.
  std::array<float, kMostQueries> largest;
  largest.fill(-INFINITY);
  for (int64_t first = begin / kVectorUnit * kVectorUnit; first < end; first += scores.num_rows) {
    const int64_t last = std::min(first + scores.num_rows, end);
    vectors_.score(asked.rows, {first, round_up(last, kVectorUnit)}, scores);
    for (size_t i = 0; i < asked.queries.size(); ++i) {
      const float* row = scores.row(static_cast<int64_t>(i));
      float* of_query = sums.row(asked.queries[i]);
      float most = largest[i];
      for (int64_t place = std::max(first, begin); place < last; ++place) {
        most = std::max(most, row[place - first]);
        const int64_t document = all[place];
        if (place + 1 < end && all[place + 1] == document) continue;
        // The file is mapped: what it says now may not be what was checked.
        if (document >= documents.begin && document < documents.end) {
          of_query[document - documents.begin] += most;
        }
        most = -INFINITY;
      }
      largest[i] = most;
    }
  }
}

}  // namespace paredown
