#include <cmath>
#include <cstdio>

#include "check/checks.h"
#include "check/random.h"
#include "machine/aligned_buffer.h"
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

  std::span<const uint8_t> bytes() const {
    return {values.as<uint8_t>(), static_cast<size_t>(shape.num_bytes())};
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
  Searcher search(isa, 1, shape, packed.bytes(), packed.scales, {});
  const Hits hits = search.top(queries.data(), num_queries, shape.num_vectors);
  const float bound = kTolerance * static_cast<float>(shape.num_dims);
  const bool is_right = agrees(hits, shape.num_vectors, bound, [&](size_t query, int64_t number) {
    return product(queries.data() + static_cast<int64_t>(query) * shape.num_dims,
                   packed.kept.data() + number * shape.num_dims, shape.num_dims);
  });
  // Few of them, on more threads, one query alone.
  Searcher other(isa, 3, shape, packed.bytes(), packed.scales, {});
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
  Searcher search(isa, 1, shape, packed.bytes(), packed.scales, offsets);
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
  Searcher other(isa, 2, shape, packed.bytes(), packed.scales, offsets);
  return is_right && are_same(other.top_max_sim(tokens.data(), query_offsets, num_documents), hits);
}

}  // namespace

void check_retrieve(Outcome& outcome) {
  for (Isa isa : supported_isas()) {
    Random random(23);
    for (WeightKind kind : kKinds) {
      for (int round = 0; round < 8; ++round) {
        const bool passed = finds_the_best(isa, kind, random) && finds_max_sims(isa, kind, random);
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
