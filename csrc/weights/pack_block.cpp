#include "weights/pack_block.h"

#include <algorithm>
#include <cstring>

#include "weights/gguf_blocks.h"

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

// One row of a block with its own scales, to its places among those of 16 (kernels/block_forms.h).
void pack_gguf_block(WeightKind kind, const uint8_t* from, int64_t lane, uint8_t* block) {
  const BlockForm& form = block_form(kind);
  BlockParts parts;
  take_apart(kind, from, parts);
  for (int64_t column = 0; column < form.columns; column += kBlockColumns) {
    pack_codes(parts.codes + column, kBlockColumns, form.bits, lane, block);
    block += form.run_bytes();
  }
  uint8_t* factors = block + lane * 4;
  for (int i = 0; i < form.num_factors(); ++i) {
    const uint8_t factor = parts.factors[i];
    const int quad = i / 4;
    auto put = [&](int64_t plane, int per_byte, int bits) {
      uint8_t& byte = factors[plane + quad / per_byte * 64 + i % 4];
      byte = static_cast<uint8_t>(byte | bits << quad % per_byte * (8 / per_byte));
    };
    if (form.factors == Factors::kBytes) {
      put(0, 1, factor);
    } else {
      put(0, 2, factor & 15);
      if (form.factors == Factors::kSixBits) put(form.num_factors() / 8 * 64, 4, factor >> 4);
    }
  }
  uint8_t* halves = block + form.factor_bytes() + lane * 2;
  std::memcpy(halves, &parts.halves[0], 2);
  if (form.has_minima) std::memcpy(halves + 2 * kLanes, &parts.halves[1], 2);
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
    default:
      if (traits_of(kind).is_blocked) return pack_gguf_block(kind, from, lane, block);
      return pack_codes(from, count, weight_bits(kind), lane, block);
  }
}

}  // namespace paredown
