#include "retrieve/kept_hits.h"

#include <algorithm>

namespace paredown {
namespace {

// Hits of a share that are kept at a time.
constexpr int64_t kMostKept = int64_t{1} << 20;
// Scores whose blocks are looked at together.
constexpr int64_t kBlocksAtOnce = 64;

}  // namespace

int64_t queries_at_once(int64_t most) {
  return std::clamp<int64_t>(kMostKept / std::max<int64_t>(most, 1), 1, kMostQueries);
}

KeptHits::KeptHits(int num_shares, int64_t num_queries, int64_t most)
    : kept_(static_cast<size_t>(num_shares)) {
  for (std::vector<TopHits>& of_share : kept_) {
    for (int64_t query = 0; query < num_queries; ++query) of_share.emplace_back(most);
  }
}

void KeptHits::move_to(Hits& hits) {
  for (size_t query = 0; query < kept_.front().size(); ++query) {
    TopHits& best = kept_.front()[query];
    for (size_t share = 1; share < kept_.size(); ++share) {
      for (const Hit& hit : kept_[share][query].hits()) best.offer(hit);
    }
    hits.push_back(std::move(best).sorted());
  }
}

void keep_best(const KernelTable& kernels, const float* scores, int64_t first, int64_t count,
               TopHits& kept) {
  float maxima[kBlocksAtOnce];
  for (int64_t begin = 0; begin < count; begin += kTokenBlock) {
    const int64_t block = begin / kTokenBlock % kBlocksAtOnce;
    if (block == 0) {
      const int64_t size = std::min(count - begin, kBlocksAtOnce * kTokenBlock);
      kernels.block_maxima_floats(scores + begin, size, maxima);
    }
    if (!kept.may_keep(maxima[block])) continue;
    for (int64_t i = begin; i < std::min(begin + kTokenBlock, count); ++i) {
      if (kept.may_keep(scores[i])) kept.offer({scores[i], first + i});
    }
  }
}

}  // namespace paredown
