#include "machine/thread_pool.h"

#include <string>
#include <system_error>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paredown {
namespace {

using Clock = std::chrono::steady_clock;

// More than the gap between two parallel regions of a step, so helpers stay awake inside a step and
// sleep soon after the last one.
constexpr std::chrono::microseconds kSpinBeforePark{50};
// With fewer cores than threads a spinning helper holds the core that another thread needs.
constexpr std::chrono::microseconds kSpinWithoutCore{2};
// The caller waits this long for a helper that has begun, then gives its core away between looks (a
// neighbour may hold the helper's core, or wait for ours).
constexpr std::chrono::microseconds kSpinBeforeYield{100};
// Looks between two readings of the clock, which costs about as much as one pause.
constexpr int kLooksPerReading = 16;

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  // `yield` does nothing on most cores; an instruction barrier waits some tens of cycles.
  asm volatile("isb" : : : "memory");
#endif
}

// Whether `done` became true within about `budget`. A pause is 40 to 140 cycles, by processor, so
// the budget is time and not a number of pauses.
template <class Done>
bool spin_until(Done&& done, std::chrono::nanoseconds budget) {
  const auto look = [&] {
    for (int i = 0; i < kLooksPerReading; ++i) {
      if (done()) return true;
      pause_briefly();
    }
    return false;
  };
  if (look()) return true;
  const auto deadline = Clock::now() + budget;
  while (Clock::now() < deadline) {
    if (look()) return true;
  }
  return done();
}

int num_usable_cores() {
#if defined(__linux__)
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

// What `top -H` and the like show.
void name_this_thread(int share) {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), ("paredown-" + std::to_string(share)).c_str());
#else
  (void)share;
#endif
}

constexpr uint64_t kUnused = ~uint64_t{0};  // odd, and no job gets there
uint64_t claimed(uint64_t number) { return 2 * number - 1; }
uint64_t finished(uint64_t number) { return 2 * number; }

uint64_t packed(Range items) {
  return static_cast<uint64_t>(items.begin) << 32 | static_cast<uint64_t>(items.end);
}
Range unpacked(uint64_t items) {
  return {static_cast<int64_t>(items >> 32), static_cast<int64_t>(items & 0xFFFFFFFF)};
}

// Large parts first, for long runs in one piece, single items last, for an even end.
int64_t part_size(int64_t num_left) { return (num_left + 3) / 4; }

}  // namespace

