// int4 codes with steps on AMX tiles: int8 codes of a stretch of columns are made while the tiles
// multiply the stretch before it, at an even pace, and serve all tokens.
#pragma once

#include "kernels/linear/tiles.h"

namespace paredown {
namespace {

#if defined(PAREDOWN_HAS_TILES)

// Column steps of a stretch when all tokens pass over it at once: half of kStretchSteps, so that
// codes stay in the first cache until their place is used again, beside the inputs and the packed
// codes that pass through it (8 tokens: 30 us instead of 41, docs/log.md 2026-11-22).
constexpr int64_t kOnePassSteps = 4;

// A stretch of columns of two panels, or of the last one.
struct StepStretch {
  int64_t panel;
  int64_t num_panels;  // 0: there is no such stretch
  int64_t first;
  int64_t num_columns;
};

// At most `limit` columns of a part from `first` on.
inline StepStretch step_stretch(const RowPart& part, int64_t panel, int64_t first, int64_t limit) {
  const int64_t left = part.first + part.num_columns - first;
  const int64_t num_panels = part.panel_end - panel < 2 ? part.panel_end - panel : 2;
  return {panel, num_panels, first, left < limit ? left : limit};
}

// What is left to be decoded of a stretch, in blocks of 32 columns of its panels. codes: B tiles,
// panel_bytes from one panel to the next.
class StepDecoder {
 public:
  StepDecoder(const LinearView& w, const StepStretch& stretch, uint8_t* codes, int64_t panel_bytes)
      : w_(w),
        block_(static_cast<const uint8_t*>(w.values) +
               (stretch.panel * w.num_columns + stretch.first) / 2 * kLanes),
        step_((stretch.panel * w.num_steps + stretch.first / w.step_size) * kLanes),
        columns_of_step_(w.step_size - stretch.first % w.step_size),
        num_panels_(stretch.num_panels),
        num_blocks_(stretch.num_panels > 0 ? stretch.num_columns / kBlockColumns : 0),
        ends_in_half_(stretch.num_columns % 64 != 0),
        codes_(codes),
        panel_bytes_(panel_bytes) {}

  int64_t num_blocks() const { return num_blocks_; }

  void decode_block() {
    constexpr int64_t kBytes = block_bytes(WeightKind::kInt4);
    const int64_t packed_bytes = w_.num_columns * kLanes / 2;
    unroll<2>([&](auto p) {
      if (p.value == num_panels_) return;
      const uint8_t* block = block_ + p.value * packed_bytes;
      // The same place two panels on.
      for (int64_t line = 0; line < kBytes; line += 64) {
        __builtin_prefetch(block + 2 * packed_bytes + line, 0, 2);
      }
      const StepBytes step = load_steps(w_, step_ + p.value * w_.num_steps * kLanes);
      uint8_t* codes = codes_ + p.value * panel_bytes_;
      unroll<kQuads>([&](auto quad) {
        store_u8(codes + quad.value * 64, stepped_quad<quad.value>(block, step));
      });
    });
    block_ += kBytes;
    codes_ += kBlockColumns * kLanes;
    if (--num_blocks_ == 0 && ends_in_half_) add_zeros();
    columns_of_step_ -= kBlockColumns;
    if (columns_of_step_ > 0) return;
    columns_of_step_ = w_.step_size;
    step_ += kLanes;
  }

 private:
  // The other half of a B tile: whatever inputs stand there do not count.
  void add_zeros() {
    for (int64_t i = 0; i < 2 * kQuads; ++i) {
      store_u8(codes_ + i / kQuads * panel_bytes_ + i % kQuads * 64, set_u8(0));
    }
  }

  const LinearView& w_;
  const uint8_t* block_;
  int64_t step_;             // index of the current step of the first panel's rows
  int64_t columns_of_step_;  // that are left
  int64_t num_panels_;
  int64_t num_blocks_;
  bool ends_in_half_;
  uint8_t* codes_;
  int64_t panel_bytes_;
};

void step_tiles_of(const LinearView& w, const InputRows& in, const OutputRows& out,
                   int64_t num_tokens, const RowPart& part, void* scratch) {
  auto* decoded = static_cast<uint8_t*>(scratch);
  const int64_t limit = 64 * (num_passes(num_tokens) == 1 ? kOnePassSteps : kStretchSteps);
  const int64_t panel_bytes = limit * kLanes;
  // Two panels of one stretch and of the next.
  uint8_t* buffers[2] = {decoded, decoded + 2 * panel_bytes};
  auto* pair_sums = reinterpret_cast<float*>(decoded + 2 * kLanes * kDecodedColumns * 2);
  const auto* x = static_cast<const uint8_t*>(in.codes);
  const TileScope scope;
  StepStretch stretch = step_stretch(part, part.panel_begin, part.first, limit);
  StepDecoder first_blocks(w, stretch, buffers[0], panel_bytes);
  while (first_blocks.num_blocks() > 0) first_blocks.decode_block();
  while (stretch.num_panels > 0) {
    const int64_t end = stretch.first + stretch.num_columns;
    const bool ends_part = end == part.first + part.num_columns;
    const bool is_last = end == w.num_columns;
    const StepStretch next = step_stretch(part, ends_part ? stretch.panel + 2 : stretch.panel,
                                          ends_part ? part.first : end, limit);
    StepDecoder decoder(w, next, buffers[1], panel_bytes);
    const int64_t num_steps = (stretch.num_columns + 63) / 64;
    const int64_t num_products = num_passes(num_tokens) * num_steps;
    const int64_t num_blocks = decoder.num_blocks();
    int64_t due = 0;
    auto decode = [&] {
      for (due += num_blocks; due >= num_products; due -= num_products) decoder.decode_block();
    };
    const bool single = stretch.num_panels == 1;
    const uint8_t* const panels[2] = {buffers[0], buffers[0] + (single ? 0 : panel_bytes)};
    float* const sums = part.sums == nullptr ? pair_sums : part.sums_of(stretch.panel, 0);
    tile_products<true>(panels, num_steps, x + stretch.first / 64 * kTileBytes, in.code_stride,
                        num_tokens, sums, sums_way(num_tokens, stretch.first == 0, is_last),
                        decode);
    if (is_last && single) {
      finish_pair<1>(w, in, out, num_tokens, stretch.panel, sums, 2 * kLanes);
    } else if (is_last) {
      finish_pair<2>(w, in, out, num_tokens, stretch.panel, sums, 2 * kLanes);
    }
    uint8_t* const used = buffers[0];
    buffers[0] = buffers[1];
    buffers[1] = used;
    stretch = next;
  }
}

void step_tiles(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
                int64_t panel_begin, int64_t panel_end, void* scratch) {
  auto* part_sums = static_cast<float*>(scratch) + kLanes * kDecodedColumns + kMinSums * kLanes;
  row_blocks(w, in, out, num_tokens, whole_rows(w, panel_begin, panel_end), part_sums,
             [&](const InputRows& rows, const OutputRows& outputs, int64_t count,
                 const RowPart& part) { step_tiles_of(w, rows, outputs, count, part, scratch); });
}

#endif

}  // namespace
}  // namespace paredown
