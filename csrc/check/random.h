// Random numbers of the checks: the same in every run.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace paredown {

using Random = std::mt19937;

// From 0 to limit - 1.
inline int64_t below(Random& random, int64_t limit) {
  return std::uniform_int_distribution<int64_t>(0, limit - 1)(random);
}

inline std::vector<float> floats(Random& random, int64_t count, float centre, float spread) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = centre + spread * uniform(random);
  return values;
}

}  // namespace paredown
