#include "weights/bitmap.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <numeric>

namespace paredown {
namespace {

// A weight must become as small as this beside its dense form to be read faster: of the bandwidth
// that dense kernels reach, those of bitmaps reach at least this share (docs/internals/sparse.md).
constexpr double kWorthwhileInt8 = 0.8;
constexpr double kWorthwhileBf16 = 0.6;

bool is_int8(WeightKind kind) {
  return kind == WeightKind::kInt8 || kind == WeightKind::kInt8Bitmap;
}

int64_t panels_of(const LinearView& w) { return (w.num_rows + kLanes - 1) / kLanes; }
int64_t panel_blocks(const LinearView& w) { return w.num_columns / kBlockColumns; }

uint16_t word_at(const uint8_t* bytes) {
  uint16_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}
bool is_zero_word(uint16_t word) { return (word & 0x7FFF) == 0; }

uint64_t mask_at(const uint8_t* bytes) {
  uint64_t mask;
  std::memcpy(&mask, bytes, sizeof(mask));
  return mask;
}

// The column of a block and the row of a panel that number `index` of a block is of.
struct Place {
  int64_t column;
  int64_t lane;
};
Place place_in_block(WeightKind kind, int64_t index) {
  if (is_int8(kind)) return {index / 64 * 4 + index % 4, index / 4 % kLanes};
  return {index / 32 * 2 + index % 2, index / 2 % kLanes};
}

constexpr int64_t kBlockNumbers = kMasks * kMaskNumbers;
constexpr int64_t kMostBlockBytes = 1 + kMaskBytes + 2 * kBlockNumbers;

// A block of a dense weight.
struct DenseBlock {
  const uint8_t* numbers;
  int64_t num_lanes;    // of the panel
  int64_t num_columns;  // that are the weight's own
};

using BlockNumbers = std::array<uint16_t, kBlockNumbers>;

// The numbers of a block, 0 for those that are zero or not the weight's own; of int8 less 128.
BlockNumbers numbers_of(WeightKind kind, const DenseBlock& block) {
  BlockNumbers found;
  for (size_t i = 0; i < found.size(); ++i) {
    if (is_int8(kind)) {
      found[i] = block.numbers[i] ^ kZeroCode;
    } else {
      const uint16_t word = word_at(block.numbers + 2 * i);
      found[i] = is_zero_word(word) ? uint16_t{0} : word;
    }
  }
  if (block.num_lanes >= kLanes && block.num_columns >= kBlockColumns) return found;
  for (size_t i = 0; i < found.size(); ++i) {
    const Place place = place_in_block(kind, static_cast<int64_t>(i));
    if (place.lane >= block.num_lanes || place.column >= block.num_columns) found[i] = 0;
  }
  return found;
}

// Packs the blocks of one panel.
class PanelWriter {
 public:
  PanelWriter(WeightKind kind, BitmapPanel& panel) : kind_(kind), panel_(panel) {
    places_.fill(kNone);
    if (kind != WeightKind::kBf16ShortBitmap) return;
    for (size_t i = 0; i < panel.upper_bytes.size(); ++i) {
      places_[panel.upper_bytes[i]] = static_cast<uint8_t>(i);
    }
  }

  void add(const DenseBlock& block) {
    const BlockNumbers numbers = numbers_of(kind_, block);
    const bool is_wide = kind_ == WeightKind::kBf16ShortBitmap && needs_words(numbers);
    const size_t size = panel_.bytes.size();
    panel_.bytes.resize(size + kMostBlockBytes);
    uint8_t* masks = panel_.bytes.data() + size;
    if (has_wide_byte(kind_)) *masks++ = is_wide;
    uint8_t* to = masks + kMaskBytes;
    for (int64_t i = 0; i < kMasks; ++i) {
      uint64_t mask = 0;
      to = add_numbers(numbers.data() + i * kMaskNumbers, is_wide, mask, to);
      std::memcpy(masks + i * 8, &mask, sizeof(mask));
    }
    panel_.bytes.resize(static_cast<size_t>(to - panel_.bytes.data()));
  }

 private:
  static constexpr uint8_t kNone = 0xFF;

