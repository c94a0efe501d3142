// The largest of a row of numbers: what MaxSim takes of similarities. Plain vectors of four are
// enough beside the products: an eighth of a search at 128 dimensions (docs/log.md).
#pragma once

#include <cstdint>
#include <cstring>

namespace paredown {

using Floats4 = float __attribute__((vector_size(16)));

inline Floats4 load_four(const float* numbers) {
  Floats4 four;
  std::memcpy(&four, numbers, sizeof(four));
  return four;
}
inline Floats4 larger(Floats4 a, Floats4 b) { return a > b ? a : b; }

// The largest of `least` and `size` numbers, none being NaN.
inline float row_largest(const float* row, int64_t size, float least) {
  if (size >= 4) {
    Floats4 most[4];
    for (Floats4& four : most) four = Floats4{} + least;
    int64_t i = 0;
    for (; i + 16 <= size; i += 16) {
      for (int j = 0; j < 4; ++j) most[j] = larger(most[j], load_four(row + i + 4 * j));
    }
    for (; i + 4 <= size; i += 4) most[0] = larger(most[0], load_four(row + i));
    // The last four may lie among those before them.
    most[1] = larger(most[1], load_four(row + size - 4));
    const Floats4 all = larger(larger(most[0], most[1]), larger(most[2], most[3]));
    const float first = all[0] > all[1] ? all[0] : all[1];
    const float second = all[2] > all[3] ? all[2] : all[3];
    return first > second ? first : second;
  }
  for (int64_t i = 0; i < size; ++i) least = row[i] > least ? row[i] : least;
  return least;
}

}  // namespace paredown
