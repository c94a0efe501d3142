#include "weights/short_bf16.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace paredown {
namespace {

constexpr int64_t kBlockWords = kBlockColumns * kLanes;
constexpr int64_t kShortBytes = block_bytes(WeightKind::kBf16Short);
constexpr int64_t kPairWords = 2 * kLanes;  // two columns of 16 rows
constexpr int64_t kQuadPairs = 4;
constexpr int64_t kShortQuadBytes = kQuadPairs * kPairWords * 3 / 2;
constexpr uint8_t kNone = 0xFF;

int exponent_of(uint16_t word) { return word >> 7 & 0xFF; }

int64_t panels_of(const LinearView& w) { return (w.num_rows + kLanes - 1) / kLanes; }
int64_t panel_blocks(const LinearView& w) { return w.num_columns / kBlockColumns; }

const uint16_t* plain_block(const LinearView& plain, int64_t block) {
  return static_cast<const uint16_t*>(plain.values) + block * kBlockWords;
}

using Places = std::array<uint8_t, 256>;  // where each exponent stands among a panel's

// The exponents that most numbers of a panel have.
std::array<uint8_t, kShortExponents> most_frequent(const uint16_t* words, int64_t num_blocks) {
  // Neighbours often share an exponent: with counts of its own none waits for the one before it.
  constexpr size_t kCounts = 4;
  std::array<std::array<int64_t, 256>, kCounts> counts{};
  for (const uint16_t* end = words + num_blocks * kBlockWords; words < end; words += kCounts) {
    for (size_t i = 0; i < kCounts; ++i) ++counts[i][static_cast<size_t>(exponent_of(words[i]))];
  }
  std::array<int64_t, 256> totals{};
  for (const auto& own : counts) {
    for (size_t exponent = 0; exponent < own.size(); ++exponent) totals[exponent] += own[exponent];
  }
  std::array<uint8_t, 256> order;
  std::iota(order.begin(), order.end(), uint8_t{0});
  // Where as many numbers have two of them, the smaller exponent comes first.
  std::partial_sort(
      order.begin(), order.begin() + kShortExponents, order.end(),
      [&](uint8_t a, uint8_t b) { return totals[a] != totals[b] ? totals[a] > totals[b] : a < b; });
  std::array<uint8_t, kShortExponents> found;
  std::copy_n(order.begin(), kShortExponents, found.begin());
  return found;
}

Places places_of(const std::array<uint8_t, kShortExponents>& exponents) {
  Places places;
  places.fill(kNone);
  for (size_t i = 0; i < exponents.size(); ++i) places[exponents[i]] = static_cast<uint8_t>(i);
  return places;
}

// False where an exponent has no place; what is written is of no use then.
bool write_short_block(const uint16_t* words, const Places& places, uint8_t* quad) {
  uint8_t all = 0;
  for (int64_t first = 0; first < kBlockWords; first += kQuadPairs * kPairWords) {
    uint16_t nibbles[kPairWords] = {};
    for (int64_t pair = 0; pair < kQuadPairs; ++pair, words += kPairWords) {
      for (int64_t i = 0; i < kPairWords; ++i) {
        const uint8_t place = places[static_cast<size_t>(exponent_of(words[i]))];
        all |= place;
        nibbles[i] |= static_cast<uint16_t>((place & 0xF) << 4 * pair);
        quad[pair * kPairWords + i] =
            static_cast<uint8_t>((words[i] >> 8 & 0x80) | (words[i] & 0x7F));
      }
    }
    std::memcpy(quad + kQuadPairs * kPairWords, nibbles, sizeof(nibbles));
    quad += kShortQuadBytes;
  }
  return all != kNone;
}

template <class Body>
void for_panels(const LinearView& w, ThreadPool& pool, Body&& body) {
  pool.run_items(panels_of(w), [&](int, const Range& panels) {
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) body(panel);
  });
}

}  // namespace

