// Runs linear layers over token rows: puts the input into the form a weight wants, then splits the
// weight's panels over the threads. Owns the working memory for it.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/kernel_table.h"
#include "machine/round_up.h"
#include "machine/thread_pool.h"
#include "weights/packed_linear.h"

namespace paredown {

// Fewer rows than this are not worth waking the helpers for elementwise work.
inline constexpr int64_t kMinParallelRows = 8;
inline constexpr int64_t kRowBlock = 16;
inline constexpr int64_t kMinRowsForBlocks = 4 * kRowBlock;  // of each thread

// body(share, rows) for parts of the rows, on the threads where there are enough of them. Parts of
// many rows begin at multiples of 16: prompts mostly begin a page there.
template <class Body>
void for_ranges(ThreadPool& pool, int64_t num_rows, Body&& body) {
  if (num_rows < kMinParallelRows) return body(0, Range{0, num_rows});
  const int64_t unit = num_rows < kMinRowsForBlocks * pool.num_threads() ? 1 : kRowBlock;
  pool.run_items(divide_up(num_rows, unit), [&](int share, const Range& units) {
    body(share, Range{units.begin * unit, std::min(units.end * unit, num_rows)});
  });
}

// body(row) for each row, the same.
template <class Body>
void for_rows(ThreadPool& pool, int64_t num_rows, Body&& body) {
  for_ranges(pool, num_rows, [&](int, const Range& rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row) body(row);
  });
}

// Linear layers that read the same input and write side by side: q, k, v or gate, up. Parts of one
// weight format are merged by the loader; several parts remain when their formats differ.
struct LinearGroup {
  std::vector<PackedLinear> parts;
};

// Bytes of the buffers of a LinearRunner.
struct LinearMemory {
  int64_t values;
  int64_t codes;
  int64_t scales;
  int64_t corrections;
  int64_t buffers;
  int64_t thread_scratch;  // of each thread
  int64_t scratch;
  int64_t thread_sums;  // of each thread
  int64_t sums;
};
LinearMemory linear_memory(int num_threads, int64_t num_tokens, int64_t max_columns);

// The codes of an input row of so many columns: four bytes each where bf16 is multiplied as floats,
// else half of that, so that there is room for those of the next weight. And the gaps behind both.
constexpr int64_t code_row_bytes(int64_t max_columns) { return max_columns * 4 + 2 * 64; }

class LinearRunner {
 public:
  LinearRunner(const KernelTable& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  const KernelTable& kernels() const { return kernels_; }

  // Room for num_tokens rows of up to max_columns columns (a multiple of 32).
  void reserve(int64_t num_tokens, int64_t max_columns);
  int64_t num_bytes() const;

  // output += or = input @ weight.T + bias. make_row(token, buffer) returns a row of the input,
  // which it may write into `buffer` (max_columns floats); what follows the row's columns up to the
  // next multiple of 32 must be zero. It runs on any thread, once per part and token.
  template <class MakeRow>
  void run(const LinearGroup& group, int64_t num_tokens, MakeRow&& make_row, OutputRows output) {
    for (const PackedLinear& part : group.parts) {
      const InputRows rows = input_rows(part.view(), num_tokens * part.view().input_codes);
      prepare(part, rows, num_tokens, make_row);
      if (part.view().input_codes == 2) {
        multiply_split(part, rows, num_tokens, output);
      } else {
        multiply(part, rows, num_tokens, output);
      }
      output.values += part.view().num_rows;
    }
  }

  // output += or = activation(gate) * up @ down.T + bias; what lies between them goes to `between`
  // where the kernel does not make the input of `down` of it at once, or the two inputs have no
  // room beside each other.
  template <class MakeRow>
  void run_gated(const LinearGroup& gate_up, const LinearGroup& down, int64_t num_tokens,
                 MakeRow&& make_row, OutputRows between, OutputRows output) {
    const PackedLinear& first = gate_up.parts.front();
    const PackedLinear& second = down.parts.front();
    const InputRows rows = input_rows(first.view(), num_tokens);
    const NextInput next{&second.view(), next_rows(second.view(), num_tokens)};
    const bool is_split = first.view().input_codes + second.view().input_codes > 2;
    if (is_split || down.parts.size() > 1 ||
        !kernels_.makes_input(first.view(), second.view(), num_tokens) ||
        std::max(rows.code_stride, next.rows.code_stride) > code_row_bytes(max_columns_) / 2) {
      run(gate_up, num_tokens, make_row, between);
      const int64_t size = first.view().num_rows / 2;
      auto made = [&](int64_t t, float*) {
        float* row = between.values + t * between.row_stride;
        std::fill(row + size, row + second.view().num_columns, 0.0f);
        return row;
      };
      return run(down, num_tokens, made, output);
    }
    between.next = &next;
    prepare(first, rows, num_tokens, make_row);
    multiply(first, rows, num_tokens, between);
    multiply(second, next.rows, num_tokens, output);
  }

 private:
  // Puts make_row's rows into the form that a weight wants: where a number has two codes, a row of
  // the first ones and behind it a row of codes for what they lack.
  template <class MakeRow>
  void prepare(const PackedLinear& part, const InputRows& rows, int64_t num_tokens,
               MakeRow&& make_row) {
    for_ranges(pool_, num_tokens, [&](int share, const Range& tokens) {
      float* buffer = buffers_.as<float>() + share * max_columns_;
      for (int64_t token = tokens.begin; token < tokens.end; ++token) {
        const float* row = make_row(token, buffer);
        if (part.view().input_codes == 1) {
          rows.form->prepare(part.view(), rows, row, token);
          continue;
        }
        rows.form->prepare(part.view(), rows, row, 2 * token);
        kernels_.input_rest(part.view(), rows, row, 2 * token, buffer);
        rows.form->prepare(part.view(), rows, buffer, 2 * token + 1);
      }
    });
  }

  InputRows input_rows(const LinearView& view, int64_t num_tokens) const;
  // Those of the weight that is next, in the second half of all memory.
  InputRows next_rows(const LinearView& view, int64_t num_tokens) const;
  void multiply(const PackedLinear& part, const InputRows& rows, int64_t num_tokens,
                OutputRows output);
  // Of two rows of codes for each token.
  void multiply_split(const PackedLinear& part, const InputRows& rows, int64_t num_tokens,
                      OutputRows output);
  // Whether outputs are stored past the caches.
  static bool is_streamed(const LinearView& w, const OutputRows& output, int64_t num_tokens);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  int64_t max_columns_ = 0;
  int64_t scratch_bytes_ = 0;
  int64_t sums_bytes_ = 0;
  AlignedBuffer values_;       // fp32 input: [T][columns + 16]
  AlignedBuffer codes_;        // [T][code_row_bytes(columns)]
  AlignedBuffer scales_;       // [T][columns / 32]
  AlignedBuffer corrections_;  // [T][columns / 32]
  AlignedBuffer buffers_;      // [shares][columns], a row in the making
  AlignedBuffer scratch_;      // [shares][scratch_bytes_]
  AlignedBuffer sums_;         // [shares][sums_bytes_], of split inputs
};

}  // namespace paredown
