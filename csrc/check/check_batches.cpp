#include <cstdio>
#include <cstring>

#include "check/checks.h"
#include "check/random_model.h"
#include "weights/names.h"

namespace paredown {
namespace {

bool same_bits_alone(const Case& test, Random& random) {
  const std::unique_ptr<Model> model = random_model(random, test);
  std::vector<Sequence> sequences = random_sequences(random);
  std::vector<Sequence*> all;
  for (Sequence& sequence : sequences) all.push_back(&sequence);
  run_sequences(*model, random, all, false);
  for (const Sequence& sequence : sequences) {
    Sequence alone{sequence.tokens, sequence.pages, {}, 0};
    run_sequences(*model, random, {&alone}, true);
    if (std::memcmp(alone.logits.data(), sequence.logits.data(),
                    alone.logits.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

void check_batches(Outcome& outcome) {
  Random random(20);
  for (Isa isa : supported_isas()) {
    int kind_place = 0;
    for (WeightKind kind : {WeightKind::kFp32, WeightKind::kFp16, WeightKind::kBf16,
                            WeightKind::kInt8, WeightKind::kInt4}) {
      int place = kind_place++;
      for (const auto& [name, kv] : kKvFormats) {
        // A third of all cases, each pair of kind, pages and variant among them.
        for (int variant = place++ % 3; variant < 8; variant += 3) {
          // Two layers of one format, or of this one and bf16; from variant 5 on with unequal ones.
          const bool unequal = variant > 4;
          Case test{isa,
                    kind,
                    kv,
                    variant % 2 == 1,
                    unequal ? variant == 7 : variant / 2 == 1,
                    unequal ? variant == 6 : variant == 4};
          if (variant % 3 == 0) test.last_kv = {KvKind::kBf16, false};
          test.unequal = unequal;
          const bool passed = same_bits_alone(test, random);
          outcome.count(passed);
          if (!passed) {
            std::printf("bits differ: %s, kind %d, pages %s, variant %d\n", isa_name(isa),
                        static_cast<int>(kind), name.c_str(), variant);
          }
        }
      }
    }
  }
}

}  // namespace paredown
