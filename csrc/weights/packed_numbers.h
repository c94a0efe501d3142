// Numbers beside the values of a packed weight, as far as kernels rely on what they are.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"

namespace paredown {

// Throws std::invalid_argument for a zero point that is no code, a step that leaves int8, and a
// wide block that is none of num_wide_blocks. Scales and values may be anything.
void check_numbers(const LinearView& w, int64_t num_wide_blocks);

}  // namespace paredown
