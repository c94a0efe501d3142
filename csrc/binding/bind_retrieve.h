#pragma once

#include <nanobind/nanobind.h>

namespace paredown {

// Adds the search in an index of vectors, and the packing of them.
void bind_retrieve(nanobind::module_& m);

}  // namespace paredown
