// What few tokens read next, fetched while they read. Include after a simd header.
#pragma once

#include <type_traits>

#include "math.h"

namespace paredown {
namespace {

// Where lines come that are kNearBytes or kSecondCacheBytes ahead.
enum class NearFetch {
  kFirstCache,
  kSecondCache,
};

// Measured on AMD Zen 4, as all that is said of it here (LOG.md 2026-11-23).
constexpr int64_t kSecondCacheBytes = 8192;

#if defined(__AVX512BF16__) && !defined(PAREDOWN_HAS_TILES)
// Zen 4 runs this set as Zen 5 does, but loses a fifth of the bandwidth when lines from memory are
// asked for in the first cache. Families of processors, as GCC names them: 19h is Zen 3 and 4.
inline NearFetch near_fetch() {
  return __builtin_cpu_is("amdfam19h") ? NearFetch::kSecondCache : NearFetch::kFirstCache;
}
#else
constexpr NearFetch near_fetch() { return NearFetch::kFirstCache; }
#endif

// For code without a branch at each line.
template <class Body>
inline void with_near_fetch(Body&& body) {
  if (near_fetch() == NearFetch::kSecondCache) {
    return body(std::integral_constant<NearFetch, NearFetch::kSecondCache>{});
  }
  body(std::integral_constant<NearFetch, NearFetch::kFirstCache>{});
}

// kRunsAhead: so little is done with a line, a byte a code and one token, that on Zen 4 the loads
// themselves run far ahead, and fetching takes requests away from them. Inlined at once as
// fetch_scales.
template <bool kRunsAhead>
inline __attribute__((always_inline)) void fetch_near(const uint8_t* line, NearFetch place) {
  if (place == NearFetch::kFirstCache) {
    __builtin_prefetch(line + kNearBytes, 0, 3);
  } else if constexpr (!kRunsAhead) {
    __builtin_prefetch(line + kSecondCacheBytes, 0, 2);
  }
}

}  // namespace
}  // namespace paredown
