#pragma once

#include <nanobind/nanobind.h>

namespace paredown {

// Adds the sampler's classes and functions to the module.
void bind_sampling(nanobind::module_& m);

}  // namespace paredown
