// The checks that core_check runs. Each prints what failed and counts.
#pragma once

#include <stdexcept>

namespace paredown {

template <class Body>
bool is_refused(Body&& body) {
  try {
    body();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

struct Outcome {
  int num_passed = 0;
  int num_failed = 0;

  void count(bool passed) { (passed ? num_passed : num_failed) += 1; }
};

// A sequence's logits have the same bits in a batch and alone.
void check_batches(Outcome& outcome);

// Rows through gate, up and down have the same bits together, where down's input is made at once,
// and alone.
void check_gated(Outcome& outcome);

// Attention over long contexts has the same bits in a chunk of a prompt, beside another sequence
// and with its keys shared by threads.
void check_attention(Outcome& outcome);

// A text's vectors have the same bits in a batch and alone.
void check_encode(Outcome& outcome);

// A sequence's logits have the same bits in a batch and alone where its model reads texts across,
// whatever pages they lie in; what does not fit together is refused.
void check_cross(Outcome& outcome);

// Every instruction set computes what the generic one computes, up to rounding.
void check_sets_agree(Outcome& outcome);

// Every share of a parallel region and every item of its shares runs exactly once, with 1 to 12
// threads.
void check_thread_pool(Outcome& outcome);

// Packed bytes give back the rows they were made of; impossible shapes are refused.
void check_packed(Outcome& outcome);

// Weights whose zeros are a bit each have the bits of dense ones on every set, and forged bytes of
// them are refused or used without leaving their memory.
void check_bitmaps(Outcome& outcome);

// Shapes, tables of positions and configs with numbers that a file may claim are refused, or used
// without leaving their memory.
void check_forged(Outcome& outcome);

// A row is sampled to the same bits on every instruction set and number of threads, and its token
// is the draw from the distribution that verification gets.
void check_sampler(Outcome& outcome);

// Lookups find what a scan of all texts finds, and nothing of a text that is removed.
void check_suffix_index(Outcome& outcome);

// Search among vectors finds what a loop finds, in the same bits alone and on more threads.
void check_retrieve(Outcome& outcome);

// Drafts that are written in one call are those of a step and a draw for each token.
void check_written_drafts(Outcome& outcome);

// A step like the one before it allocates nothing.
void check_allocations(Outcome& outcome);

}  // namespace paredown
