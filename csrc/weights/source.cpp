#include "weights/source.h"

#include <set>
#include <stdexcept>

namespace paredown {
namespace {

constexpr const char* kGroupsMisfit =
    "scales and zero points must be [rows, columns / group_size]; with steps of that shape scales "
    "are [rows, 1]";

Element value_element(WeightKind kind) {
  const WeightTraits& traits = traits_of(kind);
  if (traits.is_blocked) return Element::kByte;
  if (traits.source_bytes == 4 * traits.block_columns) return Element::kFloat;
  return traits.source_bytes == 2 * traits.block_columns ? Element::kWord : Element::kByte;
}

// Null where there is none.
const SourceArray* find(const LinearSource& source, const char* name) {
  const auto found = source.arrays.find(name);
  return found == source.arrays.end() ? nullptr : &found->second;
}

template <class Number>
const Number* take(const LinearSource& source, const char* name, int64_t num_columns,
                   const char* misfit) {
  const SourceArray* found = find(source, name);
  if (found == nullptr) return nullptr;
  if (found->element != element_of<Number>() || found->num_rows != source.num_rows ||
      found->num_columns != num_columns) {
    throw std::invalid_argument(misfit);
  }
  return static_cast<const Number*>(found->data);
}

void refuse_others(const LinearSource& source, const std::set<std::string>& known) {
  for (const auto& [name, array] : source.arrays) {
    if (!known.contains(name)) {
      throw std::invalid_argument("a weight of this kind has no array '" + name + "'");
    }
  }
}

}  // namespace

int64_t columns_of(WeightKind kind, const SourceArray& values) {
  const WeightTraits& traits = traits_of(kind);
  // An array without rows may claim any number of columns.
  if (values.num_rows < 1 || values.num_rows > kMaxSize || values.num_columns < 1 ||
      values.num_columns > kMaxSize) {
    throw std::invalid_argument("values have 1 to 2^28 rows and columns");
  }
  if (!traits.is_blocked) return values.num_columns;
  if (values.num_columns % traits.source_bytes != 0) {
    throw std::invalid_argument("rows of values must be whole blocks");
  }
  return values.num_columns / traits.source_bytes * traits.block_columns;
}

SourceNumbers numbers_of(const LinearSource& source) {
  SourceNumbers numbers{};
  const SourceArray* values = find(source, "values");
  if (values == nullptr || values->num_rows != source.num_rows ||
      columns_of(source.kind, *values) != source.num_columns) {
    throw std::invalid_argument("values must be [rows, columns]");
  }
  if (values->element != value_element(source.kind)) {
    throw std::invalid_argument("the weight's elements do not have the size of its kind");
  }
  numbers.values = static_cast<const uint8_t*>(values->data);
  numbers.bias = take<float>(source, "bias", 1, "the bias must have one entry per row");
  if (!traits_of(source.kind).has_scales()) {
    refuse_others(source, {"values", "bias"});
    return numbers;
  }
  refuse_others(source, {"values", "scales", "zero_points", "steps", "bias"});
  if (!is_integer(source.kind) && find(source, "zero_points") != nullptr) {
    throw std::invalid_argument("only integer codes have zero points");
  }
  if (source.group_size < 1 || source.group_size > source.num_columns) {
    throw std::invalid_argument("group_size must be from 1 to the number of columns");
  }
  const int64_t num_groups = source.num_columns / source.group_size;
  numbers.steps = take<uint8_t>(source, "steps", num_groups, kGroupsMisfit);
  numbers.scales =
      take<float>(source, "scales", numbers.steps == nullptr ? num_groups : 1, kGroupsMisfit);
  numbers.zero_points = take<uint8_t>(source, "zero_points", num_groups, kGroupsMisfit);
  if (numbers.scales == nullptr) throw std::invalid_argument(kGroupsMisfit);
  return numbers;
}

}  // namespace paredown