ThreadPool::ThreadPool(int num_threads) : max_threads_(num_threads), num_threads_(num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw std::invalid_argument("a thread pool has 1 to 255 threads, not " +
                                std::to_string(num_threads));
  }
  spin_budget_ = num_threads <= num_usable_cores() ? kSpinBeforePark : kSpinWithoutCore;
  shares_ = std::vector<Share>(static_cast<size_t>(num_threads));
  threads_.reserve(static_cast<size_t>(num_threads));
  try {
    for (int share = 1; share < max_threads_; ++share) {
      threads_.emplace_back([this, share] {
        name_this_thread(share);
        work(share);
      });
    }
  } catch (const std::system_error& error) {
    const size_t num_started = threads_.size() + 1;
    stop();
    throw ThreadError("the system starts no more than " + std::to_string(num_started) + " of " +
                      std::to_string(num_threads) + " threads: " + error.what());
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_.store(true, std::memory_order_seq_cst);
  num_wakes_.fetch_add(1, std::memory_order_seq_cst);
  num_wakes_.notify_all();
  num_threads_.store(max_threads_, std::memory_order_seq_cst);
  num_threads_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// A share of job `number` is free exactly while its state says that the job before is finished: the
// caller begins no job before every share of the last one is. So a helper that slept through jobs
// and holds an old number claims nothing.
bool ThreadPool::claim_and_run(int share, uint64_t number) {
  std::atomic<uint64_t>& state = shares_[static_cast<size_t>(share)].state;
  uint64_t expected = finished(number - 1);
  // Looking first leaves the line with a helper that is at work on it.
  if (state.load(std::memory_order_relaxed) != expected) return false;
  if (!state.compare_exchange_strong(expected, claimed(number), std::memory_order_acq_rel)) {
    return false;
  }
  job_(context_, share, num_threads());
  state.store(finished(number), std::memory_order_release);
  return true;
}

void ThreadPool::offer(int share, Range items) {
  shares_[static_cast<size_t>(share)].items.store(packed(items), std::memory_order_release);
}

// Whoever works for the job holds it up, so that a range cannot be another one's when it is
// changed.
bool ThreadPool::take(End end, int share, Range& part) {
  std::atomic<uint64_t>& items = shares_[static_cast<size_t>(share)].items;
  uint64_t seen = items.load(std::memory_order_relaxed);
  while (true) {
    const Range left = unpacked(seen);
    const int64_t size = part_size(left.end - left.begin);
    if (size == 0) return false;
    const bool is_front = end == End::kFront;
    part = is_front ? Range{left.begin, left.begin + size} : Range{left.end - size, left.end};
    const Range rest = is_front ? Range{part.end, left.end} : Range{left.begin, part.begin};
    if (items.compare_exchange_weak(seen, packed(rest), std::memory_order_acq_rel)) return true;
  }
}

void ThreadPool::run_job(Job job, void* context) {
  job_ = job;
  context_ = context;
  const uint64_t number = number_.load(std::memory_order_relaxed) + 1;
  // Sequentially consistent, so that either a parking helper sees the new job or we see it parked.
  number_.store(number, std::memory_order_seq_cst);
  if (num_parked_.load(std::memory_order_seq_cst) > 0) {
    num_wakes_.fetch_add(1, std::memory_order_seq_cst);
    num_wakes_.notify_all();
  }
  const int num_shares = num_threads();
  for (int share = 0; share < num_shares; ++share) claim_and_run(share, number);
  for (int share = 1; share < num_shares; ++share) {
    const std::atomic<uint64_t>& state = shares_[static_cast<size_t>(share)].state;
    const auto is_finished = [&] {
      return state.load(std::memory_order_acquire) == finished(number);
    };
    if (!spin_until(is_finished, kSpinBeforeYield)) {
      while (!is_finished()) std::this_thread::yield();
    }
  }
}

// A share in use stands where it would if it had been part of the last job. A helper sees that
// before it sees the next job, and one that holds an older number claims nothing.
void ThreadPool::use(int num_threads) {
  if (num_threads == this->num_threads()) return;
  if (num_threads < 1 || num_threads > max_threads_) {
    throw std::invalid_argument("a pool of " + std::to_string(max_threads_) + " threads has no " +
                                std::to_string(num_threads));
  }
  const uint64_t number = number_.load(std::memory_order_relaxed);
  for (int share = 0; share < max_threads_; ++share) {
    shares_[static_cast<size_t>(share)].state.store(
        share < num_threads ? finished(number) : kUnused, std::memory_order_release);
  }
  num_threads_.store(num_threads, std::memory_order_seq_cst);
  num_threads_.notify_all();
}

void ThreadPool::wait_for_use(int share) {
  int num_threads = num_threads_.load(std::memory_order_acquire);
  while (share >= num_threads) {
    num_threads_.wait(num_threads, std::memory_order_acquire);
    num_threads = num_threads_.load(std::memory_order_acquire);
  }
}

void ThreadPool::wait_for_job(uint64_t last) {
  const auto has_come = [&] {
    return number_.load(std::memory_order_acquire) != last ||
           stopping_.load(std::memory_order_relaxed);
  };
  while (!spin_until(has_come, spin_budget_)) {
    num_parked_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t num_wakes = num_wakes_.load(std::memory_order_seq_cst);
    if (number_.load(std::memory_order_seq_cst) == last &&
        !stopping_.load(std::memory_order_seq_cst)) {
      num_wakes_.wait(num_wakes, std::memory_order_seq_cst);
    }
    num_parked_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void ThreadPool::work(int share) {
  uint64_t last = 0;
  while (true) {
    wait_for_use(share);
    wait_for_job(last);
    if (stopping_.load(std::memory_order_relaxed)) return;
    last = number_.load(std::memory_order_acquire);
    claim_and_run(share, last);
  }
}

}  // namespace paredown
