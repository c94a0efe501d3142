#pragma once

#include <nanobind/nanobind.h>

namespace paredown {

// Adds attention on its own, for tests and benchmarks of the kernels.
void bind_attention(nanobind::module_& m);

}  // namespace paredown
