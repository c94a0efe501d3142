#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "check/checks.h"
#include "check/random_model.h"
#include "model/linear_runner.h"

namespace paredown {
namespace {

// Largest difference allowed, as a part of the largest magnitude of the right result.
constexpr float kTolerance = 1e-5f;
constexpr uint32_t kSeed = 7;

struct Comparison {
  float difference = 0.0f;
  float magnitude = 0.0f;

  bool agrees() const { return difference <= kTolerance * magnitude; }
};

Comparison compare(const std::vector<float>& result, const std::vector<float>& expected) {
  Comparison found;
  for (size_t i = 0; i < expected.size(); ++i) {
    const float difference = std::fabs(result[i] - expected[i]);
    // A NaN counts as a difference without bound.
    found.difference = std::isnan(difference) ? INFINITY : std::max(found.difference, difference);
    found.magnitude = std::max(found.magnitude, std::fabs(expected[i]));
  }
  return found;
}

struct LinearCase {
  WeightKind kind;
  Activations activations;
  int64_t num_columns;
  int64_t group_size;
  bool asymmetric;
  int64_t num_tokens;
  bool stepped = false;
  bool short_exponents = false;
  bool has_bitmap = false;
};

// The last panel of 16 is not full. Some forms want an even number of panels.
int64_t rows_of(const LinearCase& test) { return test.asymmetric ? 72 : 88; }

// Rows of the sets' tables of forms that some case ran.
using Reached = std::set<const LinearForm*>;

std::vector<float> linear_outputs(Isa isa, const LinearCase& test, Reached& reached) {
  const int64_t num_rows = rows_of(test);
  Random random(kSeed);
  const int64_t count = num_rows * test.num_columns;
  const int64_t num_scales = count / test.group_size;
  const std::vector<float> values = floats(random, count, 0.0f, 0.2f);
  const std::vector<float> scales = floats(random, num_scales, 0.02f, 0.01f);
  std::vector<uint16_t> halves;
  std::vector<uint8_t> codes;
  std::vector<uint8_t> zero_points;
  std::vector<uint8_t> steps;
  // Of the codes of e4m3, 127 and 255 are NaN.
  const bool is_fp8 = test.kind == WeightKind::kFp8;
  const int64_t num_codes = is_fp8 ? 127 : int64_t{1} << std::min(8, weight_bits(test.kind));
  for (int64_t i = 0; i < count; ++i) {
    // Numbers of both signs near 1, as bf16 and as fp16.
    const int64_t magnitude = test.kind == WeightKind::kBf16 ? 0x3E00 : 0x3000;
    int64_t half = magnitude + below(random, 0x200);
    // Sixteen exponents, and few numbers with others.
    if (test.short_exponents)
      half = below(random, 1500) == 0 ? 0x3400 : 0x3780 + below(random, 0x800);
    halves.push_back(static_cast<uint16_t>(half + 0x8000 * below(random, 2)));
    codes.push_back(static_cast<uint8_t>(below(random, num_codes)));
  }
  for (int64_t i = 0; i < num_scales; ++i) {
    zero_points.push_back(static_cast<uint8_t>(below(random, num_codes)));
    steps.push_back(static_cast<uint8_t>(1 + below(random, 8)));
  }
  const WeightTraits& traits = traits_of(test.kind);
  if (traits.is_blocked) {
    // Bytes of which any two are a small fp16 number, as scales are.
    codes.resize(static_cast<size_t>(num_rows * source_row_bytes(test.kind, test.num_columns)));
    for (uint8_t& byte : codes) byte = static_cast<uint8_t>(below(random, 0x20));
  }
  ThreadPool pool(2);
  LinearSource source{};
  source.kind = test.kind;
  source.activations = test.activations;
  source.num_rows = num_rows;
  source.num_columns = test.num_columns;
  source.group_size = test.group_size;
  source.input_scale = 0.01f;
  source.arrays["values"] = source_array(codes, num_rows);
  if (test.kind == WeightKind::kFp32) source.arrays["values"] = source_array(values, num_rows);
  if (test.kind == WeightKind::kFp16 || test.kind == WeightKind::kBf16) {
    source.arrays["values"] = source_array(halves, num_rows);
  }
  // With steps there is one scale for a row.
  const std::vector<float> row_scales(scales.begin(), scales.begin() + num_rows);
  if (traits.has_scales()) {
    source.arrays["scales"] = source_array(test.stepped ? row_scales : scales, num_rows);
  }
  if (test.asymmetric) source.arrays["zero_points"] = source_array(zero_points, num_rows);
  if (test.stepped) source.arrays["steps"] = source_array(steps, num_rows);
  source.short_exponents = test.short_exponents;
  source.bitmap = test.has_bitmap ? BitmapChoice::kAlways : BitmapChoice::kNever;
  LinearGroup group;
  group.parts.emplace_back(source, pool);
  LinearRunner runner(kernel_table(isa), pool);
  const LinearView& view = group.parts[0].view();
  reached.insert(&runner.kernels().linear_form(view, test.num_tokens * view.input_codes));
  runner.reserve(test.num_tokens, test.num_columns);
  const std::vector<float> input = floats(random, test.num_tokens * test.num_columns, 0.0f, 1.0f);
  std::vector<float> output(static_cast<size_t>(test.num_tokens * num_rows));
  auto row = [&](int64_t token, float* buffer) {
    std::copy_n(input.data() + token * test.num_columns, test.num_columns, buffer);
    return buffer;
  };
  runner.run(group, test.num_tokens, row,
             {output.data(), num_rows, false, false, false, Activation::kRelu});
  return output;
}

// The cases of one set.
struct SetCheck {
  Isa isa;
  Reached& reached;
  Outcome& outcome;
};

void check_linear(const SetCheck& set, const LinearCase& test) {
  const Comparison found = compare(linear_outputs(set.isa, test, set.reached),
                                   linear_outputs(Isa::kGeneric, test, set.reached));
  set.outcome.count(found.agrees());
  if (!found.agrees()) {
    std::printf(
        "linear of %s differs from generic by %g of %g: kind %d, activations %d, %d columns "
        "in groups of %d%s, %d tokens\n",
        isa_name(set.isa), found.difference, found.magnitude, static_cast<int>(test.kind),
        static_cast<int>(test.activations), static_cast<int>(test.num_columns),
        static_cast<int>(test.group_size), test.stepped ? " with steps" : "",
        static_cast<int>(test.num_tokens));
  }
}

void check_linears(const SetCheck& set) {
  constexpr int64_t kColumns = 192;
  for (int64_t num_tokens : {1, 5, 33}) {
    for (WeightKind kind :
         {WeightKind::kFp32, WeightKind::kFp16, WeightKind::kBf16, WeightKind::kFp8}) {
      check_linear(set, {kind, Activations::kFp32, kColumns, kColumns, false, num_tokens});
    }
    for (WeightKind kind : {WeightKind::kBf16, WeightKind::kFp8}) {
      check_linear(set, {kind, Activations::kBf16, kColumns, kColumns, false, num_tokens});
    }
    LinearCase shortened{WeightKind::kBf16, Activations::kBf16, kColumns, kColumns, false,
                         num_tokens};
    shortened.short_exponents = true;
    check_linear(set, shortened);
    shortened.has_bitmap = true;
    check_linear(set, shortened);
    LinearCase codes{WeightKind::kInt8, Activations::kInt8Row, kColumns, kColumns, false,
                     num_tokens};
    codes.has_bitmap = true;
    check_linear(set, codes);
    for (WeightKind kind : {WeightKind::kInt2, WeightKind::kInt3, WeightKind::kInt4,
                            WeightKind::kInt5, WeightKind::kInt6, WeightKind::kInt8}) {
      for (int64_t group_size : {int64_t{32}, int64_t{64}, kColumns}) {
        for (Activations activations :
             {Activations::kFp32, Activations::kBf16, Activations::kInt8Group,
              Activations::kInt16Group, Activations::kInt8Row, Activations::kInt8Static}) {
          check_linear(set, {kind, activations, kColumns, group_size, false, num_tokens});
          check_linear(set, {kind, activations, kColumns, group_size, true, num_tokens});
        }
      }
    }
  }
}

void check_blocks(const SetCheck& set) {
  for (const WeightTraits& traits : kWeightTraits) {
    if (!traits.is_blocked) continue;
    const int64_t num_columns = 3 * traits.block_columns;
    for (int64_t num_tokens : {1, 2, 5, 33, 70}) {
      for (Activations activations : {Activations::kInt8Group, Activations::kInt16Group}) {
        check_linear(set, {traits.kind, activations, num_columns, num_columns, false, num_tokens});
      }
    }
  }
}

void check_steps(const SetCheck& set) {
  for (int64_t num_tokens : {1, 5, 33, 70}) {
    for (Activations activations : {Activations::kInt8Row, Activations::kInt8Static}) {
      for (int64_t group_size : {32, 64, 192}) {
        for (bool asymmetric : {false, true}) {
          check_linear(set, {WeightKind::kInt4, activations, 1152, group_size, asymmetric,
                             num_tokens, true});
        }
      }
    }
  }
}

// A row that no case reached is dead, or unchecked.
void check_reached(Isa isa, const Reached& reached, Outcome& outcome) {
  const KernelTable& kernels = kernel_table(isa);
  for (int64_t i = 0; i < kernels.num_linear_forms; ++i) {
    const LinearForm& form = kernels.linear_forms[i];
    const bool is_reached = reached.contains(&form);
    outcome.count(is_reached);
    if (!is_reached) std::printf("no case of %s ran '%s'\n", isa_name(isa), form.name);
  }
}

std::vector<float> model_logits(const Case& test) {
  Random random(kSeed);
  const std::unique_ptr<Model> model = random_model(random, test);
  std::vector<Sequence> sequences = random_sequences(random);
  std::vector<float> logits;
  for (Sequence& sequence : sequences) {
    run_sequences(*model, random, {&sequence}, true);
    logits.insert(logits.end(), sequence.logits.begin(), sequence.logits.end());
  }
  return logits;
}

// Embedding, norms, rotation, attention and activations, through a whole model of float weights:
// quantized inputs would turn a difference in the last bit into one of a whole code.
void check_model(Isa isa, const Case& expected, Outcome& outcome) {
  Case test = expected;
  test.isa = isa;
  const Comparison found = compare(model_logits(test), model_logits(expected));
  outcome.count(found.agrees());
  if (!found.agrees()) {
    std::printf("a model on %s differs from generic by %g of %g\n", isa_name(isa), found.difference,
                found.magnitude);
  }
}

}  // namespace

void check_sets_agree(Outcome& outcome) {
  Reached reached;
  for (Isa isa : supported_isas()) {
    if (isa == Isa::kGeneric) continue;
    check_linears({isa, reached, outcome});
    check_blocks({isa, reached, outcome});
    check_steps({isa, reached, outcome});
    check_reached(isa, reached, outcome);
    for (bool learned_positions : {false, true}) {
      for (bool unequal : {false, true}) {
        Case test{Isa::kGeneric,
                  WeightKind::kFp32,
                  {KvKind::kFp32, false},
                  learned_positions,
                  learned_positions};
        test.unequal = unequal;
        check_model(isa, test, outcome);
      }
    }
  }
}

}  // namespace paredown
