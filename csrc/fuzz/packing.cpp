// What a checkpoint's tensors bring to the core: a weight of any kind, blocks of GGUF files among
// them, from arrays of any shape. What is packed can be borrowed, read row by row and multiplied.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "model/linear_runner.h"
#include "weights/decode_row.h"
#include "weights/packed_linear.h"

namespace paredown {
namespace {

constexpr int64_t kMostNumbers = int64_t{1} << 16;

// An array of its own memory, which ends where the array ends; at times it claims to be larger or
// smaller than the others are.
class Arrays {
 public:
  SourceArray add(FuzzInput& input, Element element, int64_t num_rows, int64_t num_columns) {
    if (input.below(64) == 1) num_rows = input.number();
    if (input.below(64) == 1) num_columns = input.number();
    if (input.below(64) == 1) element = static_cast<Element>(input.below(3));
    const int64_t width = element == Element::kByte ? 1 : element == Element::kWord ? 2 : 4;
    const bool is_real = num_rows >= 0 && num_columns >= 0 && num_rows <= kMostNumbers &&
                         num_columns <= kMostNumbers && num_rows * num_columns <= kMostNumbers;
    // No array has more numbers than memory: what claims so has no rows.
    if (!is_real) return {nullptr, element, 0, num_columns};
    memory_.push_back(input.bytes(num_rows * num_columns * width));
    return {memory_.back().data(), element, num_rows, num_columns};
  }

 private:
  std::vector<std::vector<uint8_t>> memory_;
};

// Numbers of scales: whole ones and parts of them, at times any bits.
SourceArray scales(FuzzInput& input, std::vector<float>& memory, int64_t num_rows,
                   int64_t num_groups) {
  const bool is_any = input.below(8) == 1;
  for (int64_t i = 0; i < num_rows * num_groups; ++i) {
    memory.push_back(is_any ? input.take<float>() : static_cast<float>(input.below(99)) / 16.0f);
  }
  return {memory.data(), Element::kFloat, num_rows, num_groups};
}

void read_rows(const PackedLinear& packed) {
  const LinearView& view = packed.view();
  std::vector<float> row(static_cast<size_t>(view.num_columns));
  const bool has_numbers = view.kind == WeightKind::kFp32 || view.kind == WeightKind::kFp16 ||
                           view.kind == WeightKind::kBf16 || view.kind == WeightKind::kBf16Short ||
                           view.kind == WeightKind::kBf16Bitmap ||
                           view.kind == WeightKind::kBf16ShortBitmap;
  for (const int64_t index : {int64_t{0}, view.num_rows - 1}) {
    if (has_decoded_rows(view)) decode_row(view, index, row.data());
    if (has_numbers) packed.copy_row(index, row.data());
  }
}

void multiply(const LinearGroup& group, int64_t num_tokens, ThreadPool& pool) {
  const LinearView& view = group.parts.front().view();
  LinearRunner runner(kernel_table(Isa::kGeneric), pool);
  runner.reserve(num_tokens, view.num_columns);
  std::vector<float> output(static_cast<size_t>(num_tokens * view.num_rows));
  auto row = [&](int64_t token, float* buffer) {
    for (int64_t i = 0; i < view.num_columns; ++i) buffer[i] = static_cast<float>(i % 7 - token);
    return buffer;
  };
  runner.run(group, num_tokens, row,
             {output.data(), view.num_rows, false, false, false, Activation::kRelu});
}

void run(FuzzInput& input) {
  static ThreadPool pool(1);
  LinearSource source{};
  const WeightTraits& traits = kWeightTraits[input.below(std::ssize(kWeightTraits))];
  source.kind = traits.kind;
  source.activations = static_cast<Activations>(input.below(6));
  source.num_rows = input.below(48) + 1;
  const int64_t columns = input.below(4) == 1 ? input.below(300) + 1 : (input.below(8) + 1) * 32;
  source.group_size = input.below(2) == 0 ? (input.below(4) + 1) * 32 : input.number();
  source.input_scale = input.below(4) == 1 ? input.take<float>() : 0.1f;
  source.gated = input.below(8) == 1;
  source.short_exponents = input.below(2) == 0;
  Arrays arrays;
  std::vector<float> scale_numbers;
  std::vector<float> bias;
  const int64_t width = traits.source_bytes / traits.block_columns;
  const Element element = traits.is_blocked || width == 1 ? Element::kByte
                          : width == 2                    ? Element::kWord
                                                          : Element::kFloat;
  const int64_t row_numbers =
      traits.is_blocked ? (columns / traits.block_columns + 1) * traits.source_bytes : columns;
  source.arrays["values"] = arrays.add(input, element, source.num_rows, row_numbers);
  source.num_columns = columns_of(source.kind, source.arrays["values"]);
  source.num_rows = source.arrays["values"].num_rows;
  const bool is_sound = source.group_size >= 1 && source.group_size <= source.num_columns;
  const int64_t num_groups = is_sound ? source.num_columns / source.group_size : 1;
  const bool has_steps = input.below(8) == 1;
  if (traits.has_scales() || input.below(32) == 1) {
    source.arrays["scales"] =
        scales(input, scale_numbers, source.num_rows, has_steps ? 1 : num_groups);
    if (input.below(2) == 0) {
      source.arrays["zero_points"] = arrays.add(input, Element::kByte, source.num_rows, num_groups);
    }
  }
  if (has_steps) {
    source.arrays["steps"] = arrays.add(input, Element::kByte, source.num_rows, num_groups);
  }
  if (input.below(3) == 1) source.arrays["bias"] = scales(input, bias, source.num_rows, 1);
  source.bitmap = static_cast<BitmapChoice>(input.below(3));
  LinearGroup group;
  const PackedLinear packed(source, pool);
  try {
    group.parts.emplace_back(packed.shape(), packed.bytes());
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "a weight that was packed is refused: %s\n", error.what());
    std::abort();
  }
  read_rows(group.parts.front());
  multiply(group, input.below(3) == 1 ? 20 : 1, pool);
}

}  // namespace
}  // namespace paredown

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  paredown::FuzzInput input(data, size);
  try {
    paredown::run(input);
  } catch (const std::invalid_argument&) {  // the one way in which it refuses
  }
  return 0;
}
