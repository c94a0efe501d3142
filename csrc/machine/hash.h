// XXH64 (Yann Collet, github.com/Cyan4973/xxHash, doc/xxhash_spec.md, seed 0): plain 64-bit
// arithmetic, near the speed of memory on one core, for noticing damage and for telling contents
// apart. Not against an adversary.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paredown {

uint64_t xxh64(std::span<const uint8_t> bytes);

// The hash of each `chunk_bytes` of `bytes`, the last one shorter; chunks are shared out over
// `num_threads`. Throws std::invalid_argument when there are no chunks of that size.
std::vector<uint64_t> hash_chunks(std::span<const uint8_t> bytes, int64_t chunk_bytes,
                                  int num_threads);

}  // namespace paredown
