// A fixed set of threads that run one function together; the caller is thread 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace paredown {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls body(thread_index, num_threads) once on every thread and returns when all are done.
  // The body must not throw. One caller at a time.
  template <class Body>
  void run(Body&& body) {
    if (num_threads_ == 1) {
      body(0, 1);
      return;
    }
    auto call = [](void* context, int thread, int num_threads) {
      (*static_cast<std::remove_reference_t<Body>*>(context))(thread, num_threads);
    };
    run_job(call, &body);
  }

 private:
  using Job = void (*)(void* context, int thread, int num_threads);

  void run_job(Job job, void* context);
  void work(int thread);

  int num_threads_;
  std::vector<std::thread> threads_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;
  alignas(64) std::atomic<uint32_t> epoch_{0};   // grows by one per job
  alignas(64) std::atomic<int> num_running_{0};  // helpers that have not finished the job
  alignas(64) std::atomic<int> num_parked_{0};   // helpers asleep on epoch_
};

// The share of `num_items` that one thread takes: contiguous, sizes differ by at most one.
struct Range {
  int64_t begin;
  int64_t end;
};

inline Range static_share(int64_t num_items, int thread, int num_threads) {
  return {num_items * thread / num_threads, num_items * (thread + 1) / num_threads};
}

}  // namespace paredown
