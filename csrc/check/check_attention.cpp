#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "check/checks.h"
#include "check/random.h"
#include "model/attention_runner.h"
#include "weights/names.h"

namespace paredown {
namespace {

struct Seen {
  int64_t window;
  int64_t num_sinks;
  float soft_cap;
};

// Attention alone over contexts of several chunks: a token has the same bits in a chunk of a
// prompt, beside another sequence and on three threads that share its keys, as alone on one, there
// without the pages that it does not see and with NaN behind it.
bool check_long_context(Isa isa, KvFormat format, int64_t head_dim, Seen seen, Random& random) {
  const KernelTable& kernels = kernel_table(isa);
  const int64_t num_tokens = 1100 + below(random, 60);
  const int64_t num_pages = (num_tokens + kPageSize - 1) / kPageSize;
  const AttentionShape shape{3, 1, head_dim, seen.window, seen.num_sinks, seen.soft_cap};
  const int64_t q_size = 3 * head_dim;
  AlignedBuffer memory(num_pages * kv_head_bytes(format, head_dim));
  const float scales[2] = {0.01f, 0.003f};
  const KvView kv{format.kind, memory.as<uint8_t>(), 1, head_dim,
                  format.is_static ? scales : nullptr};
  std::vector<int32_t> pages(static_cast<size_t>(num_pages));
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
  std::shuffle(pages.begin(), pages.end(), random);
  for (int64_t t = 0; t < num_tokens; ++t) {
    const std::vector<float> key = floats(random, head_dim, 0.0f, 1.0f);
    kernels.write_kv(kv, pages[static_cast<size_t>(t / kPageSize)], t % kPageSize, key.data(),
                     key.data());
  }
  const int64_t length = 1 + below(random, 40);
  const std::vector<float> queries = floats(random, (length + 1) * q_size, 0.0f, 1.0f);
  const std::vector<float> sink_queries = floats(random, (length + 1) * q_size, 0.0f, 1.0f);
  auto attend = [&](int num_threads, std::vector<AttentionSlice> slices, int64_t first_row) {
    ThreadPool pool(num_threads);
    AttentionRunner runner(kernels, pool, shape);
    std::vector<float> outputs(queries.size());
    runner.plan(slices);
    runner.run(kv, {queries.data() + first_row * q_size, q_size, outputs.data(), q_size, nullptr,
                    sink_queries.data() + first_row * q_size, q_size});
    return outputs;
  };
  const int64_t last = num_tokens - 1;
  const std::vector<float> together =
      attend(3, {{pages.data(), 0, 1}, {pages.data(), num_tokens - length, length}}, 0);
  if (num_tokens % kPageSize != 0) {
    // Whatever lies behind the last token, it is masked to nothing.
    const std::vector<float> poison(static_cast<size_t>(head_dim), std::nanf(""));
    kernels.write_kv(kv, pages.back(), num_tokens % kPageSize, poison.data(), poison.data());
  }
  const int64_t sink_pages = (seen.num_sinks + kPageSize - 1) / kPageSize;
  const int64_t released = seen.window > 0 ? (last - seen.window + 1) / kPageSize - sink_pages : 0;
  std::vector<int32_t> kept(pages);
  kept.erase(kept.begin() + sink_pages, kept.begin() + sink_pages + released);
  const std::vector<float> alone = attend(1, {{kept.data(), last, 1, released}}, length);
  const std::vector<float> shared = attend(3, {{pages.data(), last, 1}}, length);
  const size_t num_bytes = static_cast<size_t>(q_size) * sizeof(float);
  return std::memcmp(together.data() + length * q_size, alone.data(), num_bytes) == 0 &&
         std::memcmp(shared.data(), alone.data(), num_bytes) == 0;
}

// A page written at once holds what its tokens write one by one, numbers among them that no page
// can hold.
bool check_whole_page(Isa isa, KvFormat format, Random& random) {
  const KernelTable& kernels = kernel_table(isa);
  constexpr int64_t kHeadDim = 48;
  constexpr int64_t kHeads = 2;
  constexpr int64_t kStride = 2 * kHeads * kHeadDim + 16;
  std::vector<float> rows = floats(random, kPageSize * kStride, 0.0f, 1.0f);
  rows[5] = std::nanf("");
  rows[kStride + kHeads * kHeadDim] = -HUGE_VALF;
  rows[2 * kStride] = 1e-40f;
  const float* values = rows.data() + kHeads * kHeadDim;
  const std::vector<float> scales(2 * kHeads, 0.01f);
  const int64_t num_bytes = kHeads * kv_head_bytes(format, kHeadDim);
  AlignedBuffer memory(2 * num_bytes);
  const KvView kv{format.kind, memory.as<uint8_t>(), kHeads, kHeadDim,
                  format.is_static ? scales.data() : nullptr};
  kernels.write_page(kv, 0, rows.data(), values, kStride);
  for (int64_t slot = 0; slot < kPageSize; ++slot) {
    kernels.write_kv(kv, 1, slot, rows.data() + slot * kStride, values + slot * kStride);
  }
  return std::memcmp(kv.data, kv.data + num_bytes, static_cast<size_t>(num_bytes)) == 0;
}

}  // namespace

void check_attention(Outcome& outcome) {
  Random random(21);
  for (Isa isa : supported_isas()) {
    for (const auto& [name, format] : kKvFormats) {
      const bool same_page = check_whole_page(isa, format, random);
      outcome.count(same_page);
      if (!same_page) {
        std::printf("whole pages differ: %s, pages %s\n", isa_name(isa), name.c_str());
      }
      for (int64_t head_dim : {16, 48, 80, 256}) {
        for (const Seen seen : {Seen{0, 0, 0.0f}, Seen{600, 0, 0.0f}, Seen{600, 20, 2.0f}}) {
          const bool passed = check_long_context(isa, format, head_dim, seen, random);
          outcome.count(passed);
          if (!passed) {
            std::printf("attention bits differ: %s, pages %s, head_dim %d, window %d, sinks %d\n",
                        isa_name(isa), name.c_str(), static_cast<int>(head_dim),
                        static_cast<int>(seen.window), static_cast<int>(seen.num_sinks));
          }
        }
      }
    }
  }
}

}  // namespace paredown
