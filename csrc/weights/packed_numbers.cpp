#include "weights/packed_numbers.h"

#include <algorithm>
#include <stdexcept>

#include "machine/round_up.h"
#include "weights/bitmap.h"
#include "weights/short_bf16.h"

namespace paredown {
namespace {

constexpr int kMaxStep = 16;
constexpr int kLargestCode = 15;  // of the four-bit codes that have steps

// One for all lanes of all panels; a simple maximum, which compilers make wide.
uint8_t largest(const uint8_t* bytes, int64_t count) {
  uint8_t found = 0;
  for (int64_t i = 0; i < count; ++i) found = std::max(found, bytes[i]);
  return found;
}

// Lanes behind the last row have steps of 0.
bool steps_fit(const LinearView& w, int64_t count) {
  int most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int step = w.steps[i];
    const int offset = w.step_offsets == nullptr ? 128 - 8 * step : w.step_offsets[i];
    most = std::max({most, step <= kMaxStep ? 0 : 256, kLargestCode * step + offset});
  }
  return most < 256;
}

}  // namespace

void check_numbers(const LinearView& w, const PackedShape& shape) {
  if (traits_of(w.kind).is_bitmap && !bitmap_holds(w, shape.bitmap_bytes)) {
    throw std::invalid_argument("a packed weight has other numbers than its bitmap counts");
  }
  if (w.kind == WeightKind::kBf16Short && !ranks_fit(w, shape.num_wide_blocks)) {
    throw std::invalid_argument("a packed weight names a wide block that it does not have");
  }
  const int64_t rows = round_up(w.num_rows, kLanes);
  if (w.zero_points != nullptr &&
      largest(w.zero_points, rows * w.weight_groups) >> weight_bits(w.kind) != 0) {
    throw std::invalid_argument("a packed weight has a zero point that is none of its codes");
  }
  if (w.steps != nullptr && !steps_fit(w, rows * w.num_steps)) {
    throw std::invalid_argument("a packed weight has a step that leaves int8");
  }
}

}  // namespace paredown
