// The 512-bit lanes, and matrix tiles: eight registers of 16 rows x 64 bytes.
#pragma once

#include "avx512.h"

namespace paredown {
namespace {

#define PAREDOWN_HAS_TILES 1

// While it lives, this thread's tiles are 16 rows x 64 bytes, all eight of them.
// A tile product sums in a fixed order: tdpbf16ps adds the even and the odd columns of the 32 of a
// tile apart, in order, then both to the accumulator; other rows of the tile do not matter.
class TileScope {
 public:
  TileScope() {
    Configuration configuration{};
    configuration.palette = 1;
    for (int i = 0; i < 8; ++i) {
      configuration.row_bytes[i] = 64;
      configuration.num_rows[i] = 16;
    }
    // GCC 12's _tile_loadconfig names only the first 8 bytes as input; the rest would be lost.
    asm volatile("ldtilecfg %0" : : "m"(configuration));
  }
  ~TileScope() { asm volatile("tilerelease" : : :); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  struct Configuration {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t num_rows[16];
  };
};

}  // namespace
}  // namespace paredown
