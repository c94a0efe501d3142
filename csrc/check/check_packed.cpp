#include <cstdio>
#include <cstring>

#include "check/checks.h"
#include "check/random.h"
#include "machine/hash.h"
#include "weights/packed_linear.h"
#include "weights/short_bf16.h"

namespace paredown {
namespace {

// Rows and columns fill neither a panel nor a block.
constexpr int64_t kRows = 37;
constexpr int64_t kColumns = 70;

// What was packed lies whole in its bytes: another weight made of them has its rows.
bool rows_come_back(WeightKind kind, Random& random, ThreadPool& pool) {
  const auto row_bytes = static_cast<size_t>(kColumns * weight_bits(kind) / 8);
  std::vector<uint8_t> values(static_cast<size_t>(kRows) * row_bytes);
  for (uint8_t& value : values) value = static_cast<uint8_t>(below(random, 256));
  LinearSource source{};
  source.kind = kind;
  source.num_rows = kRows;
  source.num_columns = source.group_size = kColumns;
  source.arrays["values"] = {
      values.data(), kind == WeightKind::kFp32 ? Element::kFloat : Element::kWord, kRows, kColumns};
  const PackedLinear packed(source, pool);
  check_shape(packed.shape());
  const PackedLinear borrowed(packed.shape(), packed.bytes());
  std::vector<uint8_t> row(static_cast<size_t>(borrowed.view().num_columns) * sizeof(float));
  for (int64_t i = 0; i < kRows; ++i) {
    borrowed.copy_row(i, row.data());
    if (std::memcmp(row.data(), values.data() + static_cast<size_t>(i) * row_bytes, row_bytes)) {
      return false;
    }
  }
  PackedShape impossible = packed.shape();
  impossible.view.num_columns += 1;
  bool refused = is_refused([&] { check_shape(impossible); });
  impossible = packed.shape();
  impossible.view.num_rows = 0;
  refused = refused && is_refused([&] { check_shape(impossible); });
  impossible = packed.shape();
  impossible.has_scales = true;
  return refused && is_refused([&] { check_shape(impossible); });
}

// bf16 with short exponents, and few blocks that have others, gives back what it was made of.
bool short_rows_come_back(Random& random, ThreadPool& pool) {
  constexpr int64_t kWideRows = 300;
  std::vector<uint16_t> values(static_cast<size_t>(kWideRows * kColumns));
  for (uint16_t& value : values) {
    const int64_t sign_and_mantissa = below(random, 2) << 15 | below(random, 128);
    // Fifteen exponents beside that of the zeros after the columns and, now and then, a zero, a
    // subnormal number or one with any exponent.
    int64_t exponent = 110 + below(random, kShortExponents - 1);
    if (below(random, 1000) == 0) exponent = below(random, 2) * below(random, 256);
    value = static_cast<uint16_t>(sign_and_mantissa | exponent << 7);
  }
  LinearSource source{};
  source.kind = WeightKind::kBf16;
  source.activations = Activations::kBf16;
  source.num_rows = kWideRows;
  source.num_columns = source.group_size = kColumns;
  source.arrays["values"] = source_array(values, kWideRows);
  source.short_exponents = true;
  const PackedLinear packed(source, pool);
  const PackedShape shape = packed.shape();
  check_shape(shape);
  if (shape.view.kind != WeightKind::kBf16Short || shape.num_wide_blocks == 0) return false;
  const PackedLinear borrowed(shape, packed.bytes());
  std::vector<uint16_t> row(static_cast<size_t>(shape.view.num_columns));
  for (int64_t i = 0; i < kWideRows; ++i) {
    borrowed.copy_row(i, row.data());
    if (std::memcmp(row.data(), values.data() + i * kColumns, kColumns * 2) != 0) return false;
  }
  if (!ranks_fit(borrowed.view(), shape.num_wide_blocks) ||
      ranks_fit(borrowed.view(), shape.num_wide_blocks - 1)) {
    return false;
  }
  PackedShape impossible = shape;
  impossible.view.input = InputKind::kFp32;
  bool refused = is_refused([&] { check_shape(impossible); });
  impossible = shape;
  impossible.num_wide_blocks = -1;
  refused = refused && is_refused([&] { check_shape(impossible); });
  impossible = shape;
  impossible.view.kind = WeightKind::kBf16;
  return refused && is_refused([&] { check_shape(impossible); });
}

}  // namespace

void check_packed(Outcome& outcome) {
  Random random(22);
  ThreadPool pool(2);
  for (WeightKind kind : {WeightKind::kFp32, WeightKind::kFp16, WeightKind::kBf16}) {
    const bool passed = rows_come_back(kind, random, pool);
    outcome.count(passed);
    if (!passed) std::printf("packed rows of kind %d differ\n", static_cast<int>(kind));
  }
  const bool shortened = short_rows_come_back(random, pool);
  outcome.count(shortened);
  if (!shortened) std::printf("rows of bf16 with short exponents differ\n");
  const std::vector<uint8_t> text{'a', 'b', 'c'};
  const bool hashed = hash_chunks(text, 8, 2).front() == 0x44BC2CF5AD770999u;
  outcome.count(hashed);
  if (!hashed) std::printf("the hash of abc is wrong\n");
}

}  // namespace paredown
