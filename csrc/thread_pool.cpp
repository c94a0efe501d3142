#include "thread_pool.h"

#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paredown {
namespace {

// Spins before a helper parks: some tens of microseconds, more than the gap between two parallel
// regions of a step, so helpers stay awake inside a step and sleep soon after the last one.
constexpr int kSpinsBeforePark = 1500;
// Spins before the caller gives its core away while it waits (a neighbour may hold a helper's
// core).
constexpr int kSpinsBeforeYield = 4000;

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw std::invalid_argument("a thread pool has 1 to 255 threads, not " +
                                std::to_string(num_threads));
  }
  for (int thread = 1; thread < num_threads_; ++thread) {
    threads_.emplace_back([this] { work(); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  // A new epoch without free shares only wakes the helpers.
  ticket_.store(next_epoch() << kEpochShift | static_cast<uint32_t>(num_threads_));
  ticket_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

uint32_t ThreadPool::next_epoch() const {
  constexpr uint32_t kMask = ~uint32_t{0} >> kEpochShift;
  return ((ticket_.load(std::memory_order_relaxed) >> kEpochShift) + 1) & kMask;
}

int ThreadPool::run_shares(uint32_t epoch) {
  int num_run = 0;
  uint32_t ticket = ticket_.load(std::memory_order_acquire);
  while (ticket >> kEpochShift == epoch) {
    const auto share = static_cast<int>(ticket & kMaxThreads);
    if (share >= num_threads_) break;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    job_(context_, share, num_threads_);
    ++num_run;
    ticket = ticket_.load(std::memory_order_acquire);
  }
  return num_run;
}

void ThreadPool::run_job(Job job, void* context) {
  job_ = job;
  context_ = context;
  num_done_.store(0, std::memory_order_relaxed);
  const uint32_t epoch = next_epoch();
  // Sequentially consistent, so that either a parking helper sees the new epoch or we see it
  // parked.
  ticket_.store(epoch << kEpochShift, std::memory_order_seq_cst);
  if (num_parked_.load(std::memory_order_seq_cst) > 0) ticket_.notify_all();
  const int num_by_helpers = num_threads_ - run_shares(epoch);
  int spins = 0;
  while (num_done_.load(std::memory_order_acquire) < num_by_helpers) {
    if (++spins > kSpinsBeforeYield) std::this_thread::yield();
    pause_briefly();
  }
}

void ThreadPool::work() {
  uint32_t seen = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    int spins = 0;
    uint32_t ticket = ticket_.load(std::memory_order_acquire);
    while (ticket >> kEpochShift == seen) {
      if (++spins < kSpinsBeforePark) {
        pause_briefly();
      } else {
        num_parked_.fetch_add(1, std::memory_order_seq_cst);
        ticket_.wait(ticket, std::memory_order_seq_cst);
        num_parked_.fetch_sub(1, std::memory_order_seq_cst);
      }
      ticket = ticket_.load(std::memory_order_acquire);
    }
    seen = ticket >> kEpochShift;
    const int num_run = run_shares(seen);
    if (num_run > 0) num_done_.fetch_add(num_run, std::memory_order_release);
  }
}

}  // namespace paredown
