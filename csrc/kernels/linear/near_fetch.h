// What few tokens read next, fetched while they read. Include after a simd header.
#pragma once

#include <type_traits>

#include "kernels/math.h"

namespace paredown {
namespace {

// Where lines come that are kNearBytes or kSecondCacheBytes ahead, if anywhere; from the second
// cache they come into the first, kFirstCacheBytes ahead.
enum class NearFetch {
  kNowhere,
  kFirstCache,
  kSecondCache,
};

// Measured on AMD Zen 4, as all that is said of it here (docs/log.md 2026-11-23).
constexpr int64_t kSecondCacheBytes = 8192;
constexpr int64_t kFirstCacheBytes = 1024;

// Zen 4 runs the newest set as Zen 5 does, but loses a fifth of the bandwidth when lines from
// memory are asked for in the first cache. Families of processors, as GCC names them: 19h is Zen 3
// and 4.
inline bool on_zen4() {
#if defined(__AVX512BF16__) && !defined(PAREDOWN_HAS_TILES)
  return __builtin_cpu_is("amdfam19h");
#else
  return false;
#endif
}

// Calls `body` with the place, so that it has no branch at each line: that took a third of the time
// of one token.
template <class Body>
inline void with_near_fetch(Body&& body) {
  if (on_zen4()) return body(std::integral_constant<NearFetch, NearFetch::kSecondCache>{});
  body(std::integral_constant<NearFetch, NearFetch::kFirstCache>{});
}

// So few tokens may run ahead.
template <int kBits>
constexpr int kMaxAheadTokens = kBits == 8 ? 2 : 1;

// Whether so little is done with a line that the loads themselves run far ahead, and fetching would
// take requests away from them: of weights of kBits, on Zen 4. With short groups, whose scales come
// between, fetching is faster in minutes in which memory is (docs/log.md 2026-11-25).
template <int kBits>
inline bool runs_ahead(const LinearView& w, int64_t num_tokens) {
  if constexpr (kBits != 4 && kBits != 8 && kBits != 12) return false;
  // Without bf16 products, on any processor; measured with AVX2 on Zen 4 alone.
  if constexpr (!kHasBf16Dot) return kBits == 12 && num_tokens == 1;
  if (!on_zen4()) return false;
  const bool long_groups = w.num_steps > 0 || w.group_size >= 128;
  if (kBits == 4 && !long_groups) return false;
  return num_tokens <= (long_groups ? kMaxAheadTokens<kBits> : 1);
}

// Inlined at once as fetch_scales.
template <NearFetch kNear>
inline __attribute__((always_inline)) void fetch_near(const uint8_t* line) {
  if constexpr (kNear == NearFetch::kFirstCache) {
    __builtin_prefetch(line + kNearBytes, 0, 3);
  } else if constexpr (kNear == NearFetch::kSecondCache) {
    __builtin_prefetch(line + kSecondCacheBytes, 0, 2);
    __builtin_prefetch(line + kFirstCacheBytes, 0, 3);
  }
}

}  // namespace
}  // namespace paredown
