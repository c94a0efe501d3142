#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "../hash.h"
#include "checks.h"
#include "random_model.h"

namespace paredown {
namespace {

// Rows and columns fill neither a panel nor a block.
constexpr int64_t kRows = 37;
constexpr int64_t kColumns = 70;

bool is_refused(const PackedShape& shape) {
  try {
    PackedLinear::check(shape);
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

// What was packed lies whole in its bytes: another weight made of them has its rows.
bool rows_come_back(WeightKind kind, Random& random, ThreadPool& pool) {
  const auto row_bytes = static_cast<size_t>(kColumns * weight_bits(kind) / 8);
  std::vector<uint8_t> values(static_cast<size_t>(kRows) * row_bytes);
  for (uint8_t& value : values) value = static_cast<uint8_t>(below(random, 256));
  LinearSource source{};
  source.kind = kind;
  source.num_rows = kRows;
  source.num_columns = source.group_size = kColumns;
  source.values = values.data();
  const PackedLinear packed(source, pool);
  PackedLinear::check(packed.shape());
  const PackedLinear borrowed(packed.shape(), packed.bytes().data());
  std::vector<uint8_t> row(static_cast<size_t>(borrowed.view().num_columns) * sizeof(float));
  for (int64_t i = 0; i < kRows; ++i) {
    borrowed.copy_row(i, row.data());
    if (std::memcmp(row.data(), values.data() + static_cast<size_t>(i) * row_bytes, row_bytes)) {
      return false;
    }
  }
  PackedShape impossible = packed.shape();
  impossible.view.num_columns += 1;
  bool refused = is_refused(impossible);
  impossible = packed.shape();
  impossible.view.num_rows = 0;
  refused = refused && is_refused(impossible);
  impossible = packed.shape();
  impossible.has_scales = true;
  return refused && is_refused(impossible);
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
  const std::vector<uint8_t> text{'a', 'b', 'c'};
  const bool hashed = hash_chunks(text, 8, 2).front() == 0x44BC2CF5AD770999u;
  outcome.count(hashed);
  if (!hashed) std::printf("the hash of abc is wrong\n");
}

}  // namespace paredown
