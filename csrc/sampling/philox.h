// Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): random
// bits as a function of a counter and a key, so that a draw needs no history.
#pragma once

#include <array>
#include <cstdint>

namespace paredown {

inline std::array<uint64_t, 4> philox4x64(std::array<uint64_t, 4> counter,
                                          std::array<uint64_t, 2> key) {
  __extension__ using Wide = unsigned __int128;
  for (int round = 0; round < 10; ++round) {
    const Wide first = static_cast<Wide>(0xD2E7470EE14C6C93u) * counter[0];
    const Wide second = static_cast<Wide>(0xCA5A826395121157u) * counter[2];
    counter = {
        static_cast<uint64_t>(second >> 64) ^ counter[1] ^ key[0], static_cast<uint64_t>(second),
        static_cast<uint64_t>(first >> 64) ^ counter[3] ^ key[1], static_cast<uint64_t>(first)};
    key[0] += 0x9E3779B97F4A7C15u;
    key[1] += 0xBB67AE8584CAA73Bu;
  }
  return counter;
}

}  // namespace paredown
