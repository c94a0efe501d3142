#include "retrieve/packed_vectors.h"

#include <algorithm>
#include <stdexcept>

namespace paredown {
namespace {

constexpr int64_t kCacheLine = 64;
// Scores that wait to be looked at stay in the second cache. Many rows at once are a long run
// through memory, few leave room for many queries.
constexpr int64_t kWaitingScores = int64_t{1} << 16;
constexpr int64_t kMostRows = 4096;

}  // namespace

Scores::Scores(int64_t num_queries, int64_t rows)
    : num_rows(rows),
      stride(rows + kCacheLine / 4),
      values(num_queries * stride * 4),
      scratch(linear_scratch_bytes(num_queries)) {}

const std::vector<Scores>& ShareScores::of(int num_shares, int64_t num_queries) {
  if (num_queries == num_queries_) return scores_;
  const int64_t fitting = kWaitingScores / num_queries / kVectorUnit * kVectorUnit;
  const int64_t num_rows = std::clamp(fitting, kVectorUnit, kMostRows);
  num_queries_ = 0;  // until all is there
  scores_.clear();
  for (int i = 0; i < num_shares; ++i) scores_.emplace_back(num_queries, num_rows);
  num_queries_ = num_queries;
  return scores_;
}

PackedVectors::PackedVectors(const KernelTable& kernels, const StoredVectors& stored)
    : kernels_(kernels), shape_(stored.shape) {
  check_vectors(shape_);
  if (static_cast<int64_t>(stored.values.size()) != shape_.num_bytes() ||
      static_cast<int64_t>(stored.scales.size()) != shape_.num_scales() ||
      reinterpret_cast<uintptr_t>(stored.values.data()) % kCacheLine != 0) {
    throw std::invalid_argument("the bytes of the vectors do not fit their shape");
  }
  view_ = view_of(shape_, stored.values.data(), stored.scales.data());
}

void PackedVectors::score(const QueryRows& queries, Range rows, const Scores& scores) const {
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

}  // namespace paredown
