#include "retrieve/vectors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "weights/pack_block.h"

namespace paredown {
namespace {

constexpr int kZeroPoint = 128;  // of int8 codes, which lie as unsigned bytes
constexpr float kLargestCode = 127.0f;

uint16_t rounded_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

// One vector as rows of a weight come; returns its scale.
float encode(WeightKind kind, const float* vector, int64_t num_dims, uint8_t* row) {
  if (kind == WeightKind::kFp32) {
    std::memcpy(row, vector, static_cast<size_t>(num_dims) * sizeof(float));
    return 1.0f;
  }
  if (kind == WeightKind::kBf16) {
    for (int64_t i = 0; i < num_dims; ++i) {
      const uint16_t number = rounded_to_bf16(vector[i]);
      std::memcpy(row + 2 * i, &number, sizeof(number));
    }
    return 1.0f;
  }
  float largest = 0.0f;
  for (int64_t i = 0; i < num_dims; ++i) largest = std::max(largest, std::fabs(vector[i]));
  // As queries are rounded (kernels/linear/prepare.h), but that of a vector so small that its
  // inverse is infinite nothing is kept.
  float inverse = kLargestCode / largest;
  if (!std::isfinite(inverse)) inverse = 0.0f;
  for (int64_t i = 0; i < num_dims; ++i) {
    const float code = std::clamp(std::nearbyint(vector[i] * inverse), -kLargestCode, kLargestCode);
    row[i] = static_cast<uint8_t>(static_cast<int>(code) + kZeroPoint);
  }
  return inverse == 0.0f ? 0.0f : largest / kLargestCode;
}

int64_t number_bytes(WeightKind kind) { return weight_bits(kind) / 8; }

// body(vector, lane, panel's bytes) for all vectors.
template <class Bytes, class Body>
void for_vectors(const VectorShape& shape, Bytes* values, Body&& body) {
  for (int64_t i = 0; i < shape.num_vectors; ++i) {
    body(i, i % kLanes, values + i / kLanes * shape.panel_bytes());
  }
}

}  // namespace

void check_vectors(const VectorShape& shape) {
  if (shape.kind != WeightKind::kFp32 && shape.kind != WeightKind::kBf16 &&
      shape.kind != WeightKind::kInt8) {
    throw std::invalid_argument("vectors are kept in fp32, bf16 or int8");
  }
  if (shape.num_dims < 1 || shape.num_dims > kMaxVectorDims) {
    throw std::invalid_argument("vectors have 1 to 65536 dimensions, not " +
                                std::to_string(shape.num_dims));
  }
  if (shape.num_vectors < 1 || shape.num_vectors > kMaxVectors) {
    throw std::invalid_argument("there are 1 to 2^32 vectors, not " +
                                std::to_string(shape.num_vectors));
  }
}

void pack_vectors(const VectorShape& shape, const float* vectors, uint8_t* values, float* scales) {
  const uint8_t padding = shape.kind == WeightKind::kInt8 ? kZeroPoint : 0;
  std::fill_n(values, shape.num_bytes(), padding);
  std::fill_n(scales, shape.num_scales(), 0.0f);
  const int64_t size = number_bytes(shape.kind);
  std::vector<uint8_t> row(static_cast<size_t>(shape.num_columns() * size), padding);
  for_vectors(shape, values, [&](int64_t i, int64_t lane, uint8_t* block) {
    const float scale =
        encode(shape.kind, vectors + i * shape.num_dims, shape.num_dims, row.data());
    if (shape.has_scales()) scales[i] = scale;
    for (int64_t k = 0; k < shape.num_columns(); k += kBlockColumns) {
      pack_block(shape.kind, row.data() + k * size, kBlockColumns, lane, block);
      block += block_bytes(shape.kind);
    }
  });
}

void unpack_vectors(const VectorShape& shape, const uint8_t* values, const float* scales,
                    float* vectors) {
  for_vectors(shape, values, [&](int64_t i, int64_t lane, const uint8_t* panel) {
    float* vector = vectors + i * shape.num_dims;
    for (int64_t k = 0; k < shape.num_dims; ++k) {
      switch (shape.kind) {
        case WeightKind::kFp32:
          std::memcpy(vector + k, panel + (k * kLanes + lane) * 4, 4);
          break;
        case WeightKind::kBf16: {
          uint16_t number;
          std::memcpy(&number, panel + (k / 2 * kLanes + lane) * 4 + k % 2 * 2, sizeof(number));
          vector[k] = std::bit_cast<float>(static_cast<uint32_t>(number) << 16);
          break;
        }
        default: {
          const int code = panel[(k / 4 * kLanes + lane) * 4 + k % 4] - kZeroPoint;
          vector[k] = static_cast<float>(code) * scales[i];
        }
      }
    }
  });
}

LinearView view_of(const VectorShape& shape, const uint8_t* values, const float* scales) {
  LinearView view{};
  view.kind = shape.kind;
  view.scale_kind = ScaleKind::kFp32;
  view.input = InputKind::kFp32;
  if (shape.kind == WeightKind::kBf16) view.input = InputKind::kBf16;
  if (shape.kind == WeightKind::kInt8) view.input = InputKind::kInt8;
  view.num_rows = shape.num_rows();
  view.num_columns = view.group_size = shape.num_columns();
  view.num_groups = view.weight_groups = view.input_groups = 1;
  view.input_codes = 1;
  view.values = values;
  view.scales = shape.has_scales() ? scales : nullptr;
  return view;
}

}  // namespace paredown
