// A row of logits in double precision: what a sampler does to every token of the vocabulary.
// No operation is fused, so all instruction sets give the same bits. Vectors are those of the
// compiler (GCC and Clang), inside functions only.
#pragma once

#include "kernels/kernel_table.h"

namespace paredown {
namespace {

typedef float Floats16 __attribute__((vector_size(64)));
typedef double Doubles8 __attribute__((vector_size(64)));
typedef int64_t Int64s8 __attribute__((vector_size(64)));

// The largest number of a row and the first index that has it; NaN when the row holds one.
float largest(const float* row, int64_t size, int64_t* index) {
  constexpr int64_t kBlock = 1024;
  constexpr int kChains = 4;  // so that one comparison need not wait for the last
  float best = -__builtin_inff();
  int64_t best_block = 0;
  Floats16 poison[kChains] = {};  // zero while all is finite, NaN after NaN or infinity
  float last_poison = 0.0f;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t end = begin + kBlock < size ? begin + kBlock : size;
    Floats16 most[kChains];
    for (Floats16& one : most) one = Floats16{} - __builtin_inff();
    int64_t i = begin;
    for (; i + 16 * kChains <= end; i += 16 * kChains) {
      for (int c = 0; c < kChains; ++c) {
        Floats16 x;
        __builtin_memcpy(&x, row + i + 16 * c, sizeof(x));
        most[c] = x > most[c] ? x : most[c];
        poison[c] += x - x;
      }
    }
    float block_best = -__builtin_inff();
    for (; i < end; ++i) {
      block_best = row[i] > block_best ? row[i] : block_best;
      last_poison += row[i] - row[i];
    }
    for (int c = 1; c < kChains; ++c) most[0] = most[c] > most[0] ? most[c] : most[0];
    for (int j = 0; j < 16; ++j) block_best = most[0][j] > block_best ? most[0][j] : block_best;
    if (block_best > best) {
      best = block_best;
      best_block = begin;
    }
  }
  for (int c = 1; c < kChains; ++c) poison[0] += poison[c];
  for (int j = 0; j < 16; ++j) last_poison += poison[0][j];
  if (last_poison != 0.0f) {
    for (int64_t i = 0; i < size; ++i) {
      if (row[i] != row[i]) return row[i];
    }
  }
  *index = best_block;
  while (*index < size - 1 && row[*index] != best) ++*index;
  return best;
}

// weights = e^-distances to about 2 ulp (range reduction by ln 2 in two parts, Taylor polynomial of
// degree 13): exactly 1 at 0, exactly 0 above 700 (e^-700 is 1e-304).
inline void exp_of_minus(const Doubles8& distances, Doubles8& weights) {
  constexpr double kWhole = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  const Doubles8 x = distances > 700.0 ? Doubles8{} - 700.0 : -distances;
  const Doubles8 shifted = x * 0x1.71547652b82fep0 + kWhole;
  const Doubles8 whole = shifted - kWhole;
  const Doubles8 r = (x - whole * 0x1.62e42fee00000p-1) - whole * 0x1.a39ef35793c76p-33;
  Doubles8 poly = Doubles8{} + 1.0 / 6227020800.0;
  poly = poly * r + 1.0 / 479001600.0;
  poly = poly * r + 1.0 / 39916800.0;
  poly = poly * r + 1.0 / 3628800.0;
  poly = poly * r + 1.0 / 362880.0;
  poly = poly * r + 1.0 / 40320.0;
  poly = poly * r + 1.0 / 5040.0;
  poly = poly * r + 1.0 / 720.0;
  poly = poly * r + 1.0 / 120.0;
  poly = poly * r + 1.0 / 24.0;
  poly = poly * r + 1.0 / 6.0;
  poly = poly * r + 0.5;
  poly = poly * r + 1.0;
  poly = poly * r + 1.0;
  Int64s8 bits, power;
  __builtin_memcpy(&bits, &poly, sizeof(bits));
  __builtin_memcpy(&power, &shifted, sizeof(power));
  bits += power << 52;
  __builtin_memcpy(&poly, &bits, sizeof(poly));
  weights = distances > 700.0 ? Doubles8{} : poly;
}

// distances = (largest - logits) / temperature, weights = e^-distances; both padded to a multiple
// of 8. Returns the sum of the weights as `sum` makes it.
template <class Logit>
inline double weigh_row(const Logit* logits, int64_t size, double largest, double temperature,
                        double* distances, double* weights) {
  Doubles8 sums{};
  for (int64_t i = 0; i < size; i += 8) {
    Doubles8 x = Doubles8{} - __builtin_inf();
    if (i + 8 <= size) {
      for (int j = 0; j < 8; ++j) x[j] = logits[i + j];
    } else {
      for (int64_t j = i; j < size; ++j) x[j - i] = logits[j];
    }
    const Doubles8 distance = (largest - x) / temperature;
    Doubles8 weight;
    exp_of_minus(distance, weight);
    sums += weight;
    __builtin_memcpy(distances + i, &distance, sizeof(distance));
    __builtin_memcpy(weights + i, &weight, sizeof(weight));
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

double weigh_floats(const float* logits, int64_t size, double largest, double temperature,
                    double* distances, double* weights) {
  return weigh_row(logits, size, largest, temperature, distances, weights);
}

double weigh_doubles(const double* logits, int64_t size, double largest, double temperature,
                     double* distances, double* weights) {
  return weigh_row(logits, size, largest, temperature, distances, weights);
}

// The largest number, none being NaN, and the first index that has it.
double largest_double(const double* numbers, int64_t size, int64_t* index) {
  Doubles8 most = Doubles8{} - __builtin_inf();
  int64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    Doubles8 x;
    __builtin_memcpy(&x, numbers + i, sizeof(x));
    most = x > most ? x : most;
  }
  double best = -__builtin_inf();
  for (; i < size; ++i) best = numbers[i] > best ? numbers[i] : best;
  for (int j = 0; j < 8; ++j) best = most[j] > best ? most[j] : best;
  *index = 0;
  while (*index < size - 1 && numbers[*index] != best) ++*index;
  return best;
}

// Number i goes to sum i % 8, in ascending order; the eight are added in pairs.
double sum(const double* numbers, int64_t size) {
  Doubles8 sums{};
  int64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    Doubles8 x;
    __builtin_memcpy(&x, numbers + i, sizeof(x));
    sums += x;
  }
  for (int j = 0; i < size; ++i, ++j) sums[j] += numbers[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// The largest number of each block of `size` numbers, none being NaN; the last block may be short.
template <class Lanes, class Number>
inline void maxima_of_blocks(const Number* numbers, int64_t size, Number* maxima) {
  constexpr auto kWidth = static_cast<int64_t>(sizeof(Lanes) / sizeof(Number));
  constexpr auto kLowest = -static_cast<Number>(__builtin_inff());
  for (int64_t begin = 0; begin < size; begin += kTokenBlock) {
    const int64_t end = begin + kTokenBlock < size ? begin + kTokenBlock : size;
    Lanes most = Lanes{} + kLowest;
    int64_t i = begin;
    for (; i + kWidth <= end; i += kWidth) {
      Lanes x;
      __builtin_memcpy(&x, numbers + i, sizeof(x));
      most = x > most ? x : most;
    }
    Number result = kLowest;
    for (; i < end; ++i) result = numbers[i] > result ? numbers[i] : result;
    for (int64_t j = 0; j < kWidth; ++j) result = most[j] > result ? most[j] : result;
    maxima[begin / kTokenBlock] = result;
  }
}

void block_maxima(const double* numbers, int64_t size, double* maxima) {
  maxima_of_blocks<Doubles8>(numbers, size, maxima);
}

void block_maxima_floats(const float* numbers, int64_t size, float* maxima) {
  maxima_of_blocks<Floats16>(numbers, size, maxima);
}

}  // namespace
}  // namespace paredown
