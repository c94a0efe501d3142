// The bf16 numbers of e4m3's subnormal codes 0 to 7, which count 2^-9, by byte. Shifting a code's
// bits into a float's place would make subnormal floats of them, which processors trap on or take
// for zeros.
#pragma once

#include <cstdint>

namespace paredown {
namespace {

alignas(16) constexpr uint8_t kSubnormalLow[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x20, 0x40, 0x60};
alignas(16) constexpr uint8_t kSubnormalHigh[16] = {0x00, 0x3B, 0x3B, 0x3B, 0x3C, 0x3C, 0x3C, 0x3C};
// What bits 4 to 6 of a normal code are added to: the exponents differ by 120.
constexpr uint8_t kNormalHigh = 0x3C;

}  // namespace
}  // namespace paredown
