#pragma once

#include <nanobind/nanobind.h>

#include "model/model.h"

namespace paredown {

// Adds steps, and what writes drafts, to the model's class.
void bind_steps(nanobind::class_<Model>& model);

}  // namespace paredown
