// Numbers of a weight in their place in a block (LinearView).
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"

namespace paredown {

// `count` columns of one row, 32 at most; `lane` is the row's place in its panel.
void pack_block(WeightKind kind, const uint8_t* from, int64_t count, int64_t lane, uint8_t* block);

}  // namespace paredown
