#include <algorithm>
#include <iterator>
#include <vector>

#include "weights/bitmap.h"
#include "weights/packed_linear.h"
#include "weights/packed_numbers.h"
#include "weights/short_bf16.h"

namespace paredown {

bool PackedLinear::becomes_bitmap(const LinearSource& source, bool is_shortened,
                                  ThreadPool& pool) const {
  if (source.bitmap == BitmapChoice::kNever || !may_be_bitmap(shape_)) return false;
  if (source.bitmap == BitmapChoice::kAlways) return true;
  const int bits = weight_bits(is_shortened ? WeightKind::kBf16Short : view_.kind);
  return bitmap_pays(bits, source.num_rows * source.num_columns,
                     count_zeros(view_, source.num_columns, pool));
}

// From int8 or bf16 to a bit for each number and those that are not zero.
void PackedLinear::drop_zeros(int64_t num_columns, bool is_shortened, ThreadPool& pool) {
  PackedShape shape = shape_;
  WeightKind& kind = shape.view.kind;
  const WeightKind of_bf16 = is_shortened ? WeightKind::kBf16ShortBitmap : WeightKind::kBf16Bitmap;
  kind = kind == WeightKind::kInt8 ? WeightKind::kInt8Bitmap : of_bf16;
  const std::vector<BitmapPanel> panels = bitmap_panels(view_, kind, num_columns, pool);
  for (const BitmapPanel& panel : panels) shape.bitmap_bytes += std::ssize(panel.bytes);
  shape_ = shape;
  const Sections found = sections(shape);
  memory_ = AlignedBuffer(found.end);
  auto* data = memory_.as<uint8_t>();
  auto* runs = reinterpret_cast<int64_t*>(data + found.runs);
  int64_t place = 0;
  for (size_t i = 0; i < panels.size(); ++i) {
    const BitmapPanel& panel = panels[i];
    runs = std::transform(panel.runs.begin(), panel.runs.end(), runs,
                          [place](int64_t run) { return place + run; });
    std::copy(panel.bytes.begin(), panel.bytes.end(), data + place);
    place += std::ssize(panel.bytes);
    if (kind != WeightKind::kBf16ShortBitmap) continue;
    std::copy(panel.upper_bytes.begin(), panel.upper_bytes.end(),
              data + found.upper_bytes + i * kUpperBytes);
  }
  point_into(data);
}

}  // namespace paredown
