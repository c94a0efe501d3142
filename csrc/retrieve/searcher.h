// Exact search: every query meets every vector of an index, and the best are kept.
//
// A score has the same bits whatever the number of threads and whatever other queries there are
// (docs/internals/exactness.md), and hits are ordered by score and number: so results are the same,
// too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "machine/isa.h"
#include "machine/thread_pool.h"
#include "retrieve/kept_hits.h"
#include "retrieve/packed_vectors.h"

namespace paredown {

// Vectors whose bytes outlive it. One caller at a time; `most` is at least 1.
class Searcher {
 public:
  // `offsets` say where documents begin among the vectors, which are their tokens, and where the
  // last one ends; empty where a document is a vector. Throws std::invalid_argument for what does
  // not fit.
  Searcher(Isa isa, int num_threads, const StoredVectors& stored, std::span<const int64_t> offsets);

  // The `most` vectors whose dot product with each of [num_queries][num_dims] is largest.
  Hits top(const float* queries, int64_t num_queries, int64_t most);

  // The `most` documents of the largest MaxSim with each query (ColBERT, arXiv 2004.12832, equation
  // 3): the sum over the query's tokens of the largest dot product with a token of the document.
  // Query i has rows [query_offsets[i], query_offsets[i + 1]) of `tokens`, at least one.
  Hits top_max_sim(const float* tokens, std::span<const int64_t> query_offsets, int64_t most);

  const VectorShape& shape() const { return vectors_.shape(); }

 private:
  class MaxSims;

  // What queries come to with all tokens of some documents.
  void meet(const QueryRows& queries, Range documents, const Scores& scores, MaxSims& max_sims,
            std::vector<TopHits>& kept) const;
  int64_t num_documents() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  void plan_items();

  const KernelTable& kernels_;
  ThreadPool pool_;
  PackedVectors vectors_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> items_;  // documents at which parts of about equal work begin
  ShareScores scores_;
};

}  // namespace paredown
