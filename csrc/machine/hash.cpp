#include "machine/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "machine/thread_pool.h"

namespace paredown {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5u;
constexpr size_t kStripeBytes = 32;

template <class Word>
uint64_t read(const uint8_t* data) {
  static_assert(std::endian::native == std::endian::little);
  Word word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

uint64_t mix(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

uint64_t finish(uint64_t hash, const uint8_t* data, size_t num_bytes) {
  for (; num_bytes >= 8; data += 8, num_bytes -= 8) {
    hash = std::rotl(hash ^ mix(0, read<uint64_t>(data)), 27) * kPrime1 + kPrime4;
  }
  if (num_bytes >= 4) {
    hash = std::rotl(hash ^ read<uint32_t>(data) * kPrime1, 23) * kPrime2 + kPrime3;
    data += 4;
    num_bytes -= 4;
  }
  for (; num_bytes > 0; ++data, --num_bytes) {
    hash = std::rotl(hash ^ *data * kPrime5, 11) * kPrime1;
  }
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

}  // namespace

uint64_t xxh64(std::span<const uint8_t> bytes) {
  const uint8_t* data = bytes.data();
  size_t left = bytes.size();
  if (left < kStripeBytes) return finish(kPrime5 + left, data, left);
  uint64_t lanes[4] = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  for (; left >= kStripeBytes; data += kStripeBytes, left -= kStripeBytes) {
    for (int i = 0; i < 4; ++i) lanes[i] = mix(lanes[i], read<uint64_t>(data + 8 * i));
  }
  uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
                  std::rotl(lanes[3], 18);
  for (const uint64_t lane : lanes) hash = (hash ^ mix(0, lane)) * kPrime1 + kPrime4;
  return finish(hash + bytes.size(), data, left);
}

std::vector<uint64_t> hash_chunks(std::span<const uint8_t> bytes, int64_t chunk_bytes,
                                  int num_threads) {
  if (chunk_bytes < 1) throw std::invalid_argument("a chunk must have at least one byte");
  const auto chunk = static_cast<size_t>(chunk_bytes);
  std::vector<uint64_t> hashes((bytes.size() + chunk - 1) / chunk);
  ThreadPool pool(num_threads);
  pool.run_items(static_cast<int64_t>(hashes.size()), [&](int, const Range& chunks) {
    for (auto i = static_cast<size_t>(chunks.begin); i < static_cast<size_t>(chunks.end); ++i) {
      hashes[i] = xxh64(bytes.subspan(i * chunk, std::min(chunk, bytes.size() - i * chunk)));
    }
  });
  return hashes;
}

}  // namespace paredown
