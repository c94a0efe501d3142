#include "linear_runner.h"

namespace paredown {

void LinearRunner::reserve(int64_t num_tokens, int64_t max_columns) {
  max_columns_ = max_columns;
  codes_ = AlignedBuffer(num_tokens * max_columns);
  scales_ = AlignedBuffer(num_tokens * max_columns / 32 * 4);
  sums_ = AlignedBuffer(num_tokens * max_columns / 32 * 4);
  pairs_ = AlignedBuffer(num_tokens * max_columns * 4);
}

void LinearRunner::run(const LinearGroup& group, const float* input, int64_t num_tokens,
                       OutputRows output) {
  const InputRows rows{input,
                       max_columns_,
                       codes_.as<int8_t>(),
                       max_columns_,
                       scales_.as<float>(),
                       sums_.as<int32_t>(),
                       max_columns_ / 32,
                       pairs_.as<uint32_t>()};
  for (const PackedLinear& part : group.parts) {
    const LinearView& view = part.view();
    if (num_tokens < kMinParallelRows) {
      kernels_.prepare(view, rows, 0, num_tokens);
    } else {
      pool_.run([&](int share, int num_shares) {
        const Range range = static_share(num_tokens, share, num_shares);
        kernels_.prepare(view, rows, range.begin, range.end);
      });
    }
    pool_.run([&](int share, int num_shares) {
      const Range range = static_share(part.num_panels(), share, num_shares);
      kernels_.linear(view, rows, output, num_tokens, range.begin, range.end);
    });
    output.values += view.num_rows;
  }
}

}  // namespace paredown