  bool needs_words(const BlockNumbers& numbers) const {
    return std::any_of(numbers.begin(), numbers.end(), [&](uint16_t number) {
      return number != 0 && places_[number >> 8] == kNone;
    });
  }
  // Returns where the next ones go.
  uint8_t* add_numbers(const uint16_t* numbers, bool is_wide, uint64_t& mask, uint8_t* to) const {
    uint16_t there[kMaskNumbers];
    int64_t count = 0;
    for (int64_t bit = 0; bit < kMaskNumbers; ++bit) {
      const uint16_t number = numbers[place_of_bit(kind_, is_wide, bit)];
      there[count] = number;
      count += number != 0;
      mask |= uint64_t{number != 0} << bit;
    }
    if (kind_ == WeightKind::kBf16Bitmap || is_wide) {
      std::memcpy(to, there, static_cast<size_t>(2 * count));
      return to + 2 * count;
    }
    const int flip = is_int8(kind_) ? kZeroCode : 0;
    for (int64_t i = 0; i < count; ++i) *to++ = static_cast<uint8_t>((there[i] & 0xFF) ^ flip);
    if (is_int8(kind_)) return to;
    for (int64_t i = 0; i < count; i += 2) {
      const int second = i + 1 < count ? places_[there[i + 1] >> 8] : 0;
      *to++ = static_cast<uint8_t>(places_[there[i] >> 8] | second << 4);
    }
    return to;
  }

