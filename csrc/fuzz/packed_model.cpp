// What a packed file brings to the core: a whole model whose blobs are as they were packed but for
// what the input changes in them. What is refused is refused; what is taken is stepped.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "check/random_model.h"
#include "fuzz/fuzz_input.h"
#include "machine/aligned_buffer.h"
#include "weights/packed_shape.h"

namespace paredown {
namespace {

struct Linear {
  std::string role;
  int64_t layer;
  PackedShape shape;
  std::vector<uint8_t> bytes;
};

struct NormBlob {
  std::string role;
  int64_t layer;
  int64_t size;
  bool has_bias;
};

constexpr int64_t kMostPositions = 4096;  // of a table that an input brings

// A model as its packed file has it.
struct Packed {
  ModelConfig config;
  std::vector<Linear> linears;
  std::vector<NormBlob> norms;
};

Packed packed_model(const Case& test) {
  Random random(3);
  const std::unique_ptr<Model> model = random_model(random, test);
  Packed found{model->config(), {}, {}};
  for (const PlacedLinear& placed : model->linears()) {
    const std::span<const uint8_t> bytes = placed.weight->bytes();
    found.linears.push_back({placed.role, placed.layer, placed.weight->shape(),
                             std::vector<uint8_t>(bytes.begin(), bytes.end())});
  }
  for (int64_t layer = 0; layer < found.config.num_layers(); ++layer) {
    const LayerConfig& config = found.config.layers[static_cast<size_t>(layer)];
    for (const NormRow& row : kNormRows) {
      if (!config.norms[row.role]) continue;
      found.norms.push_back({row.name, layer, config.norm_size(row, found.config.hidden_size),
                             config.norms[row.role]->kind == NormKind::kLayer});
    }
  }
  found.norms.push_back({"final_norm", 0, found.config.hidden_size,
                         found.config.final_norm->kind == NormKind::kLayer});
  return found;
}

Case with_bitmaps(Case test) {
  test.has_bitmaps = true;
  return test;
}

const std::vector<Packed>& packed_models() {
  constexpr KvFormat kFloats{KvKind::kFp32, false};
  static const std::vector<Packed> found = {
      packed_model({Isa::kGeneric, WeightKind::kFp32, kFloats, false, true}),
      packed_model({Isa::kGeneric, WeightKind::kBf16, {KvKind::kInt8, true}, true, false}),
      packed_model({Isa::kGeneric, WeightKind::kInt4, {KvKind::kInt4, false}, true, false, true}),
      packed_model({Isa::kGeneric,
                    WeightKind::kInt8,
                    {KvKind::kFp8, false},
                    false,
                    false,
                    false,
                    kFloats,
                    true}),
      packed_model(with_bitmaps({Isa::kGeneric, WeightKind::kInt8, kFloats, false, false})),
      packed_model(with_bitmaps({Isa::kGeneric, WeightKind::kBf16, kFloats, false, false})),
  };
  return found;
}

// Memory of the borrowed bytes, each at the end of a buffer that an inaccessible page follows.
class Blobs {
 public:
  std::span<const uint8_t> add(const std::vector<uint8_t>& bytes, int64_t offset) {
    const auto size = static_cast<int64_t>(bytes.size());
    const AlignedBuffer& memory = memory_.emplace_back(size + offset);
    auto* data = memory.as<uint8_t>() + offset;
    if (size > 0) std::memcpy(data, bytes.data(), bytes.size());
    return {data, bytes.size()};
  }

