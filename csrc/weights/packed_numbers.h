// Numbers beside the values of a packed weight, as far as kernels rely on what they are.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"
#include "weights/packed_shape.h"

namespace paredown {

// Throws std::invalid_argument for a zero point that is no code, a step that leaves int8, a wide
// block that is none of the shape's, and bitmaps that do not count what lies behind them. Scales
// and values may be anything.
void check_numbers(const LinearView& w, const PackedShape& shape);

}  // namespace paredown
