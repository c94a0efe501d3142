// Rows of packed codes as numbers: what an embedding reads of a weight.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"

namespace paredown {

// Whether decode_row reads such a weight: integer codes without steps, and blocks.
bool has_decoded_rows(const LinearView& w);

// The num_columns values of a row, each with one rounding at most.
void decode_row(const LinearView& w, int64_t row, float* values);

}  // namespace paredown
