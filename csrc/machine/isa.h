// Which instruction sets this build knows, which this processor has, and which one is in use.
#pragma once

#include <string>
#include <vector>

namespace paredown {

// One entry per object of kernels, of all processors. docs/internals/instruction-sets.md says what
// each has.
enum class Isa {
  kGeneric,
  kAvx2,
  kAvx2Vnni,
  kAvx512,
  kAvx512Bf16,
  kAmx,
  kNeon,
  kNeonDotprod,
  kNeonI8mm,
};

const char* isa_name(Isa isa);

// The sets this build has kernels for, in rising order of preference.
std::vector<Isa> known_isas();

// Why this processor or system cannot run a set, in a few words; empty when it can.
std::string why_unavailable(Isa isa);

// The known sets that are available, in rising order of preference; the last one is the default.
std::vector<Isa> supported_isas();

// An empty name means the best supported set; an unknown or unsupported one throws
// std::invalid_argument that says what there is.
Isa choose_isa(const std::string& name);

}  // namespace paredown
