#include "weights/pack_block.h"

#include <algorithm>
#include <cstring>

namespace paredown {
namespace {

// One row of up to 32 codes into the planes of its block, four columns at a time.
void pack_codes(const uint8_t* codes, int64_t count, int bits, int64_t lane, uint8_t* block) {
  uint32_t quads[kBlockColumns / 4] = {};
  std::memcpy(quads, codes, static_cast<size_t>(count));
  int done = 0;
  for (int plane_bits : {4, 2, 1}) {
    if ((bits & plane_bits) == 0) continue;
    const int per_byte = 8 / plane_bits;
    const uint32_t mask = ((1u << plane_bits) - 1) * 0x01010101u;
    for (int i = 0; i < plane_bits; ++i) {
      uint32_t bytes = 0;
      for (int j = 0; j < per_byte; ++j) {
        bytes |= (quads[i * per_byte + j] >> done & mask) << plane_bits * j;
      }
      std::memcpy(block + i * 64 + lane * 4, &bytes, sizeof(bytes));
    }
    block += plane_bits * 64;
    done += plane_bits;
  }
}

// Of the eight runs of a Q4_K super-block the scales and the minima, six bits each, in GGUF's 12
// bytes: of the first four whole, of the others four bits here and two above those.
void unpack_q4_k_factors(const uint8_t* from, uint8_t* scales, uint8_t* minima) {
  for (int run = 0; run < 4; ++run) {
    scales[run] = from[run] & 63;
    minima[run] = from[4 + run] & 63;
    scales[4 + run] = static_cast<uint8_t>((from[8 + run] & 15) | from[run] >> 6 << 4);
    minima[4 + run] = static_cast<uint8_t>(from[8 + run] >> 4 | from[4 + run] >> 6 << 4);
  }
}

// One row of a Q4_K super-block as GGUF has it: d and e in fp16, the factors, the codes, of which
// two runs share 32 bytes. To kernels/linear/q4_k.h's place for each.
void pack_q4_k(const uint8_t* from, int64_t lane, uint8_t* block) {
  constexpr int64_t kRunBytes = kBlockColumns * kLanes / 2;
  for (int pair = 0; pair < 4; ++pair) {
    const uint8_t* bytes = from + 16 + 32 * pair;
    uint8_t low[kBlockColumns];
    uint8_t high[kBlockColumns];
    for (int64_t k = 0; k < kBlockColumns; ++k) {
      low[k] = bytes[k] & 15;
      high[k] = bytes[k] >> 4;
    }
    pack_codes(low, kBlockColumns, 4, lane, block + 2 * pair * kRunBytes);
    pack_codes(high, kBlockColumns, 4, lane, block + (2 * pair + 1) * kRunBytes);
  }
  uint8_t scales[8];
  uint8_t minima[8];
  unpack_q4_k_factors(from + 4, scales, minima);
  uint8_t* factors = block + 8 * kRunBytes + lane * 4;
  for (int run = 0; run < 4; ++run) {
    auto low_bits = [run](const uint8_t* six) {
      return static_cast<uint8_t>((six[run] & 15) | (six[4 + run] & 15) << 4);
    };
    auto high_bits = [run](const uint8_t* six) { return six[run] >> 4 | six[4 + run] >> 4 << 2; };
    factors[run] = low_bits(scales);
    factors[64 + run] = low_bits(minima);
    factors[128 + run] = static_cast<uint8_t>(high_bits(scales) | high_bits(minima) << 4);
  }
  uint8_t* halves = block + 8 * kRunBytes + 3 * 64 + lane * 2;
  std::memcpy(halves, from, 2);
  std::memcpy(halves + 2 * kLanes, from + 2, 2);
}

}  // namespace

void pack_block(WeightKind kind, const uint8_t* from, int64_t count, int64_t lane, uint8_t* block) {
  switch (kind) {
    case WeightKind::kFp32:
      for (int64_t k = 0; k < count; ++k)
        std::memcpy(block + (k * kLanes + lane) * 4, from + k * 4, 4);
      return;
    case WeightKind::kFp16:
      for (int64_t k = 0; k < count; ++k)
        std::memcpy(block + (k * kLanes + lane) * 2, from + k * 2, 2);
      return;
    case WeightKind::kBf16:
      for (int64_t k = 0; k < count; ++k) {
        std::memcpy(block + (k / 2 * kLanes + lane) * 4 + k % 2 * 2, from + k * 2, 2);
      }
      return;
    case WeightKind::kFp8: {
      constexpr int kPlace[] = {0, 2, 1, 3};
      for (int64_t k = 0; k < count; ++k) block[k / 4 * 64 + lane * 4 + kPlace[k % 4]] = from[k];
      return;
    }
    case WeightKind::kInt8:
      for (int64_t k = 0; k < count; k += 4) {
        std::memcpy(block + k * kLanes + lane * 4, from + k,
                    static_cast<size_t>(std::min<int64_t>(4, count - k)));
      }
      return;
    case WeightKind::kQ4K:
      return pack_q4_k(from, lane, block);
    default:
      return pack_codes(from, count, weight_bits(kind), lane, block);
  }
}

}  // namespace paredown
