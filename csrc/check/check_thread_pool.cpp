#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <vector>

#include "check/checks.h"
#include "check/random.h"
#include "machine/thread_pool.h"

namespace paredown {
namespace {

// More than one that is done looks at.
constexpr int kMaxThreads = ThreadPool::kMaxHelped + 4;
constexpr int kNumRegions = 3000;

void wait_some(Random& random) {
  // Long enough now and then that helpers park.
  if (below(random, 200) == 0) std::this_thread::sleep_for(std::chrono::microseconds(120));
}

// Shares are plain memory: a sanitizer of threads sees any two that overlap.
bool runs_each_share_once(int num_threads, Random& random) {
  ThreadPool pool(num_threads);
  std::array<int, kMaxThreads> num_runs{};
  std::array<int, kMaxThreads> expected{};
  for (int region = 1; region <= kNumRegions; ++region) {
    const int64_t num_turns = below(random, 400);
    if (below(random, 20) == 0) pool.use(1 + static_cast<int>(below(random, num_threads)));
    const int num_used = pool.num_threads();
    std::array<float, kMaxThreads> results{};
    pool.run([&](int share, int num_shares) {
      float result = 1.0f;
      for (int64_t i = 0; i < num_turns * (share + 1); ++i) result = result * 0.5f + 1.0f;
      results[static_cast<size_t>(share)] = result;
      num_runs[static_cast<size_t>(share)] += num_shares == num_used ? 1 : kNumRegions;
    });
    for (int share = 0; share < num_threads; ++share) {
      const auto index = static_cast<size_t>(share);
      if (share < num_used) ++expected[index];
      if (num_runs[index] != expected[index]) return false;
      if ((results[index] < 1.0f) == (share < num_used)) return false;
    }
    wait_some(random);
  }
  return true;
}

// Items and shares are plain memory, too: an item that is run twice at once, or two calls with one
// share at once, are a race.
bool runs_each_item_once(int num_threads, Random& random) {
  ThreadPool pool(num_threads);
  std::array<int64_t, kMaxThreads> num_calls{};
  std::vector<int> num_runs;
  for (int region = 0; region < kNumRegions; ++region) {
    if (below(random, 20) == 0) pool.use(1 + static_cast<int>(below(random, num_threads)));
    const int64_t num_items = below(random, 50);
    const int64_t num_turns = below(random, 100);
    // Now and then everything is one share's, or a share takes much longer than the others.
    const int owner =
        below(random, 4) == 0 ? static_cast<int>(below(random, pool.num_threads())) : -1;
    const auto range_of = [&](int share, int num_shares) {
      if (owner < 0) return static_share(num_items, share, num_shares);
      return Range{share > owner ? num_items : 0, share < owner ? 0 : num_items};
    };
    const int slow = static_cast<int>(below(random, pool.num_threads()));
    num_runs.assign(static_cast<size_t>(num_items), 0);
    num_calls.fill(0);
    pool.run_ranges(range_of, [&](int share, const Range& items) {
      const auto index = static_cast<size_t>(share);
      num_calls[index] += items.end - items.begin;
      volatile float result = 1.0f;
      for (int64_t i = 0; i < num_turns * (share == slow ? 20 : 1); ++i) result = result * 0.5f;
      for (int64_t i = items.begin; i < items.end; ++i) ++num_runs[static_cast<size_t>(i)];
    });
    if (std::ranges::any_of(num_runs, [](int runs) { return runs != 1; })) return false;
    if (std::accumulate(num_calls.begin(), num_calls.end(), int64_t{0}) != num_items) return false;
    wait_some(random);
  }
  return true;
}

}  // namespace

void check_thread_pool(Outcome& outcome) {
  Random random(5);
  for (int num_threads = 1; num_threads <= kMaxThreads; ++num_threads) {
    const bool passed = runs_each_share_once(num_threads, random);
    outcome.count(passed);
    if (!passed) std::printf("shares did not run exactly once with %d threads\n", num_threads);
    const bool passed_items = runs_each_item_once(num_threads, random);
    outcome.count(passed_items);
    if (!passed_items) std::printf("items did not run exactly once with %d threads\n", num_threads);
  }
}

}  // namespace paredown