  WeightKind kind_;
  BitmapPanel& panel_;
  std::array<uint8_t, 256> places_;  // where each upper byte stands among the panel's
};

// The upper bytes that most numbers of a panel have that are not zero.
std::array<uint8_t, kUpperBytes> most_frequent(const uint8_t* numbers, int64_t count) {
  std::array<int64_t, 256> totals{};
  for (int64_t i = 0; i < count; ++i) {
    if (!is_zero_word(word_at(numbers + 2 * i))) ++totals[numbers[2 * i + 1]];
  }
  std::array<uint8_t, 256> order;
  std::iota(order.begin(), order.end(), uint8_t{0});
  std::partial_sort(
      order.begin(), order.begin() + kUpperBytes, order.end(),
      [&](uint8_t a, uint8_t b) { return totals[a] != totals[b] ? totals[a] > totals[b] : a < b; });
  std::array<uint8_t, kUpperBytes> found;
  std::copy_n(order.begin(), kUpperBytes, found.begin());
  return found;
}

// Bytes of the block at `block`, of which `left` are there; 0 where it is none.
int64_t bytes_of_block(WeightKind kind, const uint8_t* block, int64_t left) {
  const int64_t head = has_wide_byte(kind) ? 1 : 0;
  if (left < head + kMaskBytes || (head > 0 && block[0] > 1)) return 0;
  const bool is_wide = head > 0 && block[0] == 1;
  int64_t bytes = head + kMaskBytes;
  for (int64_t i = 0; i < kMasks; ++i) {
    bytes += numbers_bytes(kind, is_wide, std::popcount(mask_at(block + head + 8 * i)));
  }
  return bytes <= left ? bytes : 0;
}

}  // namespace

bool bitmap_pays(int value_bits, int64_t num_numbers, int64_t num_zeros) {
  const auto all = static_cast<double>(num_numbers);
  const double dense_bits = value_bits * all;
  const double bitmap_bits = all + value_bits * (all - static_cast<double>(num_zeros));
  const double worthwhile = value_bits > 8 ? kWorthwhileBf16 : kWorthwhileInt8;
  return value_bits >= 8 && bitmap_bits <= worthwhile * dense_bits;
}

bool may_be_bitmap(const PackedShape& dense) {
  const LinearView& view = dense.view;
  if (view.kind == WeightKind::kInt8) {
    return view.input == InputKind::kInt8 && !dense.has_zero_points;
  }
  return view.kind == WeightKind::kBf16 && view.input == InputKind::kBf16;
}

int64_t count_zeros(const LinearView& dense, int64_t num_columns, ThreadPool& pool) {
  // Numbers that are not the weight's own: those of int8 are packed as code 0, which is no zero,
  // and those of bf16 as 0.
  const int64_t num_own = dense.num_rows * num_columns;
  const int64_t panel_numbers = dense.num_columns * kLanes;
  const int64_t num_padded = panels_of(dense) * panel_numbers - num_own;
  std::atomic<int64_t> total{0};
  pool.run_items(panels_of(dense), [&](int, const Range& panels) {
    int64_t found = 0;
    const auto* bytes = static_cast<const uint8_t*>(dense.values);
    const int64_t end = panels.end * panel_numbers;
    if (is_int8(dense.kind)) {
      for (int64_t i = panels.begin * panel_numbers; i < end; ++i) found += bytes[i] == kZeroCode;
    } else {
      const auto* words = reinterpret_cast<const uint16_t*>(bytes);
      for (int64_t i = panels.begin * panel_numbers; i < end; ++i) found += is_zero_word(words[i]);
    }
    total += found;
  });
  return total - (is_int8(dense.kind) ? 0 : num_padded);
}

std::vector<BitmapPanel> bitmap_panels(const LinearView& dense, WeightKind kind,
                                       int64_t num_columns, ThreadPool& pool) {
  const int64_t num_blocks = panel_blocks(dense);
  const int64_t dense_bytes = block_bytes(dense.kind);
  std::vector<BitmapPanel> found(static_cast<size_t>(panels_of(dense)));
  pool.run_items(panels_of(dense), [&](int, const Range& panels) {
    for (int64_t number = panels.begin; number < panels.end; ++number) {
      BitmapPanel& panel = found[static_cast<size_t>(number)];
      const uint8_t* numbers =
          static_cast<const uint8_t*>(dense.values) + number * num_blocks * dense_bytes;
      if (kind == WeightKind::kBf16ShortBitmap) {
        panel.upper_bytes = most_frequent(numbers, num_blocks * kBlockColumns * kLanes);
      }
      PanelWriter writer(kind, panel);
      for (int64_t block = 0; block < num_blocks; ++block, numbers += dense_bytes) {
        if (block % kRunBlocks == 0) panel.runs.push_back(std::ssize(panel.bytes));
        writer.add(
            {numbers, dense.num_rows - number * kLanes, num_columns - block * kBlockColumns});
      }
      panel.bytes.shrink_to_fit();
    }
  });
  return found;
}

bool bitmap_holds(const LinearView& w, int64_t bitmap_bytes) {
  const auto* values = static_cast<const uint8_t*>(w.values);
  const int64_t* run = w.bitmap.runs;
  int64_t place = 0;
  for (int64_t panel = 0; panel < panels_of(w); ++panel) {
    for (int64_t block = 0; block < panel_blocks(w); ++block) {
      if (block % kRunBlocks == 0 && *run++ != place) return false;
      const int64_t bytes = bytes_of_block(w.kind, values + place, bitmap_bytes - place);
      if (bytes == 0) return false;
      place += bytes;
    }
  }
  return place == bitmap_bytes;
}

void copy_bitmap_row(const LinearView& w, int64_t row, uint8_t* numbers) {
  const int64_t panel = row / kLanes;
  const auto* values = static_cast<const uint8_t*>(w.values);
  const uint8_t* block = values + w.bitmap.runs[panel * num_runs(w.num_columns)];
  const uint8_t* upper_bytes = w.bitmap.upper_bytes + panel * kUpperBytes;
  const int64_t width = is_int8(w.kind) ? 1 : 2;
  std::memset(numbers, is_int8(w.kind) ? kZeroCode : 0, static_cast<size_t>(w.num_columns * width));
  for (int64_t first = 0; first < w.num_columns; first += kBlockColumns) {
    const bool is_wide = has_wide_byte(w.kind) && *block == 1;
    const uint8_t* masks = block + (has_wide_byte(w.kind) ? 1 : 0);
    const uint8_t* from = masks + kMaskBytes;
    for (int64_t i = 0; i < kMasks; ++i) {
      const uint64_t mask = mask_at(masks + 8 * i);
      const int64_t count = std::popcount(mask);
      int64_t rank = 0;
      for (int64_t bit = 0; bit < kMaskNumbers; ++bit) {
        if ((mask >> bit & 1) == 0) continue;
        const Place place =
            place_in_block(w.kind, i * kMaskNumbers + place_of_bit(w.kind, is_wide, bit));
        if (place.lane == row % kLanes) {
          uint8_t* to = numbers + (first + place.column) * width;
          if (w.kind == WeightKind::kBf16ShortBitmap && !is_wide) {
            to[0] = from[rank];
            to[1] = upper_bytes[from[count + rank / 2] >> 4 * (rank % 2) & 0xF];
          } else {
            std::memcpy(to, from + rank * width, static_cast<size_t>(width));
          }
        }
        ++rank;
      }
      from += numbers_bytes(w.kind, is_wide, count);
    }
    block = from;
  }
}

}  // namespace paredown
