// A fixed set of threads that run one function together. The caller is one of them. Work is split
// into as many shares as there are threads; a share whose helper has not begun when the caller is
// done with its own is taken by the caller, so that a helper whose core a neighbour holds delays
// nothing it has not begun. Of a share that is made of items, others take what its own thread has
// not begun: cores are rarely equally fast where others compute on them, too. Threads are not
// pinned: a pinned helper waits behind a neighbour while another core idles, and pinning the caller
// would pin Python's own thread and its children.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <vector>

namespace paredown {

struct Range {
  int64_t begin;
  int64_t end;
};

// One share of `num_items`: contiguous, sizes differ by at most one.
inline Range static_share(int64_t num_items, int share, int num_shares) {
  return {num_items * share / num_shares, num_items * (share + 1) / num_shares};
}

// The system starts no more threads.
struct ThreadError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ThreadPool {
 public:
  static constexpr int kMaxThreads = 255;
  // So many others are looked at by a thread that is done: each look may fetch a cache line of
  // another core. An estimate: with shared items no more than two threads have been measured.
  static constexpr int kMaxHelped = 8;

  // Throws std::invalid_argument outside [1, kMaxThreads], and ThreadError.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int max_threads() const { return max_threads_; }
  // Threads, and shares, of the next job: all, or as `use` said last.
  int num_threads() const { return num_threads_.load(std::memory_order_relaxed); }
  // Jobs from here on are shared over so many, 1 to max_threads(); the others sleep. Not while a
  // job runs.
  void use(int num_threads);

  // Calls body(share, num_shares) once for every share and returns when all are done; num_shares is
  // num_threads(). Which thread runs a share is open. The body must not throw. One caller at a
  // time.
  template <class Body>
  void run(Body&& body) {
    if (num_threads() == 1) {
      body(0, 1);
      return;
    }
    auto call = [](void* context, int share, int num_shares) {
      (*static_cast<std::remove_reference_t<Body>*>(context))(share, num_shares);
    };
    run_job(call, &body);
  }

  // Calls body(share, items) for parts of the ranges that range_of(share, num_shares) names, each
  // item once; items are below 2^32. A thread takes parts from the front of its own range, and then
  // from the back of those of the kMaxHelped shares after its own that have begun. So which share
  // an item is run with is open, but no two calls with one share overlap.
  template <class RangeOf, class Body>
  void run_ranges(RangeOf&& range_of, Body&& body) {
    run([&](int share, int num_shares) {
      const Range own = range_of(share, num_shares);
      if (num_shares == 1) return body(share, own);
      offer(share, own);
      Range part;
      while (take(End::kFront, share, part)) body(share, part);
      for (int i = 1; i < num_shares && i <= kMaxHelped; ++i) {
        while (take(End::kBack, (share + i) % num_shares, part)) body(share, part);
      }
    });
  }

  // The same for [0, num_items), in equal shares.
  template <class Body>
  void run_items(int64_t num_items, Body&& body) {
    run_ranges([num_items](int share,
                           int num_shares) { return static_share(num_items, share, num_shares); },
               body);
  }

 private:
  using Job = void (*)(void* context, int share, int num_shares);

  // Where a share stands: 2 e - 1 once a thread has claimed it for job e, 2 e when that is done,
  // all ones while jobs do not have so many shares. Each has its own cache line, and while its
  // helper is at work only those who run out of items touch it.
  struct alignas(64) Share {
    std::atomic<uint64_t> state{0};
    // What nobody has taken of its range: none before it has begun, and none once a job is done.
    std::atomic<uint64_t> items{0};
  };

  enum class End { kFront, kBack };

  void stop();
  void run_job(Job job, void* context);
  void work(int share);
  void wait_for_job(uint64_t last);
  void wait_for_use(int share);
  bool claim_and_run(int share, uint64_t number);
  void offer(int share, Range items);
  bool take(End end, int share, Range& part);

  int max_threads_;
  std::chrono::nanoseconds spin_budget_;  // of a helper before it parks
  std::vector<std::thread> threads_;
  std::vector<Share> shares_;
  // The job and its number share a line: one transfer tells a helper everything.
  alignas(64) std::atomic<uint64_t> number_{0};
  Job job_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<int> num_threads_;  // helpers beyond it sleep on it
  std::atomic<int> num_parked_{0};
  std::atomic<uint32_t> num_wakes_{0};  // parked helpers sleep on it: 32 bits are a plain futex
  std::atomic<bool> stopping_{false};
};

}  // namespace paredown
