// Weights without groups on AMX tiles: bf16 and fp8 times bf16, or one int32 sum over the whole
// row.
#pragma once

#include "kernels/linear/tiles.h"

namespace paredown {
namespace {

#if defined(PAREDOWN_HAS_TILES)

// Codes that are decoded a stretch of columns at a time, and rows too wide for whole_row_tiles.
template <bool kInt8>
void stretched_tiles(const LinearView& w, const InputRows& in, const OutputRows& out,
                     int64_t num_tokens, int64_t panel_begin, int64_t panel_end, void* scratch) {
  constexpr int64_t kStep = kInt8 ? 64 : 32;
  constexpr int64_t kStretch = kStretchSteps * kStep;
  auto* decoded = static_cast<uint8_t*>(scratch);
  auto* sums = reinterpret_cast<float*>(decoded + 2 * kLanes * kDecodedColumns * 2);
  const auto* x = static_cast<const uint8_t*>(in.codes);
  const TileScope scope;
  // Each pass fetches its share of what comes next.
  const int64_t passes = num_passes(num_tokens);
  const int64_t lines_per_step = (kTileBytes / 64 + passes - 1) / passes;
  for (int64_t panel = panel_begin; panel < panel_end; panel += 2) {
    const bool single = panel + 1 == panel_end;
    for (int64_t first = 0; first < w.num_columns; first += kStretch) {
      const int64_t left = w.num_columns - first;
      const int64_t columns = left < kStretch ? left : kStretch;
      const TilePair pair = tile_pair(w, panel, single, first, columns, decoded);
      int64_t fetched = 0;
      auto fetch = [&] {
        for (int64_t line = 0; line < lines_per_step; ++line, fetched += 64) {
          __builtin_prefetch(pair.next[0] + fetched, 0, 2);
          __builtin_prefetch(pair.next[1] + fetched, 0, 2);
        }
      };
      tile_products<kInt8>(pair.panels, columns / kStep, x + first / kStep * kTileBytes,
                           in.code_stride, num_tokens, sums,
                           sums_way(num_tokens, first == 0, columns == left), fetch);
    }
    if (single) {
      finish_pair<1>(w, in, out, num_tokens, panel, sums, 2 * kLanes);
    } else {
      finish_pair<2>(w, in, out, num_tokens, panel, sums, 2 * kLanes);
    }
  }
}

// Sums of a pass that wait to be finished: [tokens][2 panels][16] of tokens [token, token_end).
struct WaitingSums {
  const float* sums;
  int64_t token;
  int64_t token_end;
  int64_t panel;
  bool single;
  PanelEnd ends[2];
};

// Finishes the next `count` tokens, or those that are left.
__attribute__((noinline)) void finish_some(const LinearView& w, const InputRows& in,
                                           const OutputRows& out, int64_t count,
                                           WaitingSums& waiting) {
  const int64_t left = waiting.token_end - waiting.token;
  for (const int64_t end = waiting.token + (count < left ? count : left); waiting.token < end;
       ++waiting.token, waiting.sums += 2 * kLanes) {
    F32x16 first[1] = {finished_sum(w, in, waiting.token, waiting.ends[0], waiting.sums)};
    if (waiting.single) {
      finish<1>(w, out, waiting.token, waiting.panel, first);
      continue;
    }
    F32x16 both[2] = {first[0],
                      finished_sum(w, in, waiting.token, waiting.ends[1], waiting.sums + kLanes)};
    finish<2>(w, out, waiting.token, waiting.panel, both);
  }
}

// Two panels of weights that are B tiles as they lie, against 16 or 32 tokens.
struct RowPass {
  const uint8_t* first;
  const uint8_t* second;
  const uint8_t* x;
  int64_t half_bytes;
  int64_t num_steps;
  bool backward;
  const uint8_t* next;  // what is fetched meanwhile, of the next panels
  int64_t panel_bytes;
  int64_t lines_per_step;
  bool fetches_residual;  // to which the sums are added during the next pass
  int64_t fetched_token;
  int64_t panel;
};

// The steps of a pass, between which sums of the pass before are finished.
template <bool kInt8, int kHalves>
inline __attribute__((always_inline)) void run_pass(const LinearView& w, const InputRows& in,
                                                    const OutputRows& out, RowPass& pass,
                                                    int64_t tokens_per_step, WaitingSums& waiting) {
  // Copies: what is called might change what it does not, for all that the compiler knows.
  const RowPass p = pass;
  const uint8_t* next = p.next;
  int64_t token = p.fetched_token;
  int64_t place = p.backward ? (p.num_steps - 1) * kTileBytes : 0;
  for (int64_t step = 0; step < p.num_steps; ++step) {
    tile_step<kInt8, kHalves>(p.first + place, p.second + place, p.x + place, p.half_bytes);
    place += p.backward ? -kTileBytes : kTileBytes;
    for (int64_t line = 0; line < p.lines_per_step; ++line, next += 64) {
      __builtin_prefetch(next, 0, 2);
      __builtin_prefetch(next + p.panel_bytes, 0, 2);
    }
    if (p.fetches_residual) {
      for (int64_t i = 0; i < tokens_per_step; ++i) fetch_residual(out, token++, p.panel);
    }
    finish_some(w, in, out, tokens_per_step, waiting);
  }
  pass.next = next;
}

// Weights that are B tiles as they lie. The sums of a pass stay in the tiles over the whole row, or
// a part of it, and are finished during the next pass. Integer passes go to and fro, as what was
// read last is still in the first cache; floats have one order.
template <bool kInt8>
void whole_row_tiles(const LinearView& w, const InputRows& in, const OutputRows& out,
                     int64_t num_tokens, const RowPart& part, void* scratch) {
  constexpr int64_t kStep = kInt8 ? 64 : 32;
  const int64_t num_steps = part.num_columns / kStep;
  const int64_t offset = part.first / kStep * kTileBytes;
  const int64_t panel_bytes = w.num_columns / kStep * kTileBytes;
  const int64_t passes = num_passes(num_tokens);
  // Each pass fetches its share of the next panels, and each step finishes its share of the pass.
  const int64_t tokens_per_step = (kPassTokens + num_steps - 1) / num_steps;
  auto* sums = static_cast<float*>(scratch);
  WaitingSums waiting{};
  RowPass run{};
  run.half_bytes = kLanes * in.code_stride;
  run.num_steps = num_steps;
  run.panel_bytes = panel_bytes;
  run.fetches_residual = out.accumulate && part.is_last;
  run.lines_per_step = (kTileBytes / 64 + passes - 1) / passes;
  const TileScope scope;
  for (int64_t panel = part.panel_begin; panel < part.panel_end; panel += 2) {
    const bool single = panel + 1 == part.panel_end;
    run.panel = panel;
    run.first = packed_columns(w, panel, 0) + offset;
    run.second = run.first + (single ? 0 : panel_bytes);
    run.next = run.first + 2 * panel_bytes;
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t token = pass * kPassTokens;
      const int64_t left = num_tokens - token;
      run.backward = kInt8 && pass % 2 != 0;
      run.x = static_cast<const uint8_t*>(in.codes) + token * in.code_stride + offset;
      run.fetched_token = token;
      auto steps = [&](auto halves) {
        if (part.is_first) {
          unroll<4>([](auto tile) { tile_zero<tile.value>(); });
        } else {
          load_sums<halves.value>(part.sums_of(panel, token));
        }
        run_pass<kInt8, halves.value>(w, in, out, run, tokens_per_step, waiting);
        store_sums<halves.value>(part.is_last ? sums : part.sums_of(panel, token));
      };
      if (left > kLanes) {
        steps(Index<2>{});
      } else {
        steps(Index<1>{});
      }
      if (!part.is_last) continue;
      waiting = {
          sums,  token,  token + (left < kPassTokens ? left : kPassTokens),
          panel, single, {panel_end_of(w, panel), panel_end_of(w, single ? panel : panel + 1)}};
      sums = static_cast<float*>(scratch) + (sums == scratch ? kPassTokens * 2 * kLanes : 0);
    }
  }
  finish_some(w, in, out, kPassTokens, waiting);
}

// Bytes of a row of inputs, or of a part of it, up to which whole rows are faster than stretches
// (int8, 32 and 512 tokens: 1.25 and 1.05 times with 2,048 columns, 0.93 and 0.97 with 8,192;
// docs/log.md 2026-11-22).
constexpr int64_t kWholeRowBytes = 4096;

template <bool kInt8>
void row_tiles_of(const LinearView& w, const InputRows& in, const OutputRows& out,
                  int64_t num_tokens, const RowPart& all, void* scratch) {
  const bool as_they_lie = w.kind == WeightKind::kBf16 || w.kind == WeightKind::kInt8;
  if (!as_they_lie) {
    return token_blocks(w, in, out, num_tokens,
                        [&](const InputRows& rows, const OutputRows& outputs, int64_t count) {
                          stretched_tiles<kInt8>(w, rows, outputs, count, all.panel_begin,
                                                 all.panel_end, scratch);
                        });
  }
  auto* part_sums = static_cast<float*>(scratch) + kMinSums * kLanes;
  row_blocks(
      w, in, out, num_tokens, all, part_sums,
      [&](const InputRows& rows, const OutputRows& outputs, int64_t count, const RowPart& part) {
        if (part.sums != nullptr || row_bytes(w) <= kWholeRowBytes) {
          whole_row_tiles<kInt8>(w, rows, outputs, count, part, scratch);
        } else {
          stretched_tiles<kInt8>(w, rows, outputs, count, part.panel_begin, part.panel_end,
                                 scratch);
        }
      });
}

template <bool kInt8>
void row_tiles(const LinearView& w, const InputRows& in, const OutputRows& out, int64_t num_tokens,
               int64_t panel_begin, int64_t panel_end, void* scratch) {
  row_tiles_of<kInt8>(w, in, out, num_tokens, whole_rows(w, panel_begin, panel_end), scratch);
}

#endif

}  // namespace
}  // namespace paredown
