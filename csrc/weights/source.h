// A weight before packing: named arrays, and how they are to be read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"

namespace paredown {

// How a weight takes its input: as it is; rounded to bf16; or int8 codes with a scale per row and
// group, per row (dynamic), or one given scale (static); or two codes for a number, each with a
// scale per row and group.
enum class Activations { kFp32, kBf16, kInt8Group, kInt16Group, kInt8Row, kInt8Static };

// When the zeros of a weight become a bit each (weights/bitmap.h).
enum class BitmapChoice { kWherePays, kNever, kAlways };

enum class Element { kByte, kWord, kFloat };

template <class Number>
constexpr Element element_of() {
  if (sizeof(Number) == 1) return Element::kByte;
  return sizeof(Number) == 2 ? Element::kWord : Element::kFloat;
}

// Rows of numbers, one after the other; whoever gives them keeps them.
struct SourceArray {
  const void* data = nullptr;
  Element element = Element::kByte;
  int64_t num_rows = 0;
  int64_t num_columns = 0;
};

template <class Number>
SourceArray source_array(const std::vector<Number>& numbers, int64_t num_rows) {
  return {numbers.data(), element_of<Number>(), num_rows,
          static_cast<int64_t>(numbers.size()) / num_rows};
}

// N output rows of K columns. Its arrays, by name:
//   values       [N][K]  floats, 16-bit words (fp16, bf16) or one byte per code (unsigned, or
//                        e4m3); or rows of blocks, [N][bytes]
//   scales       [N][G]  of codes: one float for group_size columns; [N][1] with steps
//   zero_points  [N][G]  bytes; may be missing
//   steps        [N][G]  bytes; int4 with int8 inputs of one scale per row. The scale of a group is
//                        that of the row times the step, 1 to 16; (code - zero point) * step is
//                        from -128 to 127
//   bias         [N][1]  floats; may be missing
struct LinearSource {
  WeightKind kind;
  Activations activations;
  int64_t num_rows;
  int64_t num_columns;
  int64_t group_size;  // codes: columns per scale; num_columns when one per row
  float input_scale;   // kInt8Static
  std::map<std::string, SourceArray> arrays;
  bool gated;  // rows are gate above up; their panels are packed in turn
  // bf16 with bf16 inputs: packed as kBf16Short where most blocks are not wide.
  bool short_exponents;
  BitmapChoice bitmap;
};

// Columns of a row of values: as many as it has numbers, or those of its blocks. Throws
// std::invalid_argument for a part of one.
int64_t columns_of(WeightKind kind, const SourceArray& values);

constexpr int64_t source_row_bytes(WeightKind kind, int64_t num_columns) {
  return num_columns * traits_of(kind).source_bytes / traits_of(kind).block_columns;
}

// The arrays of a source, null where it has none.
struct SourceNumbers {
  const uint8_t* values;
  const float* scales;
  const uint8_t* zero_points;
  const uint8_t* steps;
  const float* bias;
};

// Throws std::invalid_argument for arrays that do not fit each other, and for an array that a
// weight of this kind does not have.
SourceNumbers numbers_of(const LinearSource& source);

}  // namespace paredown
