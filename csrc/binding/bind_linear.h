#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <string>

#include "binding/arrays.h"
#include "weights/packed_linear.h"

namespace paredown {

struct LinearArrays {
  std::string activations;
  float input_scale;
  AnyMatrix values;
  int64_t group_size;
  std::optional<Array<float, 2>> scales;
  std::optional<Array<uint8_t, 2>> zero_points;
  std::optional<Array<uint8_t, 2>> steps;
  std::optional<Array<float, 1>> bias;
};

// The weight that arrays hold. Throws std::invalid_argument where they do not fit each other.
LinearSource check_linear(const std::string& kind, const LinearArrays& arrays);

// Adds a weight on its own, for tests and benchmarks of the kernels.
void bind_linear(nanobind::module_& m);

}  // namespace paredown
