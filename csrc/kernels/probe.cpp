#include "kernels/probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "kernels/kernel_table.h"
#include "machine/aligned_buffer.h"
#include "machine/thread_pool.h"

namespace paredown {
namespace {

constexpr int kRounds = 7;
// About 10 ms per thread and round on a 3 GHz core: long against timers, short against patience.
constexpr int64_t kPeakOperations = 1'000'000'000;
constexpr int64_t kMinBytesPerRound = int64_t{1} << 28;
// A thread's work lies in so many items, which the others take where it is slower than they: a
// limit is what all threads do together, as it is where layers are shared.
constexpr int64_t kItemsPerThread = 16;
constexpr std::chrono::milliseconds kGatherTime{100};
// Less than two threads take that share a core, more than a meeting of those that do not.
constexpr std::chrono::microseconds kMeetingTime{100};

std::atomic<float> sink;  // keeps measured work alive

template <class Body>
double seconds_of(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

// Until all threads run at once, or have had their time. The core of a new helper may be the
// caller's for some milliseconds while another one idles, which would be read as half of the limit.
void gather(ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + kGatherTime;
  Clock::duration taken;
  do {
    const auto start = Clock::now();
    std::atomic<int> num_here{0};
    pool.run([&](int, int num_shares) {
      num_here.fetch_add(1);
      while (num_here.load() < num_shares && Clock::now() < deadline) {
      }
    });
    taken = Clock::now() - start;
  } while (taken > kMeetingTime && Clock::now() < deadline);
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
  gather(pool);
  std::vector<double> rates(kRounds);
  for (double& rate : rates) {
    const double seconds = seconds_of([&] {
      pool.run_items(num_threads * kItemsPerThread, [&](int, const Range& items) {
        sink = loop((items.end - items.begin) * kPeakOperations / kItemsPerThread);
      });
    });
    rate = static_cast<double>(kPeakOperations) * num_threads / seconds;
  }
  return rates;
}

std::vector<double> measure_bandwidth(Isa isa, int num_threads, int64_t num_bytes) {
  const KernelTable& kernels = kernel_table(isa);
  ThreadPool pool(num_threads);
  const int64_t num_items = num_threads * kItemsPerThread;
  const int64_t item_bytes = std::max<int64_t>(512, num_bytes / num_items / 512 * 512);
  const AlignedBuffer buffer(item_bytes * num_items);
  std::memset(buffer.get(), 1, static_cast<size_t>(buffer.num_bytes()));
  const int64_t passes = std::max<int64_t>(1, kMinBytesPerRound / buffer.num_bytes());
  gather(pool);
  std::vector<double> rates(kRounds);
  for (double& rate : rates) {
    const double seconds = seconds_of([&] {
      // All passes of a thread go over its own part of the buffer.
      pool.run_items(passes * num_items, [&](int, const Range& items) {
        for (int64_t i = items.begin; i < items.end; ++i) {
          const int64_t part = i / (passes * kItemsPerThread);
          const int64_t item = part * kItemsPerThread + i % kItemsPerThread;
          sink = kernels.read_memory(buffer.as<uint8_t>() + item * item_bytes, item_bytes);
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
