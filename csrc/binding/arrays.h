// Arrays of Python's as the core takes them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"

namespace paredown {

template <class T, int kDims>
using Array =
    nanobind::ndarray<const T, nanobind::ndim<kDims>, nanobind::c_contig, nanobind::device::cpu>;
using AnyMatrix =
    nanobind::ndarray<nanobind::ro, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
// Of one or two dimensions and any numbers.
using AnyArray = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;
using Ints = Array<int32_t, 1>;

using Bytes = Array<uint8_t, 1>;

inline std::span<const int32_t> ints(const Ints& array) { return {array.data(), array.size()}; }
inline std::span<const uint8_t> bytes_of(const Bytes& array) {
  return {array.data(), array.size()};
}

// Of an element of a table that comes in this kind.
inline int64_t element_bytes(WeightKind kind) {
  if (kind == WeightKind::kFp32) return 4;
  return kind == WeightKind::kFp16 || kind == WeightKind::kBf16 ? 2 : 1;
}

}  // namespace paredown
