// GCC 12.2 tells its optimizer of 8 of the 64 bytes that a tile configuration has (GCC bug 114098),
// and llama.cpp's AMX code then loads one half written: an illegal instruction at its first tile.
// Found before GCC's own header, this puts the whole 64 bytes in.
#pragma once
#include_next <amxtileintrin.h>

static inline void load_whole_tile_config(const void* config) {
  __asm__ volatile("ldtilecfg\t%0" ::"m"(*(const char(*)[64])config));
}

static inline void store_whole_tile_config(void* config) {
  __asm__ volatile("sttilecfg\t%0" : "=m"(*(char(*)[64])config));
}

#define _tile_loadconfig load_whole_tile_config
#define _tile_storeconfig store_whole_tile_config
