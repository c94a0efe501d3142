#pragma once

#include <nanobind/nanobind.h>

namespace paredown {

// Adds the model's class, and what a step of one would take, to the module.
void bind_model(nanobind::module_& m);

}  // namespace paredown
