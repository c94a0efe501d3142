// Which instruction sets this build knows, this processor has, and which one is in use.
#pragma once

#include <string>
#include <vector>

namespace paredown {

enum class Isa { kGeneric, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// "generic", "avx2", "avx512" (with VNNI), "avx512_bf16" (with VNNI and BF16), "amx" (the last one
// and matrix tiles of int8 and bf16).
const char* isa_name(Isa isa);

// In rising order of preference; the last one is the default.
std::vector<Isa> supported_isas();

// An empty name means the best supported set; an unknown or unsupported one throws
// std::invalid_argument that says what there is.
Isa choose_isa(const std::string& name);

}  // namespace paredown
