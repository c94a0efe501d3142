// Exact search among posting lists: each token has the vectors of its places in documents, side by
// side (COIL, arXiv 2104.07186).
//
// Lists are searched in ascending order, so that a score has the same bits whatever the number of
// threads and whatever other queries there are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "machine/isa.h"
#include "machine/thread_pool.h"
#include "retrieve/kept_hits.h"
#include "retrieve/packed_vectors.h"

namespace paredown {

struct PostingLists {
  StoredVectors vectors;                // of all lists, one after the other
  std::span<const int64_t> offsets;     // where lists begin, and the last one ends; none is empty
  std::span<const uint32_t> documents;  // of each vector; in a list they never fall
};

struct CoilQueries {
  const float* tokens;               // [T][num_dims]
  std::span<const int64_t> lists;    // [T], the list of each token
  std::span<const int64_t> offsets;  // query i has tokens [offsets[i], offsets[i + 1]), maybe none
  const float* cls;                  // [queries][num_dims of CLS]; null where the index has none
};

// Postings whose bytes outlive it. One caller at a time.
class CoilSearcher {
 public:
  // `cls` has a vector for each document. Throws std::invalid_argument for what does not fit, after
  // a look at every offset and document.
  CoilSearcher(Isa isa, int num_threads, const PostingLists& lists, int64_t num_documents,
               const std::optional<StoredVectors>& cls);

  // Returns for each query the `most` (at least 1) documents with the largest scores. A score sums,
  // over the query's tokens, the largest dot product with the document's vectors in the token's
  // list, and adds the dot product of CLS. Throws std::invalid_argument for invalid lists or
  // offsets.
  Hits top(const CoilQueries& queries, int64_t most);

  const VectorShape& shape() const { return vectors_.shape(); }
  // Null where documents have no CLS.
  const VectorShape* cls_shape() const { return cls_ ? &cls_->shape() : nullptr; }

 private:
  struct Asked;
  struct Batch;
  struct Sums;

  void check(const CoilQueries& queries) const;
  Batch batch_of(const CoilQueries& queries, Range some) const;
  // Scores some documents, whose first number is a multiple of kVectorUnit.
  void add_all(const Batch& batch, Range documents, const Scores& scores, Sums& sums) const;
  void add_cls(const Batch& batch, Range documents, const Scores& scores, Sums& sums) const;
  void add_list(const Asked& asked, Range documents, const Scores& scores, Sums& sums) const;

  const KernelTable& kernels_;
  ThreadPool pool_;
  PackedVectors vectors_;
  std::vector<int64_t> offsets_;
  std::span<const uint32_t> documents_;
  int64_t num_documents_;
  std::optional<PackedVectors> cls_;
  ShareScores scores_;
};

}  // namespace paredown
