// Queries in the form that the kernel of an index's vectors reads.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"
#include "machine/aligned_buffer.h"

namespace paredown {

class QueryRows {
 public:
  // Takes [num_rows][num_dims] finite floats; the view has at least as many columns.
  QueryRows(const KernelTable& kernels, const LinearView& view, const float* queries,
            int64_t num_rows, int64_t num_dims);

  const InputRows& input() const { return input_; }
  int64_t num_rows() const { return num_rows_; }

 private:
  int64_t num_rows_;
  AlignedBuffer values_;
  AlignedBuffer codes_;
  AlignedBuffer scales_;
  AlignedBuffer corrections_;
  InputRows input_{};
};

}  // namespace paredown
