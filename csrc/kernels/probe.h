// What this machine can do at best with a given instruction set and number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "machine/isa.h"

namespace paredown {

// Operations per second of each of several short rounds. `unit`: "fp32", "bf16" or "int8".
std::vector<double> measure_peak(Isa isa, int num_threads, const std::string& unit);

// Bytes per second of each of several rounds in which all threads read a buffer of num_bytes again
// and again. A buffer that fits a cache measures that cache, which is the limit of a model that
// fits.
std::vector<double> measure_bandwidth(Isa isa, int num_threads, int64_t num_bytes);

// Mean seconds of one of num_regions parallel regions in a row, each share of which runs about
// `num_operations` float operations: 0 leaves the cost of starting and ending a region.
double measure_region(Isa isa, int num_threads, int64_t num_regions, int64_t num_operations);

}  // namespace paredown
