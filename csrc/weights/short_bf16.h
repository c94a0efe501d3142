// bf16 weights with short exponents (WeightKind::kBf16Short): packed, and read row by row.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"
#include "machine/thread_pool.h"

namespace paredown {

// The memory of LinearView::values and of its ShortBf16.
struct ShortMemory {
  uint8_t* values;
  uint8_t* exponents;
  uint32_t* wide_ranks;
  uint8_t* wide_rests;
};

// Writes everything but `wide_rests`, and returns for each panel of a bf16 weight how many blocks
// of the panels before it are wide; last comes how many all have.
std::vector<int64_t> write_short_blocks(const LinearView& plain, const ShortMemory& to,
                                        ThreadPool& pool);
void write_wide_rests(const LinearView& plain, const std::vector<int64_t>& first_wide,
                      const ShortMemory& to, ThreadPool& pool);

// Whether every rank is that of one of the wide blocks: a file may say anything.
bool ranks_fit(const LinearView& w, int64_t num_wide_blocks);

// num_columns numbers.
void copy_short_row(const LinearView& w, int64_t row, uint16_t* values);

}  // namespace paredown
