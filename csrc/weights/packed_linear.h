// A weight in the layout of LinearView, in one piece of memory: its own, or borrowed.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernel_table.h"
#include "machine/aligned_buffer.h"
#include "machine/thread_pool.h"
#include "weights/packed_shape.h"
#include "weights/source.h"

namespace paredown {

class PackedLinear {
 public:
  // Throws std::invalid_argument when a group, the input or a step does not fit the weight.
  PackedLinear(const LinearSource& source, ThreadPool& pool);
  // A weight packed before. The bytes outlive it. Throws std::invalid_argument for a shape that no
  // weight has, for bytes that do not fit it (sections(shape).end of them, 64-byte aligned) and for
  // numbers in them that packing never makes: they may come out of a file.
  PackedLinear(const PackedShape& shape, std::span<const uint8_t> bytes);

  // One row of a float weight as it was before packing, num_columns numbers.
  void copy_row(int64_t row, void* values) const;

  const LinearView& view() const { return view_; }
  PackedShape shape() const;
  bool gated() const { return shape_.gated; }
  int64_t num_panels() const { return (view_.num_rows + kLanes - 1) / kLanes; }
  // Everything a step reads when it uses this weight.
  std::span<const uint8_t> bytes() const {
    return {static_cast<const uint8_t*>(view_.values), static_cast<size_t>(sections(shape_).end)};
  }

 private:
  void point_into(const uint8_t* data);
  int64_t packed_row(int64_t row) const;
  void pack_panel(const LinearSource& source, const SourceNumbers& numbers, int64_t panel);
  void shorten(ThreadPool& pool);
  bool becomes_bitmap(const LinearSource& source, bool is_shortened, ThreadPool& pool) const;
  void drop_zeros(int64_t num_columns, bool is_shortened, ThreadPool& pool);
  void pack_row_scales(const SourceNumbers& numbers);
  void pack_steps(const SourceNumbers& numbers);

  PackedShape shape_{};
  LinearView view_{};
  AlignedBuffer memory_;
};

}  // namespace paredown
