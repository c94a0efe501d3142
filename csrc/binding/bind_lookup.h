#pragma once

#include <nanobind/nanobind.h>

namespace paredown {

// Adds the suffix index to the module.
void bind_lookup(nanobind::module_& m);

}  // namespace paredown
