// Drives the core without Python, for the sanitizers and for emulated processors: every instruction
// set of this processor, every weight format and page format, random batches in random chunks.
#include <cstdio>

#include "check/checks.h"
#include "machine/isa.h"

int main() {
  using namespace paredown;
  for (Isa isa : known_isas()) {
    const std::string reason = why_unavailable(isa);
    std::printf("%s: %s\n", isa_name(isa), reason.empty() ? "checked" : reason.c_str());
  }
  Outcome outcome;
  check_thread_pool(outcome);
  check_packed(outcome);
  check_bitmaps(outcome);
  check_forged(outcome);
  check_sampler(outcome);
  check_suffix_index(outcome);
  check_retrieve(outcome);
  check_batches(outcome);
  check_encode(outcome);
  check_cross(outcome);
  check_gated(outcome);
  check_written_drafts(outcome);
  check_attention(outcome);
  check_sets_agree(outcome);
  check_allocations(outcome);
  std::printf("core_check: %d passed, %d failed\n", outcome.num_passed, outcome.num_failed);
  return outcome.num_failed == 0 ? 0 : 1;
}