 private:
  std::vector<AlignedBuffer> memory_;
};

// One number, choice or flag of a shape becomes what the input says.
void change_shape(PackedShape& shape, FuzzInput& input) {
  const int64_t chosen = input.below(19);
  int64_t index = 0;
  visit_fields(shape, [&](const char*, auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if (index++ != chosen) return;
    if constexpr (std::is_same_v<Field, WeightKind>) {
      field = static_cast<Field>(input.below(std::ssize(kWeightTraits)));
    } else if constexpr (std::is_enum_v<Field>) {
      field = static_cast<Field>(input.below(3));
    } else if constexpr (std::is_same_v<Field, bool>) {
      field = !field;
    } else if constexpr (std::is_same_v<Field, float>) {
      field = input.take<float>();
    } else {
      field = input.number();
    }
  });
}

void change_bytes(std::vector<uint8_t>& bytes, FuzzInput& input) {
  const int64_t count = input.below(8) + 1;
  for (int64_t i = 0; i < count && !bytes.empty(); ++i) {
    const auto place = input.take<uint32_t>() % bytes.size();
    bytes[place] = input.take<uint8_t>();
  }
}

// Length as the shape says where it says something that can be, so that more than the length is
// looked at; else as it was.
void fit_bytes(Linear& linear) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  try {
    check_shape(linear.shape);
  } catch (const std::invalid_argument&) {
    return;
  }
  const int64_t end = sections(linear.shape).end;
  if (end <= kMostBytes) linear.bytes.resize(static_cast<size_t>(end));
}

void change_linears(std::vector<Linear>& linears, FuzzInput& input) {
  const int64_t count = input.below(4);
  for (int64_t i = 0; i < count && !linears.empty(); ++i) {
    const auto place = static_cast<size_t>(input.below(std::ssize(linears)));
    switch (input.below(8)) {
      case 0:
        linears.push_back(linears[place]);
        break;
      case 1:
        linears.erase(linears.begin() + static_cast<std::ptrdiff_t>(place));
        break;
      case 2:
        linears[place].layer = input.number();
        break;
      case 3:
        linears[place].role = linears[static_cast<size_t>(input.below(std::ssize(linears)))].role;
        break;
      case 4:
        linears[place].bytes.resize(static_cast<size_t>(input.below(4096)));
        break;
      case 5:
        change_bytes(linears[place].bytes, input);
        break;
      default:
        change_shape(linears[place].shape, input);
        fit_bytes(linears[place]);
    }
  }
}

void add_norms(Model& model, const Packed& packed, FuzzInput& input) {
  const int64_t wrong = input.below(64) - 1;
  for (size_t i = 0; i < packed.norms.size(); ++i) {
    const NormBlob& norm = packed.norms[i];
    const bool is_wrong = static_cast<int64_t>(i) == wrong;
    const int64_t size = is_wrong ? input.below(200) : norm.size;
    std::vector<float> weight(static_cast<size_t>(size), is_wrong ? input.take<float>() : 1.0f);
    model.set_norm(norm.role, norm.layer, weight, norm.has_bias ? weight : std::vector<float>());
  }
}

void add_tables(Model& model, const Packed& packed, FuzzInput& input, Blobs& blobs) {
  const ModelConfig& config = packed.config;
  auto kind = WeightKind::kFp32;
  int64_t num_bytes = config.vocab_size * config.hidden_size * 4;
  int64_t place = 0;
  switch (input.below(16)) {
    case 1:
      kind = static_cast<WeightKind>(input.below(std::ssize(kWeightTraits)));
      break;
    case 2:
      num_bytes = input.below(1 << 15);
      break;
    case 3:
      place = input.below(64);
      break;
    case 4:
      model.tie_embedding();
      num_bytes = 0;
      break;
    case 5:
      num_bytes = 0;
      break;
    default:
      break;
  }
  if (num_bytes > 0) model.borrow_embedding(kind, blobs.add(input.bytes(num_bytes), place));
  const bool is_learned = config.layers.front().attention.inverse_frequencies.empty();
  if (!is_learned && input.below(8) != 1) return;
  const bool is_wrong = input.below(4) == 1;
  const int64_t num_rows = is_wrong || config.max_positions > kMostPositions
                               ? input.below(128)
                               : config.max_positions + 2;
  const int64_t offset = is_wrong ? input.number() : 2;
  model.borrow_positions(WeightKind::kFp32,
                         blobs.add(input.bytes(num_rows * config.hidden_size * 4), 0), offset);
}

void run(FuzzInput& input) {
  const std::vector<Packed>& models = packed_models();
  Packed packed = models[static_cast<size_t>(input.below(std::ssize(models)))];
  if (input.below(16) == 1) packed.config.max_positions = input.number();
  Blobs blobs;  // outlive the model
  Model model(packed.config, Isa::kGeneric, ThreadPlan{1, 1});
  change_linears(packed.linears, input);
  for (const Linear& linear : packed.linears) {
    const int64_t place = input.below(32) == 1 ? input.below(64) : 0;
    model.borrow_linear(linear.role, linear.layer, linear.shape, blobs.add(linear.bytes, place));
  }
  add_tables(model, packed, input, blobs);
  add_norms(model, packed, input);
  for (int64_t layer = 0; layer < packed.config.num_layers(); ++layer) {
    const auto heads = static_cast<size_t>(
        packed.config.layers[static_cast<size_t>(layer)].attention.num_kv_heads);
    const std::vector<float> scales(heads, 0.02f);
    model.set_kv_scales(layer, scales, scales);
  }
  model.check_weights();
  const std::vector<int32_t> tokens(static_cast<size_t>(input.below(20) + 1), kVocab - 1);
  const auto length = static_cast<int32_t>(tokens.size());
  const auto start = static_cast<int32_t>(input.below(128));
  const std::vector<int32_t> starts{start}, lengths{length}, asked{1}, released{0};
  std::vector<int32_t> pages;
  for (int32_t page = 0; page * kPageSize < start + length; ++page) pages.push_back(page);
  const std::vector<int32_t> offsets{0, static_cast<int32_t>(pages.size())};
  const StepInput step{tokens, starts, lengths, asked, offsets, pages, released};
  model.check(step);
  std::vector<float> logits(kVocab);
  model.step(step, logits.data());
}

}  // namespace
}  // namespace paredown

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  paredown::FuzzInput input(data, size);
  try {
    paredown::run(input);
  } catch (const std::invalid_argument&) {  // the one way in which it refuses
  }
  return 0;
}