std::vector<int64_t> write_short_blocks(const LinearView& plain, const ShortMemory& to,
                                        ThreadPool& pool) {
  const int64_t num_blocks = panel_blocks(plain);
  std::vector<int64_t> first_wide(static_cast<size_t>(panels_of(plain)) + 1, 0);
  for_panels(plain, pool, [&](int64_t panel) {
    const auto exponents = most_frequent(plain_block(plain, panel * num_blocks), num_blocks);
    std::copy(exponents.begin(), exponents.end(), to.exponents + panel * kShortExponents);
    const Places places = places_of(exponents);
    int64_t num_wide = 0;
    for (int64_t block = panel * num_blocks; block < (panel + 1) * num_blocks; ++block) {
      uint8_t* target = to.values + block * kShortBytes;
      const bool is_wide = !write_short_block(plain_block(plain, block), places, target);
      if (is_wide) std::memcpy(target, plain_block(plain, block), kShortBytes);
      num_wide += is_wide;
      to.wide_ranks[block] = is_wide;
    }
    first_wide[static_cast<size_t>(panel) + 1] = num_wide;
  });
  std::partial_sum(first_wide.begin(), first_wide.end(), first_wide.begin());
  return first_wide;
}

void write_wide_rests(const LinearView& plain, const std::vector<int64_t>& first_wide,
                      const ShortMemory& to, ThreadPool& pool) {
  const int64_t num_blocks = panel_blocks(plain);
  for_panels(plain, pool, [&](int64_t panel) {
    int64_t num_wide = first_wide[static_cast<size_t>(panel)];
    for (int64_t block = panel * num_blocks; block < (panel + 1) * num_blocks; ++block) {
      if (to.wide_ranks[block] == 0) continue;
      std::memcpy(to.wide_rests + num_wide * kWideRestBytes,
                  plain_block(plain, block) + kShortBytes / 2, kWideRestBytes);
      to.wide_ranks[block] = static_cast<uint32_t>(++num_wide);
    }
  });
}

bool ranks_fit(const LinearView& w, int64_t num_wide_blocks) {
  const uint32_t* ranks = w.short_bf16.wide_ranks;
  return std::all_of(ranks, ranks + panels_of(w) * panel_blocks(w),
                     [=](uint32_t rank) { return rank <= num_wide_blocks; });
}

void copy_short_row(const LinearView& w, int64_t row, uint16_t* values) {
  const int64_t panel = row / kLanes;
  const int64_t lane = row % kLanes;
  const uint8_t* exponents = w.short_bf16.exponents + panel * kShortExponents;
  for (int64_t column = 0; column < w.num_columns; ++column) {
    const int64_t block = panel * panel_blocks(w) + column / kBlockColumns;
    const uint8_t* bytes = static_cast<const uint8_t*>(w.values) + block * kShortBytes;
    const int64_t pair = column % kBlockColumns / 2;
    const int64_t word = lane * 2 + column % 2;
    if (const uint32_t rank = w.short_bf16.wide_ranks[block]; rank > 0) {
      const int64_t offset = 2 * (pair * kPairWords + word);
      const uint8_t* rest = w.short_bf16.wide_rests + (rank - 1) * kWideRestBytes;
      std::memcpy(values + column,
                  offset < kShortBytes ? bytes + offset : rest + offset - kShortBytes, 2);
      continue;
    }
    const uint8_t* quad = bytes + pair / kQuadPairs * kShortQuadBytes;
    const int byte = quad[pair % kQuadPairs * kPairWords + word];
    uint16_t nibbles;
    std::memcpy(&nibbles, quad + kQuadPairs * kPairWords + 2 * word, sizeof(nibbles));
    const int exponent = exponents[nibbles >> 4 * (pair % kQuadPairs) & 0xF];
    values[column] = static_cast<uint16_t>((byte & 0x80) << 8 | exponent << 7 | (byte & 0x7F));
  }
}

}  // namespace paredown
