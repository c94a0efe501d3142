#pragma once

#include <nanobind/nanobind.h>

#include "model/model_config.h"

namespace paredown {

// The config that a dict describes. Throws std::invalid_argument for a field that is unknown,
// missing or of another type.
ModelConfig read_config(const nanobind::dict& options);

}  // namespace paredown
