#include <cmath>
#include <cstdio>
#include <cstring>

#include "check/checks.h"
#include "check/random.h"
#include "model/linear_runner.h"
#include "weights/names.h"

namespace paredown {
namespace {

struct Form {
  WeightKind kind;
  Activations activations;
  int64_t group_size;  // 0: a scale for a row
};

struct Weight {
  std::vector<uint16_t> numbers;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  LinearGroup group;
};

Weight random_weight(Random& random, const Form& form, int64_t rows, int64_t columns, bool gated,
                     ThreadPool& pool) {
  Weight weight;
  LinearSource source{};
  source.kind = form.kind;
  source.activations = form.activations;
  source.num_rows = rows;
  source.num_columns = columns;
  source.group_size = form.group_size > 0 ? form.group_size : columns;
  source.gated = gated;
  for (int64_t i = 0; i < rows * columns; ++i) {
    // bf16 numbers near 1 / 64, of both signs.
    weight.numbers.push_back(
        static_cast<uint16_t>(0x3C00 + below(random, 0x100) + 0x8000 * below(random, 2)));
    weight.codes.push_back(static_cast<uint8_t>(below(random, 16)));
  }
  weight.scales = floats(random, rows * columns / source.group_size, 0.01f, 0.001f);
  if (form.kind == WeightKind::kBf16) {
    source.arrays["values"] = source_array(weight.numbers, rows);
  } else {
    source.arrays["values"] = source_array(weight.codes, rows);
    source.arrays["scales"] = source_array(weight.scales, rows);
  }
  weight.group.parts.emplace_back(source, pool);
  return weight;
}

// Rows of `hidden` columns through gate, up and down, all at once or each alone.
std::vector<float> gated_outputs(LinearRunner& runner, const Weight& gate_up, const Weight& down,
                                 const std::vector<float>& input, int64_t hidden,
                                 int64_t rows_at_once) {
  const int64_t intermediate = down.group.parts.front().view().num_columns;
  const int64_t num_tokens = static_cast<int64_t>(input.size()) / hidden;
  std::vector<float> between(static_cast<size_t>(rows_at_once * intermediate));
  std::vector<float> output(input.size());
  for (int64_t first = 0; first < num_tokens; first += rows_at_once) {
    auto row = [&](int64_t token, float* buffer) {
      std::copy_n(input.data() + (first + token) * hidden, hidden, buffer);
      return buffer;
    };
    runner.run_gated(
        gate_up.group, down.group, rows_at_once, row,
        {between.data(), intermediate, false, false, true, Activation::kSilu},
        {output.data() + first * hidden, hidden, false, false, false, Activation::kSilu});
  }
  return output;
}

// With two threads blocks of tokens are shared out, with three units of panels.
bool same_bits_alone(Isa isa, const Form& form, int64_t hidden, int64_t intermediate,
                     int num_threads) {
  constexpr int64_t kTokens = 144;  // of which the kernels of many tokens make down's input at once
  Random random(31);
  ThreadPool pool(num_threads);
  const Weight gate_up = random_weight(random, form, 2 * intermediate, hidden, true, pool);
  const Weight down = random_weight(random, form, hidden, intermediate, false, pool);
  LinearRunner runner(kernel_table(isa), pool);
  runner.reserve(kTokens, std::max(hidden, 2 * intermediate));
  const std::vector<float> input = floats(random, kTokens * hidden, 0.0f, 1.0f);
  const std::vector<float> together = gated_outputs(runner, gate_up, down, input, hidden, kTokens);
  const std::vector<float> alone = gated_outputs(runner, gate_up, down, input, hidden, 1);
  return std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)) == 0;
}

}  // namespace

void check_gated(Outcome& outcome) {
  const Form forms[] = {{WeightKind::kBf16, Activations::kBf16, 0},
                        {WeightKind::kFp8, Activations::kBf16, 0},
                        {WeightKind::kInt4, Activations::kInt8Group, 32},
                        {WeightKind::kInt4, Activations::kInt8Group, 128},
                        {WeightKind::kInt4, Activations::kInt16Group, 32},  // at once on no set
                        {WeightKind::kInt4, Activations::kBf16, 64},
                        {WeightKind::kInt4, Activations::kFp32, 64},
                        {WeightKind::kInt4, Activations::kInt8Row, 0}};  // at once on no set
  for (Isa isa : supported_isas()) {
    for (const Form& form : forms) {
      // Intermediate rows longer than hidden ones, as most models have them, and shorter.
      for (const auto& [hidden, intermediate] :
           {Range{128, 256}, Range{512, 256}, Range{512, 128}}) {
        for (int num_threads : {2, 3}) {
          const bool passed = same_bits_alone(isa, form, hidden, intermediate, num_threads);
          outcome.count(passed);
          if (passed) continue;
          std::printf("gated bits differ: %s, kind %d, activations %d, %d and %d columns\n",
                      isa_name(isa), static_cast<int>(form.kind),
                      static_cast<int>(form.activations), static_cast<int>(hidden),
                      static_cast<int>(intermediate));
        }
      }
    }
  }
}

}  // namespace paredown
