#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "check/checks.h"
#include "check/random.h"
#include "machine/aligned_buffer.h"
#include "model/linear_runner.h"
#include "weights/bitmap.h"
#include "weights/decode_row.h"

namespace paredown {
namespace {

// Rows and columns fill neither a panel nor a run of blocks.
constexpr int64_t kRows = 75;
constexpr int64_t kColumns = 1184;

struct BitmapCase {
  const char* name;
  WeightKind kind;
  Activations activations;
  int64_t group_size;
  bool short_exponents;
};

constexpr BitmapCase kCases[] = {
    {"int8 in groups", WeightKind::kInt8, Activations::kInt8Group, 32, false},
    {"int8 rows", WeightKind::kInt8, Activations::kInt8Row, kColumns, false},
    {"bf16", WeightKind::kBf16, Activations::kBf16, kColumns, false},
    {"bf16 in 12 bits", WeightKind::kBf16, Activations::kBf16, kColumns, true},
};

// Half of the numbers are zeros; of the others in bf16 few have a rare exponent.
class BitmapSource {
 public:
  BitmapSource(const BitmapCase& test, Random& random)
      : scales_(floats(random, kRows * kColumns / test.group_size, 0.02f, 0.01f)) {
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      const bool is_zero = below(random, 2) == 0;
      codes_.push_back(static_cast<uint8_t>(is_zero ? kZeroCode : below(random, 256)));
      const int64_t exponent =
          below(random, 3000) == 0 ? below(random, 200) : 114 + below(random, 13);
      const int64_t word = below(random, 2) << 15 | exponent << 7 | below(random, 128);
      words_.push_back(static_cast<uint16_t>(is_zero ? 0 : word));
    }
    source_.kind = test.kind;
    source_.activations = test.activations;
    source_.num_rows = kRows;
    source_.num_columns = kColumns;
    source_.group_size = test.group_size;
    source_.short_exponents = test.short_exponents;
    if (test.kind == WeightKind::kInt8) {
      source_.arrays["values"] = source_array(codes_, kRows);
      source_.arrays["scales"] = source_array(scales_, kRows);
    } else {
      source_.arrays["values"] = source_array(words_, kRows);
    }
  }

  PackedLinear packed(BitmapChoice choice, ThreadPool& pool) {
    source_.bitmap = choice;
    return PackedLinear(source_, pool);
  }

 private:
  std::vector<float> scales_;
  std::vector<uint8_t> codes_;
  std::vector<uint16_t> words_;
  LinearSource source_{};
};

std::vector<float> outputs(const LinearGroup& group, Isa isa, int64_t num_tokens,
                           ThreadPool& pool) {
  const LinearView& view = group.parts.front().view();
  LinearRunner runner(kernel_table(isa), pool);
  runner.reserve(num_tokens, view.num_columns);
  std::vector<float> output(static_cast<size_t>(num_tokens * view.num_rows));
  auto row = [&](int64_t token, float* buffer) {
    Random random(static_cast<uint32_t>(token));
    const std::vector<float> numbers = floats(random, view.num_columns, 0.0f, 1.0f);
    std::copy(numbers.begin(), numbers.end(), buffer);
    return buffer;
  };
  runner.run(group, num_tokens, row,
             {output.data(), view.num_rows, false, false, false, Activation::kRelu});
  return output;
}

// On every set, with as many tokens as every form takes.
bool has_dense_bits(BitmapSource& source, ThreadPool& pool) {
  LinearGroup dense;
  LinearGroup bitmap;
  dense.parts.push_back(source.packed(BitmapChoice::kNever, pool));
  bitmap.parts.push_back(source.packed(BitmapChoice::kAlways, pool));
  if (!traits_of(bitmap.parts.front().view().kind).is_bitmap) return false;
  for (Isa isa : supported_isas()) {
    for (const int64_t num_tokens : {1, 2, 7, 16, 40}) {
      const std::vector<float> expected = outputs(dense, isa, num_tokens, pool);
      const std::vector<float> found = outputs(bitmap, isa, num_tokens, pool);
      if (std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) != 0) {
        std::printf("on %s, %d tokens: ", isa_name(isa), static_cast<int>(num_tokens));
        return false;
      }
    }
  }
  return true;
}

