// Inputs of which each number is the sum of two int8 codes with scales of their own: the first code
// of all numbers of a group as ever, then a code for what those lack. The rows of codes are
// multiplied as if they were tokens, and their sums are added: about fifteen bits, with the
// products and the weights in the layout of one code.
#pragma once

#include "kernels/linear/finish.h"
#include "kernels/linear/prepare.h"

namespace paredown {
namespace {

// The scale of a group of inputs, also where InputRows has sum_bits of it.
inline float input_scale(const LinearView& w, const InputRows& in, int64_t token, int64_t group) {
  const float scale = in.scales[input_index(token, w.input_groups, group)];
  if (w.input_groups == 1 || !has_sum_bits(w, in.form->layout)) return scale;
  return std::bit_cast<float>(std::bit_cast<int32_t>(scale) - kWholeBits);
}

// Signed bytes.
inline I32x16 load_codes(const uint8_t* codes) {
  const I32x16 raised = bit_and(add(load_u8_as_i32(codes), set_i(128)), set_i(255));
  return add(raised, set_i(-128));
}

void input_rest(const LinearView& w, const InputRows& in, const float* row, int64_t token,
                float* rest) {
  const int64_t size = w.num_columns / w.input_groups;
  const uint8_t* codes = code_row(in, token);
  for (int64_t group = 0; group < w.input_groups; ++group) {
    const F32x16 scale = set_f(input_scale(w, in, token, group));
    for (int64_t i = group * size; i < (group + 1) * size; i += kLanes) {
      const F32x16 number = mul(to_float(load_codes(codes + code_offset(in, i))), scale);
      store_f(rest + i, sub(load_f(row + i), number));
    }
  }
}

// Panels go in pairs, which may be gate and up; an odd one ends the weight.
void finish_split(const LinearView& w, const OutputRows& out, const SplitSums& sums,
                  int64_t num_tokens, int64_t panel_begin, int64_t panel_end) {
  const float* first = sums.values;
  for (int64_t token = 0; token < num_tokens; ++token, first += 2 * sums.row_stride) {
    auto whole = [&](int64_t panel) {
      const float* place = first + (panel - panel_begin) * kLanes;
      return add(load_f(place), load_f(place + sums.row_stride));
    };
    int64_t panel = panel_begin;
    for (; panel + 2 <= panel_end; panel += 2) {
      F32x16 pair[2] = {whole(panel), whole(panel + 1)};
      finish<2>(w, out, token, panel, pair);
    }
    if (panel == panel_end) continue;
    F32x16 last[1] = {whole(panel)};
    finish<1>(w, out, token, panel, last);
  }
  if (out.streamed) stream_fence();
}

}  // namespace
}  // namespace paredown
