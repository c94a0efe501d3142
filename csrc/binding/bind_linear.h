#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "binding/arrays.h"
#include "weights/source.h"

namespace paredown {

// A weight that Python gives, with the arrays that it points into.
struct GivenLinear {
  LinearSource source;
  std::vector<AnyArray> arrays;
};

// Reads the fields of a LinearSource (kernels/linear_source.py). Throws std::invalid_argument for a
// field that is missing, unknown or of the wrong type.
GivenLinear read_linear(const nanobind::dict& fields);

// Adds a weight on its own, for tests and benchmarks of the kernels.
void bind_linear(nanobind::module_& m);

}  // namespace paredown
