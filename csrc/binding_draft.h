#pragma once

#include <nanobind/nanobind.h>

#include "model.h"

namespace paredown {

// Adds what writes drafts to the model's class.
void bind_drafts(nanobind::class_<Model>& model);

}  // namespace paredown
