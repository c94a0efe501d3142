#include "thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paredown {
namespace {

// Spins before a helper parks: about 50 us, a few times the gap between two parallel regions of a
// step, so helpers stay awake inside a step and sleep soon after the last one.
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

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads < 1 ? 1 : num_threads) {
  for (int thread = 1; thread < num_threads_; ++thread) {
    threads_.emplace_back([this, thread] { work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run_job(Job job, void* context) {
  job_ = job;
  context_ = context;
  num_running_.store(num_threads_ - 1, std::memory_order_relaxed);
  // Sequentially consistent, so that either a parking helper sees the new epoch or we see it
  // parked.
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  if (num_parked_.load(std::memory_order_seq_cst) > 0) epoch_.notify_all();
  job(context, 0, num_threads_);
  int spins = 0;
  while (num_running_.load(std::memory_order_acquire) > 0) {
    if (++spins > kSpinsBeforeYield) std::this_thread::yield();
    pause_briefly();
  }
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  while (true) {
    int spins = 0;
    while (epoch_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpinsBeforePark) {
        pause_briefly();
        continue;
      }
      num_parked_.fetch_add(1, std::memory_order_seq_cst);
      epoch_.wait(seen, std::memory_order_seq_cst);
      num_parked_.fetch_sub(1, std::memory_order_seq_cst);
    }
    ++seen;
    if (stopping_) return;
    job_(context_, thread, num_threads_);
    num_running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace paredown
