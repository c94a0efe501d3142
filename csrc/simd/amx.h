// The 512-bit lanes, and matrix tiles: eight registers of 16 rows x 64 bytes.
#pragma once

#define PAREDOWN_HAS_TILES 1

#include "simd/avx512.h"

namespace paredown {
namespace {

// GCC's intrinsics paste the text of their arguments into the instruction: template arguments need
// these instead.
template <int kTile>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kTile>
inline void tile_load(const void* rows, int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
               :
               : "r"(rows), "r"(row_bytes), "i"(kTile)
               : "memory");
}
template <int kTile>
inline void tile_store(void* rows, int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
               :
               : "r"(rows), "r"(row_bytes), "i"(kTile)
               : "memory");
}
// C += A B for signed A and signed B, signed A and unsigned B, bf16 A and B.
template <int kC, int kA, int kB>
inline void tile_dot_ss() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}
template <int kC, int kA, int kB>
inline void tile_dot_su() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}
template <int kC, int kA, int kB>
inline void tile_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

// A matrix unit without work for some 1,000 cycles sleeps, and then takes 900 to wake (measured on
// Emerald Rapids). One product now and then, of whatever the tiles hold, keeps it awake through
// other work; it spoils tile 3.
inline void keep_tiles_awake() { tile_dot_ss<3, 4, 6>(); }

// Tile 5 (A) and 7 (B) may be half as deep: 32 columns of bytes instead of 64.
enum class TileDepth { kFull, kHalf };

// While it lives, this thread's tiles are 16 rows x 64 bytes, but for what is said above.
// A tile product sums in a fixed order: tdpbf16ps adds the even and the odd columns of the 32 of a
// tile apart, in order, then both to the accumulator; other rows of the tile do not matter.
class TileScope {
 public:
  explicit TileScope(TileDepth depth = TileDepth::kFull) {
    Configuration configuration{};
    configuration.palette = 1;
    for (int i = 0; i < 8; ++i) {
      configuration.row_bytes[i] = 64;
      configuration.num_rows[i] = 16;
    }
    if (depth == TileDepth::kHalf) {
      configuration.row_bytes[5] = 32;
      configuration.num_rows[7] = 8;
    }
    load(configuration);
  }
  // Tiles 0 to 3 (C), 4 and 5 (A) have fewer rows: less to load and store, though products take as
  // long.
  explicit TileScope(int num_rows) {
    Configuration configuration{};
    configuration.palette = 1;
    for (int i = 0; i < 8; ++i) {
      configuration.row_bytes[i] = 64;
      configuration.num_rows[i] = static_cast<uint8_t>(i < 6 ? num_rows : 16);
    }
    load(configuration);
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

  static void load(const Configuration& configuration) {
    // GCC 12's _tile_loadconfig names only the first 8 bytes as input; the rest would be lost.
    asm volatile("ldtilecfg %0" : : "m"(configuration));
  }
};

}  // namespace
}  // namespace paredown
