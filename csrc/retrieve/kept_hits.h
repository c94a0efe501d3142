// The best hits of some queries, found by the shares of a job.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"
#include "retrieve/top_hits.h"

namespace paredown {

// For each query its best hits, the best first.
using Hits = std::vector<std::vector<Hit>>;

// Queries that read the vectors together: beyond it the products bound the search, not memory.
inline constexpr int64_t kMostQueries = 64;

// Queries whose `most` best hits may be kept at a time.
int64_t queries_at_once(int64_t most);

class KeptHits {
 public:
  KeptHits(int num_shares, int64_t num_queries, int64_t most);

  // Of one share, for each query.
  std::vector<TopHits>& of_share(int share) { return kept_[static_cast<size_t>(share)]; }

  // Adds the best of all shares, and leaves nothing here.
  void move_to(Hits& hits);

 private:
  std::vector<std::vector<TopHits>> kept_;
};

// Offers `count` scores of documents from number `first` on. Most blocks have none that is kept.
void keep_best(const KernelTable& kernels, const float* scores, int64_t first, int64_t count,
               TopHits& kept);

}  // namespace paredown