bool has_dense_rows(BitmapSource& source, ThreadPool& pool) {
  const PackedLinear dense = source.packed(BitmapChoice::kNever, pool);
  const PackedLinear bitmap = source.packed(BitmapChoice::kAlways, pool);
  const PackedLinear borrowed(bitmap.shape(), bitmap.bytes());
  std::vector<float> found(kColumns);
  std::vector<float> expected(kColumns);
  for (int64_t row = 0; row < kRows; ++row) {
    if (has_decoded_rows(dense.view())) {
      decode_row(dense.view(), row, expected.data());
      decode_row(borrowed.view(), row, found.data());
    } else {
      dense.copy_row(row, expected.data());
      borrowed.copy_row(row, found.data());
    }
    if (std::memcmp(found.data(), expected.data(), kColumns * 2) != 0) return false;
  }
  return true;
}

// Where something is that a reader relies on: a mask, a byte that says that a block is wide, the
// place of a run; or any byte.
int64_t forged_place(const PackedLinear& packed, Random& random) {
  const Sections found = sections(packed.shape());
  const LinearView& view = packed.view();
  const int64_t num_places = (kRows + kLanes - 1) / kLanes * num_runs(view.num_columns);
  const int64_t run = below(random, num_places);
  switch (below(random, 4)) {
    case 0:
      return found.runs + 8 * run + below(random, 8);
    case 1:
      return below(random, found.end);
    default:
      return view.bitmap.runs[run] + below(random, kMaskBytes + 1);
  }
}

// Bytes that a file may claim are refused, or multiplied with without leaving their memory.
bool forged_bytes_are_checked(BitmapSource& source, Random& random, ThreadPool& pool) {
  const PackedLinear packed = source.packed(BitmapChoice::kAlways, pool);
  int64_t num_refused = 0;
  int64_t num_taken = 0;
  for (int round = 0; round < 400; ++round) {
    PackedShape shape = packed.shape();
    if (below(random, 8) == 0) shape.bitmap_bytes += below(random, 129) - 64;
    AlignedBuffer memory(sections(shape).end);
    auto* data = memory.as<uint8_t>();
    const int64_t size = std::min<int64_t>(memory.num_bytes(), std::ssize(packed.bytes()));
    std::memcpy(data, packed.bytes().data(), static_cast<size_t>(size));
    for (int64_t left = below(random, 3); left > 0; --left) {
      const int64_t place = forged_place(packed, random);
      if (place < size) data[place] = static_cast<uint8_t>(below(random, 256));
    }
    LinearGroup group;
    try {
      group.parts.emplace_back(
          shape, std::span<const uint8_t>(data, static_cast<size_t>(sections(shape).end)));
    } catch (const std::invalid_argument&) {
      ++num_refused;
      continue;
    }
    ++num_taken;
    if (num_taken > 20) continue;
    for (Isa isa : supported_isas()) {
      outputs(group, isa, 1, pool);
      outputs(group, isa, 20, pool);
    }
  }
  return num_refused > 0 && num_taken > 0;
}

}  // namespace

void check_bitmaps(Outcome& outcome) {
  Random random(24);
  ThreadPool pool(2);
  for (const BitmapCase& test : kCases) {
    BitmapSource source(test, random);
    auto count = [&](bool passed, const char* what) {
      outcome.count(passed);
      if (!passed) std::printf("a bitmap of %s %s\n", test.name, what);
    };
    count(has_dense_bits(source, pool), "has other products than the dense weight");
    count(has_dense_rows(source, pool), "has other rows than the dense weight");
    count(forged_bytes_are_checked(source, random, pool), "is not checked");
  }
}

}  // namespace paredown
