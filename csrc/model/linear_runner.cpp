#include "model/linear_runner.h"

#include <algorithm>

#include "machine/round_up.h"

namespace paredown {
namespace {

constexpr int64_t kCacheLine = 64;
// Outputs beyond this are written past the caches: they would only push the inputs out of them.
constexpr int64_t kStreamedBytes = int64_t{2} << 20;
// Where the weight is as small as this and there are so many tokens for each thread, blocks of so
// many tokens are shared out instead of panels: each thread reads all of the weight, and mostly the
// rows that it made itself.
constexpr int64_t kMaxSharedWeightBytes = int64_t{1} << 20;
constexpr int64_t kSharedTokens = 64;
// Interleaved rows longer than this are multiplied in parts, and then every 16 of them lie a share
// of the second cache's sets further on than a power of two: parts fill all sets and not a few.
constexpr int64_t kMaxWholeRowBytes = 4096;
constexpr int64_t kInterleavedGapBytes = 1024;
constexpr int64_t kMinPanelsForFours = 16;  // of each thread; not measured
constexpr int64_t kMostUnitPanels = 4;
// Sums of split inputs that wait for each other stay in the first caches while tokens are few.
constexpr int64_t kSplitSumsBytes = int64_t{16} << 10;

// The rows from `token` on, a multiple of kSharedTokens: tiles of 16 tokens begin there.
InputRows rows_from(const LinearView& w, const InputRows& all, int64_t token) {
  InputRows rows = all;
  rows.values += token * all.row_stride;
  rows.codes = static_cast<uint8_t*>(all.codes) + token * all.code_stride;
  rows.scales += token * w.input_groups;
  rows.corrections += token * w.num_groups;
  return rows;
}

// Panels that one thread multiplies whole: those of a group of the next weight's columns, or pairs,
// which may be gate and up, and twice as many where that leaves enough units for even shares: some
// kernels have four panels side by side.
int64_t unit_panels(const OutputRows& output, int64_t num_panels, int num_threads) {
  if (output.next != nullptr) return 2 * next_group(*output.next->weight) / kLanes;
  return num_panels >= kMinPanelsForFours * num_threads ? kMostUnitPanels : 2;
}

}  // namespace

LinearMemory linear_memory(int num_threads, int64_t num_tokens, int64_t max_columns) {
  const int64_t rows = round_up(num_tokens, kLanes);
  LinearMemory memory{};
  memory.values = rows * (max_columns * 4 + kCacheLine);
  memory.codes = rows * code_row_bytes(max_columns);
  // Twice: those of the next weight, or of a second code; and groups may have half a block.
  memory.scales = memory.corrections = 4 * rows * max_columns / kBlockColumns * 4;
  memory.buffers = num_threads * max_columns * 4;
  memory.thread_scratch = round_up(linear_scratch_bytes(2 * num_tokens), kCacheLine);
  memory.scratch = num_threads * memory.thread_scratch;
  memory.thread_sums = std::max(kSplitSumsBytes, 2 * num_tokens * kMostUnitPanels * kLanes * 4);
  memory.sums = num_threads * memory.thread_sums;
  return memory;
}

void LinearRunner::reserve(int64_t num_tokens, int64_t max_columns) {
  const LinearMemory memory = linear_memory(pool_.max_threads(), num_tokens, max_columns);
  max_columns_ = max_columns;
  values_ = AlignedBuffer(memory.values);
  codes_ = AlignedBuffer(memory.codes);
  scales_ = AlignedBuffer(memory.scales);
  corrections_ = AlignedBuffer(memory.corrections);
  buffers_ = AlignedBuffer(memory.buffers);
  scratch_bytes_ = memory.thread_scratch;
  scratch_ = AlignedBuffer(memory.scratch);
  sums_bytes_ = memory.thread_sums;
  sums_ = AlignedBuffer(memory.sums);
}

int64_t LinearRunner::num_bytes() const {
  return values_.num_bytes() + codes_.num_bytes() + scales_.num_bytes() + corrections_.num_bytes() +
         buffers_.num_bytes() + scratch_.num_bytes() + sums_.num_bytes();
}

InputRows LinearRunner::next_rows(const LinearView& view, int64_t num_tokens) const {
  const int64_t num_rows = round_up(num_tokens, kLanes);
  const int64_t half = num_rows * max_columns_;
  InputRows next = input_rows(view, num_tokens);
  next.codes = codes_.as<uint8_t>() + num_rows * code_row_bytes(max_columns_) / 2;
  next.scales += half / kBlockColumns;
  next.corrections += half / kBlockColumns;
  return next;
}

InputRows LinearRunner::input_rows(const LinearView& view, int64_t num_tokens) const {
  const int64_t element_bytes = view.input == InputKind::kInt8 ? 1 : kernels_.bf16_input_bytes;
  const int64_t code_bytes = round_up(view.num_columns * element_bytes, kCacheLine);
  const LinearForm& form = kernels_.linear_form(view, num_tokens);
  // A cache line more than a power of two: rows side by side do not share their cache sets.
  int64_t gap_bytes = kCacheLine;
  if (form.layout != InputLayout::kRows)
    gap_bytes = code_bytes > kMaxWholeRowBytes ? kInterleavedGapBytes : 0;
  return {values_.as<float>(),
          view.num_columns + kCacheLine / 4,
          codes_.get(),
          code_bytes + gap_bytes,
          &form,
          scales_.as<float>(),
          corrections_.as<int32_t>()};
}

bool LinearRunner::is_streamed(const LinearView& w, const OutputRows& output, int64_t num_tokens) {
  const bool aligned = reinterpret_cast<uintptr_t>(output.values) % kCacheLine == 0 &&
                       output.row_stride * 4 % kCacheLine == 0;
  const int64_t output_columns = output.gated ? w.num_rows / 2 : w.num_rows;
  return aligned && !output.accumulate && !output.activated && output.next == nullptr &&
         num_tokens * output_columns * 4 > kStreamedBytes;
}

void LinearRunner::multiply(const PackedLinear& part, const InputRows& rows, int64_t num_tokens,
                            OutputRows output) {
  const LinearView& w = part.view();
  const int64_t num_panels = part.num_panels();
  output.streamed = is_streamed(w, output, num_tokens);
  const int64_t weight_bytes = w.num_rows * w.num_columns * weight_bits(w.kind) / 8;
  if (num_tokens >= kSharedTokens * pool_.num_threads() && weight_bytes <= kMaxSharedWeightBytes) {
    // What is left over belongs to the last block: kernels of many tokens get no few.
    const int64_t num_blocks = num_tokens / kSharedTokens;
    return pool_.run_items(num_blocks, [&](int share, const Range& blocks) {
      const int64_t first = blocks.begin * kSharedTokens;
      const int64_t end = blocks.end == num_blocks ? num_tokens : blocks.end * kSharedTokens;
      OutputRows own = output;
      own.values += first * output.row_stride;
      NextInput next{};
      if (output.next != nullptr) {
        const LinearView& reader = *output.next->weight;
        next = {&reader, rows_from(reader, output.next->rows, first)};
        own.next = &next;
      }
      kernels_.linear(w, rows_from(w, rows, first), own, end - first, 0, num_panels,
                      scratch_.as<uint8_t>() + share * scratch_bytes_);
    });
  }
  const int64_t unit = unit_panels(output, num_panels, pool_.num_threads());
  pool_.run_items(divide_up(num_panels, unit), [&](int share, const Range& units) {
    kernels_.linear(w, rows, output, num_tokens, units.begin * unit,
                    std::min(units.end * unit, num_panels),
                    scratch_.as<uint8_t>() + share * scratch_bytes_);
  });
}

void LinearRunner::multiply_split(const PackedLinear& part, const InputRows& rows,
                                  int64_t num_tokens, OutputRows output) {
  const LinearView& w = part.view();
  output.streamed = is_streamed(w, output, num_tokens);
  const int64_t num_panels = part.num_panels();
  const int64_t unit = unit_panels(output, num_panels, pool_.num_threads());
  const int64_t num_rows = 2 * num_tokens;
  const int64_t fitting = sums_bytes_ / (num_rows * kLanes * 4) / unit * unit;
  LinearView plain = w;
  plain.bias = nullptr;
  pool_.run_items(divide_up(num_panels, unit), [&](int share, const Range& units) {
    float* sums = sums_.as<float>() + share * sums_bytes_ / 4;
    const int64_t end = std::min(units.end * unit, num_panels);
    for (int64_t panel = units.begin * unit; panel < end; panel += fitting) {
      const int64_t part_end = std::min(panel + fitting, end);
      const int64_t stride = (part_end - panel) * kLanes;
      const OutputRows waiting{sums - panel * kLanes, stride, false, false, false,
                               Activation::kRelu};
      kernels_.linear(plain, rows, waiting, num_rows, panel, part_end,
                      scratch_.as<uint8_t>() + share * scratch_bytes_);
      kernels_.finish_split(w, output, {sums, stride}, num_tokens, panel, part_end);
    }
  });
}

}  // namespace paredown
