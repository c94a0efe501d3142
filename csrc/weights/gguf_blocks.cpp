#include "weights/gguf_blocks.h"

#include <cstring>

namespace paredown {
namespace {

// Codes of 32 columns in 16 bytes: byte j has column j low, column j + 16 high.
void take_nibbles(const uint8_t* from, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = from[j] & 15;
    codes[16 + j] = from[j] >> 4;
  }
}

// The four low bits of 64 columns at a time in 32 bytes, of which the first run is low.
void take_nibble_pairs(const uint8_t* from, uint8_t* codes) {
  for (int pair = 0; pair < 4; ++pair, from += 32, codes += 64) {
    for (int i = 0; i < 32; ++i) {
      codes[i] = from[i] & 15;
      codes[32 + i] = from[i] >> 4;
    }
  }
}

// Two bits of 128 columns at a time in 32 bytes, run by run.
void take_pairs(const uint8_t* from, uint8_t* codes) {
  for (int half = 0; half < 2; ++half, from += 32) {
    for (int shift = 0; shift < 8; shift += 2, codes += 32) {
      for (int i = 0; i < 32; ++i) codes[i] = from[i] >> shift & 3;
    }
  }
}

// A bit of each run of 32 columns in 32 bytes, that of the first run low.
void add_run_bits(const uint8_t* from, int place, uint8_t* codes) {
  for (int run = 0; run < 8; ++run, codes += 32) {
    for (int i = 0; i < 32; ++i) {
      codes[i] = static_cast<uint8_t>(codes[i] | (from[i] >> run & 1) << place);
    }
  }
}

// The scales and the minima of eight runs, six bits each, in 12 bytes: of the first four whole, of
// the others four bits here and two above those.
void take_six_bits(const uint8_t* from, uint8_t* factors) {
  for (int run = 0; run < 4; ++run) {
    factors[run] = from[run] & 63;
    factors[8 + run] = from[4 + run] & 63;
    factors[4 + run] = static_cast<uint8_t>((from[8 + run] & 15) | from[run] >> 6 << 4);
    factors[12 + run] = static_cast<uint8_t>(from[8 + run] >> 4 | from[4 + run] >> 6 << 4);
  }
}

void take_q2_k(const uint8_t* from, BlockParts& parts) {
  for (int group = 0; group < 16; ++group) {
    parts.factors[group] = from[group] & 15;
    parts.factors[16 + group] = from[group] >> 4;
  }
  take_pairs(from + 16, parts.codes);
  std::memcpy(parts.halves, from + 80, 4);
}

// 16 scales of six bits: four in nibbles, two in the last four bytes.
void take_q3_k(const uint8_t* from, BlockParts& parts) {
  take_pairs(from + 32, parts.codes);
  add_run_bits(from, 2, parts.codes);
  const uint8_t* scales = from + 96;
  for (int group = 0; group < 16; ++group) {
    const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
    const int high = scales[8 + group % 4] >> 2 * (group / 4) & 3;
    parts.factors[group] = static_cast<uint8_t>(low | high << 4);
  }
  std::memcpy(parts.halves, from + 108, 2);
}

void take_q4_k(const uint8_t* from, BlockParts& parts) {
  std::memcpy(parts.halves, from, 4);
  take_six_bits(from + 4, parts.factors);
  take_nibble_pairs(from + 16, parts.codes);
}

void take_q5_k(const uint8_t* from, BlockParts& parts) {
  std::memcpy(parts.halves, from, 4);
  take_six_bits(from + 4, parts.factors);
  take_nibble_pairs(from + 48, parts.codes);
  add_run_bits(from + 16, 4, parts.codes);
}

void take_q6_k(const uint8_t* from, BlockParts& parts) {
  uint8_t* codes = parts.codes;
  const uint8_t* low = from;
  const uint8_t* high = from + 128;
  for (int half = 0; half < 2; ++half, low += 64, high += 32, codes += 128) {
    for (int i = 0; i < 32; ++i) {
      auto put = [&](int run, int four) {
        codes[32 * run + i] = static_cast<uint8_t>(four | (high[i] >> 2 * run & 3) << 4);
      };
      put(0, low[i] & 15);
      put(1, low[32 + i] & 15);
      put(2, low[i] >> 4);
      put(3, low[32 + i] >> 4);
    }
  }
  std::memcpy(parts.factors, from + 192, 16);
  std::memcpy(parts.halves, from + 208, 2);
}

// Scales of six bits less 32, of which two bits lie apart.
void take_iq4_xs(const uint8_t* from, BlockParts& parts) {
  std::memcpy(parts.halves, from, 2);
  const int high = from[2] | from[3] << 8;
  for (int run = 0; run < 8; ++run) {
    const int low = from[4 + run / 2] >> 4 * (run % 2) & 15;
    parts.factors[run] = static_cast<uint8_t>((low | (high >> 2 * run & 3) << 4) - 32);
    take_nibbles(from + 8 + 16 * run, parts.codes + 32 * run);
  }
}

void take_q5_1(const uint8_t* from, BlockParts& parts) {
  std::memcpy(parts.halves, from, 4);
  uint32_t fifth;
  std::memcpy(&fifth, from + 4, 4);
  take_nibbles(from + 8, parts.codes);
  for (int i = 0; i < 32; ++i) {
    parts.codes[i] = static_cast<uint8_t>(parts.codes[i] | (fifth >> i & 1) << 4);
  }
}

// The scale is a power of two, e8m0: half of it, since the table has twice the values, as bf16.
void take_mxfp4(const uint8_t* from, BlockParts& parts) {
  const int exponent = from[0];
  const int bits = exponent < 2 ? 0x20 << exponent : (exponent - 1) << 7;
  parts.halves[0] = static_cast<uint16_t>(bits);
  take_nibbles(from + 1, parts.codes);
}

}  // namespace

void take_apart(WeightKind kind, const uint8_t* from, BlockParts& parts) {
  switch (kind) {
    case WeightKind::kQ2K:
      return take_q2_k(from, parts);
    case WeightKind::kQ3K:
      return take_q3_k(from, parts);
    case WeightKind::kQ4K:
      return take_q4_k(from, parts);
    case WeightKind::kQ5K:
      return take_q5_k(from, parts);
    case WeightKind::kQ6K:
      return take_q6_k(from, parts);
    case WeightKind::kIq4Xs:
      return take_iq4_xs(from, parts);
    case WeightKind::kQ41:
      std::memcpy(parts.halves, from, 4);
      return take_nibbles(from + 4, parts.codes);
    case WeightKind::kQ51:
      return take_q5_1(from, parts);
    case WeightKind::kIq4Nl:
      std::memcpy(parts.halves, from, 2);
      return take_nibbles(from + 2, parts.codes);
    default:
      return take_mxfp4(from, parts);
  }
}

}  // namespace paredown
