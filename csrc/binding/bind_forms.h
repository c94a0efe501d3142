#pragma once

#include <nanobind/nanobind.h>

namespace paredown {

// Adds the tables of kernels of an instruction set, for `doctor` and for tests.
void bind_forms(nanobind::module_& m);

}  // namespace paredown
