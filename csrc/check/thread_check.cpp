// The check of the thread pool alone, for the sanitizer of threads: under it all kernels would take
// minutes to compile.
#include <cstdio>

#include "check/checks.h"

int main() {
  paredown::Outcome outcome;
  paredown::check_thread_pool(outcome);
  std::printf("thread_check: %d passed, %d failed\n", outcome.num_passed, outcome.num_failed);
  return outcome.num_failed == 0 ? 0 : 1;
}
