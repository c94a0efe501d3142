// The tiles of sets whose registers hold few of them: two tokens by two panels, a weight's panels
// two side by side. Included by generic.h, avx2.h and neon.h.
#pragma once

#include <cstdint>

namespace paredown {
namespace {

// With three tokens of floats two sums would wait in memory: half the speed with AVX2 (Zen 4,
// docs/log.md 2026-11-25).
constexpr int kFloatTokens = 2;
constexpr int kFloatPanels = 2;
constexpr int kFp8Tokens = 2;
constexpr int kIntTokens = 2;
constexpr int kGroupTokens = 2;
constexpr int kSerialTokens = 2;
constexpr int kSerialRowTokens = 2;
constexpr int kSerialPanels = 2;
constexpr int kIntPanels = 2;
constexpr int kManyPanels = 2;  // by kIntTokens or kManyGroupTokens, once codes lie in memory
constexpr int kManyGroupTokens = 2;
// How few tokens read a weight from memory: panels side by side, bytes ahead that come into the
// first cache, whether the panels after these come into the second, and how many sums of whole rows
// and of groups grow side by side at least.
constexpr int kFewPanels = 2;
constexpr int64_t kNearBytes = 2048;
constexpr bool kFetchesNextPanels = true;
constexpr int kRowSums = 1;
constexpr int kGroupSums = 1;
// Up to so many tokens widen bf16 of 12 bits in registers.
constexpr int kFewShortTokens = 2;

}  // namespace
}  // namespace paredown
