// Blocks as GGUF files hold them (https://github.com/ggml-org/llama.cpp, ggml-common.h), taken
// apart.
#pragma once

#include <cstdint>

#include "kernels/block_forms.h"

namespace paredown {

inline constexpr int64_t kMaxBlockColumns = 256;

// One row of a block: codes in the order of their columns; of each group its scale, as the bits
// that are packed, and behind all scales the minima; d and e.
struct BlockParts {
  uint8_t codes[kMaxBlockColumns];
  uint8_t factors[kMaxBlockColumns / 8];
  uint16_t halves[2];
};

// `from` has the kind's source_bytes.
void take_apart(WeightKind kind, const uint8_t* from, BlockParts& parts);

}  // namespace paredown
