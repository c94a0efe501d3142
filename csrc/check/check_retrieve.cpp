#include <algorithm>
#include <cmath>
#include <cstdio>

#include "check/checks.h"
#include "check/random.h"
#include "machine/aligned_buffer.h"
#include "retrieve/coil_searcher.h"
#include "retrieve/searcher.h"

namespace paredown {
namespace {

constexpr WeightKind kKinds[] = {WeightKind::kFp32, WeightKind::kBf16, WeightKind::kInt8};
constexpr float kTolerance = 1e-5f;

// Vectors whose bytes end where their memory does.
struct Packed {
  VectorShape shape;
  AlignedBuffer values;
  std::vector<float> scales;
  std::vector<float> kept;  // as products meet them

  Packed(const VectorShape& of, const std::vector<float>& vectors)
      : shape(of),
        values(of.num_bytes()),
        scales(static_cast<size_t>(of.num_scales())),
        kept(vectors.size()) {
    pack_vectors(shape, vectors.data(), values.as<uint8_t>(), scales.data());
    unpack_vectors(shape, values.as<uint8_t>(), scales.data(), kept.data());
  }

  StoredVectors stored() const {
    return {shape, {values.as<uint8_t>(), static_cast<size_t>(shape.num_bytes())}, scales};
  }
};

std::vector<int64_t> random_offsets(Random& random, int64_t num_parts, int64_t most) {
  std::vector<int64_t> offsets{0};
  for (int64_t i = 0; i < num_parts; ++i)
    offsets.push_back(offsets.back() + 1 + below(random, most));
  return offsets;
}

bool are_same(const Hits& a, const Hits& b) {
  if (a.size() != b.size()) return false;
  for (size_t query = 0; query < a.size(); ++query) {
    if (a[query].size() != b[query].size()) return false;
    for (size_t i = 0; i < a[query].size(); ++i) {
      if (a[query][i].number != b[query][i].number || a[query][i].score != b[query][i].score) {
        return false;
      }
    }
  }
  return true;
}

bool are_sorted(const Hits& hits) {
  for (const std::vector<Hit>& row : hits) {
    for (size_t i = 1; i < row.size(); ++i) {
      if (!is_better(row[i - 1], row[i])) return false;
    }
  }
  return true;
}

float product(const float* a, const float* b, int64_t size) {
  double sum = 0.0;
  for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(a[i]) * b[i];
  return static_cast<float>(sum);
}

// Queries are rounded as the vectors are: vectors of the index stay as they are.
std::vector<float> rounded(WeightKind kind, const std::vector<float>& queries, int64_t num_dims) {
  const auto count = static_cast<int64_t>(queries.size()) / num_dims;
  return Packed({kind, count, num_dims}, queries).kept;
}

// The search, and the expected score of a document for a query, with everything that is larger
// than rounding counted as wrong.
template <class Expected>
bool agrees(const Hits& hits, int64_t num_documents, float bound, Expected&& expected) {
  if (!are_sorted(hits)) return false;
  for (size_t query = 0; query < hits.size(); ++query) {
    if (static_cast<int64_t>(hits[query].size()) != num_documents) return false;
    for (const Hit& hit : hits[query]) {
      const float difference = std::fabs(hit.score - expected(query, hit.number));
      if (!(difference <= bound)) return false;
    }
  }
  return true;
}

bool finds_the_best(Isa isa, WeightKind kind, Random& random) {
  const VectorShape shape{kind, 1 + below(random, 300), 1 + below(random, 150)};
  const Packed packed(shape, floats(random, shape.num_vectors * shape.num_dims, 0.0f, 1.0f));
  const int64_t num_queries = 1 + below(random, 70);
  const auto queries =
      rounded(kind, floats(random, num_queries * shape.num_dims, 0.0f, 1.0f), shape.num_dims);
  Searcher search(isa, 1, packed.stored(), {});
  const Hits hits = search.top(queries.data(), num_queries, shape.num_vectors);
  const float bound = kTolerance * static_cast<float>(shape.num_dims);
  const bool is_right = agrees(hits, shape.num_vectors, bound, [&](size_t query, int64_t number) {
    return product(queries.data() + static_cast<int64_t>(query) * shape.num_dims,
                   packed.kept.data() + number * shape.num_dims, shape.num_dims);
  });
  // Few of them, on more threads, one query alone.
  Searcher other(isa, 3, packed.stored(), {});
  const int64_t query = below(random, num_queries);
  const Hits alone = other.top(queries.data() + query * shape.num_dims, 1, 5);
  Hits expected{hits[static_cast<size_t>(query)]};
  if (expected[0].size() > 5) expected[0].resize(5);
  return is_right && are_same(alone, expected);
}

bool finds_max_sims(Isa isa, WeightKind kind, Random& random) {
  const std::vector<int64_t> offsets = random_offsets(random, 1 + below(random, 60), 90);
  const std::vector<int64_t> query_offsets = random_offsets(random, 1 + below(random, 6), 40);
  const VectorShape shape{kind, offsets.back(), 1 + below(random, 80)};
  // All similarities may be negative: padding would be the largest.
  const float centre = below(random, 2) == 0 ? 0.0f : 2.0f;
  const Packed packed(shape, floats(random, shape.num_vectors * shape.num_dims, centre, 1.0f));
  const auto tokens = rounded(
      kind, floats(random, query_offsets.back() * shape.num_dims, -centre, 1.0f), shape.num_dims);
  Searcher search(isa, 1, packed.stored(), offsets);
  const auto num_documents = static_cast<int64_t>(offsets.size()) - 1;
  const Hits hits = search.top_max_sim(tokens.data(), query_offsets, num_documents);
  const float bound = 40.0f * 9.0f * kTolerance * static_cast<float>(shape.num_dims);
  const bool is_right = agrees(hits, num_documents, bound, [&](size_t query, int64_t number) {
    float sum = 0.0f;
    for (int64_t token = query_offsets[query]; token < query_offsets[query + 1]; ++token) {
      float largest = -INFINITY;
      const auto document = static_cast<size_t>(number);
      for (int64_t i = offsets[document]; i < offsets[document + 1]; ++i) {
        largest =
            std::max(largest, product(tokens.data() + token * shape.num_dims,
                                      packed.kept.data() + i * shape.num_dims, shape.num_dims));
      }
      sum += largest;
    }
    return sum;
  });
  Searcher other(isa, 2, packed.stored(), offsets);
  return is_right && are_same(other.top_max_sim(tokens.data(), query_offsets, num_documents), hits);
}

// Lists of random documents, which may have a token several times.
std::vector<uint32_t> random_postings(Random& random, const std::vector<int64_t>& offsets,
                                      int64_t num_documents) {
  std::vector<uint32_t> documents;
  for (size_t list = 1; list < offsets.size(); ++list) {
    const auto begin = static_cast<std::ptrdiff_t>(documents.size());
    for (int64_t i = offsets[list - 1]; i < offsets[list]; ++i) {
      documents.push_back(static_cast<uint32_t>(below(random, num_documents)));
    }
    std::sort(documents.begin() + begin, documents.end());
  }
  return documents;
}

bool finds_exact_matches(Isa isa, WeightKind kind, Random& random) {
  const int64_t num_documents = 1 + below(random, 200);
  const std::vector<int64_t> offsets = random_offsets(random, 1 + below(random, 12), 300);
  const std::vector<uint32_t> documents = random_postings(random, offsets, num_documents);
  const VectorShape shape{kind, offsets.back(), 1 + below(random, 40)};
  // All products may be negative: a document without the token would be better.
  const float centre = below(random, 2) == 0 ? 0.0f : 2.0f;
  const Packed packed(shape, floats(random, shape.num_vectors * shape.num_dims, centre, 1.0f));
  const VectorShape cls_shape{kind, num_documents, 1 + below(random, 40)};
  const Packed cls(cls_shape, floats(random, num_documents * cls_shape.num_dims, 0.0f, 1.0f));
  // Of queries, some without tokens.
  const int64_t num_queries = 1 + below(random, 5);
  std::vector<int64_t> query_offsets{0};
  std::vector<int64_t> lists;
  for (int64_t query = 0; query < num_queries; ++query) {
    for (int64_t left = below(random, 20); left > 0; --left) {
      lists.push_back(below(random, static_cast<int64_t>(offsets.size()) - 1));
    }
    query_offsets.push_back(static_cast<int64_t>(lists.size()));
  }
  const auto num_tokens = static_cast<int64_t>(lists.size());
  auto tokens = floats(random, std::max<int64_t>(num_tokens, 1) * shape.num_dims, -centre, 1.0f);
  tokens = rounded(kind, tokens, shape.num_dims);
  const auto asked = rounded(kind, floats(random, num_queries * cls_shape.num_dims, 0.0f, 1.0f),
                             cls_shape.num_dims);
  const PostingLists postings{packed.stored(), offsets, documents};
  CoilSearcher search(isa, 1, postings, num_documents, cls.stored());
  const CoilQueries queries{tokens.data(), lists, query_offsets, asked.data()};
  const Hits hits = search.top(queries, num_documents);
  const float bound = 20.0f * 9.0f * kTolerance * static_cast<float>(shape.num_dims + 40);
  const bool is_right = agrees(hits, num_documents, bound, [&](size_t query, int64_t number) {
    float sum = product(asked.data() + static_cast<int64_t>(query) * cls_shape.num_dims,
                        cls.kept.data() + number * cls_shape.num_dims, cls_shape.num_dims);
    for (int64_t token = query_offsets[query]; token < query_offsets[query + 1]; ++token) {
      const auto list = static_cast<size_t>(lists[static_cast<size_t>(token)]);
      float largest = -INFINITY;
      for (int64_t i = offsets[list]; i < offsets[list + 1]; ++i) {
        if (documents[static_cast<size_t>(i)] != number) continue;
        largest =
            std::max(largest, product(tokens.data() + token * shape.num_dims,
                                      packed.kept.data() + i * shape.num_dims, shape.num_dims));
      }
      if (largest > -INFINITY) sum += largest;
    }
    return sum;
  });
  // The last query alone, on more threads.
  CoilSearcher other(isa, 2, postings, num_documents, cls.stored());
  const auto last = static_cast<size_t>(num_queries) - 1;
  const std::vector<int64_t> own(lists.begin() + query_offsets[last], lists.end());
  const std::vector<int64_t> own_offsets{0, static_cast<int64_t>(own.size())};
  const Hits alone =
      other.top({tokens.data() + query_offsets[last] * shape.num_dims, own, own_offsets,
                 asked.data() + static_cast<int64_t>(last) * cls_shape.num_dims},
                num_documents);
  return is_right && are_same(alone, {hits[last]});
}

// Lists and queries that would lead out of the memory.
bool refuses_lists_that_lie() {
  const VectorShape shape{WeightKind::kFp32, 3, 4};
  const Packed packed(shape, std::vector<float>(12, 1.0f));
  const std::vector<int64_t> offsets{0, 1, 3};
  const std::vector<uint32_t> documents{1, 0, 1};
  const auto lie = [&](const std::vector<int64_t>& o, const std::vector<uint32_t>& d) {
    return is_refused([&] {
      CoilSearcher(Isa::kGeneric, 1, PostingLists{packed.stored(), o, d}, 2, std::nullopt);
    });
  };
  CoilSearcher search(Isa::kGeneric, 1, PostingLists{packed.stored(), offsets, documents}, 2,
                      std::nullopt);
  const float vector[4] = {};
  const auto is_no_query = [&](const std::vector<int64_t>& lists, const std::vector<int64_t>& o) {
    return is_refused([&] { search.top({vector, lists, o, nullptr}, 1); });
  };
  return lie({0, 1}, documents) && lie({0, 3, 1}, documents) && lie({0, 1, 1, 3}, documents) &&
         lie({1, 3}, documents) && lie({}, documents) && lie(offsets, {1, 0, 2}) &&
         lie(offsets, {1, 1, 0}) && lie(offsets, {1, 0}) && is_no_query({2}, {0, 1}) &&
         is_no_query({-1}, {0, 1}) && is_no_query({0}, {0, 2}) && is_no_query({0}, {}) &&
         !is_no_query({0}, {0, 1});
}

}  // namespace

void check_retrieve(Outcome& outcome) {
  outcome.count(refuses_lists_that_lie());
  for (Isa isa : supported_isas()) {
    Random random(23);
    for (WeightKind kind : kKinds) {
      for (int round = 0; round < 8; ++round) {
        const bool passed = finds_the_best(isa, kind, random) &&
                            finds_max_sims(isa, kind, random) &&
                            finds_exact_matches(isa, kind, random);
        if (!passed) {
          std::printf("retrieve: %s, kind %d, round %d is not a loop's\n", isa_name(isa),
                      static_cast<int>(kind), round);
        }
        outcome.count(passed);
      }
    }
  }
}

}  // namespace paredown
