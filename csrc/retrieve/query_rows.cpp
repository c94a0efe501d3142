#include "retrieve/query_rows.h"

#include <algorithm>
#include <vector>

#include "machine/round_up.h"

namespace paredown {
namespace {

constexpr int64_t kCacheLine = 64;

}  // namespace

QueryRows::QueryRows(const KernelTable& kernels, const LinearView& view, const float* queries,
                     int64_t num_rows, int64_t num_dims)
    : num_rows_(num_rows) {
  const int64_t rows = round_up(num_rows, kLanes);
  const LinearForm& form = kernels.linear_form(view, num_rows);
  const int64_t number_bytes = view.input == InputKind::kInt8 ? 1 : kernels.bf16_input_bytes;
  // A cache line more than a power of two: rows side by side do not share their cache sets.
  const int64_t gap = form.layout == InputLayout::kRows ? kCacheLine : 0;
  input_.form = &form;
  input_.row_stride = view.num_columns + kCacheLine / 4;
  input_.code_stride = round_up(view.num_columns * number_bytes, kCacheLine) + gap;
  values_ = AlignedBuffer(rows * input_.row_stride * 4);
  codes_ = AlignedBuffer(rows * input_.code_stride);
  scales_ = AlignedBuffer(rows * 4);
  corrections_ = AlignedBuffer(rows * 4);
  input_.values = values_.as<float>();
  input_.codes = codes_.get();
  input_.scales = scales_.as<float>();
  input_.corrections = corrections_.as<int32_t>();
  std::vector<float> row(static_cast<size_t>(view.num_columns));
  for (int64_t i = 0; i < num_rows; ++i) {
    std::copy_n(queries + i * num_dims, num_dims, row.data());
    form.prepare(view, input_, row.data(), i);
  }
}

}  // namespace paredown
