// A fixed set of threads that run one function together. The caller is one of them. Work is split
// into as many static shares as there are threads; a share that no helper has begun when the caller
// is done with its own is taken by the caller, so that a helper whose core a neighbour holds delays
// nothing it has not begun.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace paredown {

class ThreadPool {
 public:
  static constexpr int kMaxThreads = 255;

  // Throws std::invalid_argument outside [1, kMaxThreads].
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls body(share, num_shares) once for every share and returns when all are done; num_shares is
  // num_threads(). Which thread runs a share is open. The body must not throw. One caller at a
  // time.
  template <class Body>
  void run(Body&& body) {
    if (num_threads_ == 1) {
      body(0, 1);
      return;
    }
    auto call = [](void* context, int share, int num_shares) {
      (*static_cast<std::remove_reference_t<Body>*>(context))(share, num_shares);
    };
    run_job(call, &body);
  }

 private:
  using Job = void (*)(void* context, int share, int num_shares);

  // A ticket is (epoch << 8 | next free share); the epoch grows by one per job and wraps, which at
  // worst makes a helper that slept through all of them miss one more. 32 bits, so that waiting on
  // it is a plain futex.
  static constexpr uint32_t kEpochShift = 8;

  uint32_t next_epoch() const;
  void run_job(Job job, void* context);
  void work();
  // Runs free shares of the job of `epoch` until none is left; returns how many it ran.
  int run_shares(uint32_t epoch);

  int num_threads_;
  std::vector<std::thread> threads_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> ticket_{0};
  alignas(64) std::atomic<int> num_done_{0};    // shares of this job that helpers have finished
  alignas(64) std::atomic<int> num_parked_{0};  // helpers asleep on ticket_
  std::atomic<bool> stopping_{false};
};

// One share of `num_items`: contiguous, sizes differ by at most one.
struct Range {
  int64_t begin;
  int64_t end;
};

inline Range static_share(int64_t num_items, int share, int num_shares) {
  return {num_items * share / num_shares, num_items * (share + 1) / num_shares};
}

}  // namespace paredown
