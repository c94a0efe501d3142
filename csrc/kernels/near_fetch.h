// What few tokens read next, fetched while they read. Include after a simd header.
#pragma once

#include <type_traits>

#include "math.h"

namespace paredown {
namespace {

// Where lines come that are kNearBytes or kSecondCacheBytes ahead, if anywhere; from the second
// cache they come into the first, kFirstCacheBytes ahead.
enum class NearFetch {
  kNowhere,
  kFirstCache,
  kSecondCache,
};

// Measured on AMD Zen 4, as all that is said of it here (LOG.md 2026-11-23).
constexpr int64_t kSecondCacheBytes = 8192;
constexpr int64_t kFirstCacheBytes = 1024;

// Calls `body` with the place, so that it has no branch at each line: that took a third of the time
// of one token.
template <class Body>
inline void with_near_fetch(Body&& body) {
#if defined(__AVX512BF16__) && !defined(PAREDOWN_HAS_TILES)
  // Zen 4 runs this set as Zen 5 does, but loses a fifth of the bandwidth when lines from memory
  // are asked for in the first cache. Families of processors, as GCC names them: 19h is Zen 3
  // and 4.
  if (__builtin_cpu_is("amdfam19h")) {
    return body(std::integral_constant<NearFetch, NearFetch::kSecondCache>{});
  }
#endif
  body(std::integral_constant<NearFetch, NearFetch::kFirstCache>{});
}

// Whether tokens are so few that little is done with a line: on Zen 4 the loads themselves run far
// ahead then, and fetching takes requests away from them. By the bits of a weight; codes of 3 and 6
// bits take 1.03 to 1.08 times as long without (LOG.md 2026-11-25).
template <int kBits, int kTokens>
constexpr bool kRunsAhead = kTokens <= (kBits == 8                  ? 3
                                        : kBits == 4 || kBits == 12 ? 1
                                                                    : 0);

// Inlined at once as fetch_scales.
template <NearFetch kNear, bool kAhead>
inline __attribute__((always_inline)) void fetch_near(const uint8_t* line) {
  if constexpr (kNear == NearFetch::kFirstCache) {
    __builtin_prefetch(line + kNearBytes, 0, 3);
  } else if constexpr (kNear == NearFetch::kSecondCache && !kAhead) {
    __builtin_prefetch(line + kSecondCacheBytes, 0, 2);
    __builtin_prefetch(line + kFirstCacheBytes, 0, 3);
  }
}

}  // namespace
}  // namespace paredown
