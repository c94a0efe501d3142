#include "probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "aligned_buffer.h"
#include "kernels.h"
#include "thread_pool.h"

namespace paredown {
namespace {

constexpr int kRounds = 7;
// About 10 ms per thread and round on a 3 GHz core: long against timers, short against patience.
constexpr int64_t kPeakOperations = 1'000'000'000;
constexpr int64_t kMinBytesPerRound = int64_t{1} << 28;

std::atomic<float> sink;  // keeps measured work alive

template <class Body>
double seconds_of(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

}  // namespace

std::vector<double> measure_peak(Isa isa, int num_threads, const std::string& unit) {
  const KernelTable& kernels = kernel_table(isa);
  float (*loop)(int64_t) = nullptr;
  if (unit == "fp32") loop = kernels.peak_fp32;
  if (unit == "bf16") loop = kernels.peak_bf16;
  if (unit == "int8") loop = kernels.peak_int8;
  if (loop == nullptr) throw std::invalid_argument("unknown unit '" + unit + "'");
  ThreadPool pool(num_threads);
  std::vector<double> rates(kRounds);
  for (double& rate : rates) {
    const double seconds =
        seconds_of([&] { pool.run([&](int, int) { sink = loop(kPeakOperations); }); });
    rate = static_cast<double>(kPeakOperations) * pool.num_threads() / seconds;
  }
  return rates;
}

std::vector<double> measure_bandwidth(Isa isa, int num_threads, int64_t num_bytes) {
  const KernelTable& kernels = kernel_table(isa);
  ThreadPool pool(num_threads);
  const int64_t share = std::max<int64_t>(512, num_bytes / pool.num_threads() / 512 * 512);
  const AlignedBuffer buffer(share * pool.num_threads());
  std::memset(buffer.get(), 1, static_cast<size_t>(buffer.num_bytes()));
  const int64_t passes = std::max<int64_t>(1, kMinBytesPerRound / buffer.num_bytes());
  std::vector<double> rates(kRounds);
  for (double& rate : rates) {
    const double seconds = seconds_of([&] {
      pool.run([&](int part, int) {
        for (int64_t pass = 0; pass < passes; ++pass) {
          sink = kernels.read_memory(buffer.as<uint8_t>() + part * share, share);
        }
      });
    });
    rate = static_cast<double>(buffer.num_bytes() * passes) / seconds;
  }
  return rates;
}

double measure_region(Isa isa, int num_threads, int64_t num_regions, int64_t num_operations) {
  if (num_regions < 1) throw std::invalid_argument("there must be regions to measure");
  const KernelTable& kernels = kernel_table(isa);
  ThreadPool pool(num_threads);
  const double seconds = seconds_of([&] {
    for (int64_t region = 0; region < num_regions; ++region) {
      pool.run([&](int, int) { sink = kernels.peak_fp32(num_operations); });
    }
  });
  return seconds / static_cast<double>(num_regions);
}

}  // namespace paredown
