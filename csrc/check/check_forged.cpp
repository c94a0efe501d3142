#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "check/checks.h"
#include "check/random_model.h"
#include "machine/aligned_buffer.h"
#include "model/linear_runner.h"

namespace paredown {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kForgedColumns = 96;
constexpr int64_t kForgedRows = 32;

// Numbers whose sums and products leave 64 bits, and neighbours of those that fit.
constexpr int64_t kForged[] = {std::numeric_limits<int64_t>::min(),
                               -1,
                               0,
                               1,
                               2,
                               16,
                               31,
                               32,
                               33,
                               64,
                               65536,
                               int64_t{1} << 28,
                               (int64_t{1} << 28) + 32,
                               int64_t{1} << 31,
                               int64_t{1} << 58,
                               int64_t{1} << 62,
                               kMost - 31,
                               kMost};

std::vector<PackedShape> true_shapes(Random& random, ThreadPool& pool) {
  std::vector<PackedShape> shapes;
  for (const WeightTraits& traits : kWeightTraits) {
    // Whose numbers are counted, and checked elsewhere (check_bitmaps.cpp).
    if (traits.kind == WeightKind::kBf16Short || traits.is_bitmap) continue;
    const int64_t columns = traits.block_columns == kBlockColumns ? kForgedColumns : 256;
    const int64_t bytes = kForgedRows * source_row_bytes(traits.kind, columns);
    std::vector<uint8_t> values(static_cast<size_t>(bytes));
    for (uint8_t& value : values) value = static_cast<uint8_t>(below(random, 256));
    const std::vector<float> scales = floats(random, kForgedRows * columns / 32, 0.1f, 0.01f);
    LinearSource source{};
    source.kind = traits.kind;
    source.activations =
        traits.is_integer || traits.is_blocked ? Activations::kInt8Group : Activations::kFp32;
    source.num_rows = kForgedRows;
    source.num_columns = columns;
    source.group_size = 32;
    const int64_t width = traits.source_bytes / traits.block_columns;
    const Element element = traits.is_blocked || width == 1 ? Element::kByte
                            : width == 2                    ? Element::kWord
                                                            : Element::kFloat;
    source.arrays["values"] = {values.data(), element, kForgedRows,
                               traits.is_blocked ? bytes / kForgedRows : columns};
    if (traits.has_scales()) source.arrays["scales"] = source_array(scales, kForgedRows);
    shapes.push_back(PackedLinear(source, pool).shape());
  }
  return shapes;
}

// A shape that is taken has bytes that kernels stay in, whatever they are.
void use(const PackedShape& shape, Random& random, ThreadPool& pool) {
  check_shape(shape);
  const Sections found = sections(shape);
  if (found.end > (int64_t{1} << 20)) return;
  AlignedBuffer memory(found.end);
  auto* data = memory.as<uint8_t>();
  for (int64_t i = 0; i < found.end; ++i) data[i] = static_cast<uint8_t>(below(random, 16));
  LinearGroup group;
  group.parts.emplace_back(shape, std::span<const uint8_t>(data, static_cast<size_t>(found.end)));
  for (const int64_t num_tokens : {1, 20}) {
    LinearRunner runner(kernel_table(Isa::kGeneric), pool);
    runner.reserve(num_tokens, shape.view.num_columns);
    std::vector<float> output(static_cast<size_t>(num_tokens * shape.view.num_rows));
    auto row = [&](int64_t, float* buffer) {
      std::fill_n(buffer, shape.view.num_columns, 0.5f);
      return buffer;
    };
    runner.run(group, num_tokens, row,
               {output.data(), shape.view.num_rows, false, false, false, Activation::kRelu});
  }
}

// Each number of a shape takes each forged value, alone and together with another.
bool shapes_are_checked(Random& random, ThreadPool& pool) {
  int64_t num_refused = 0;
  for (const PackedShape& shape : true_shapes(random, pool)) {
    use(shape, random, pool);
    int64_t num_fields = 0;
    PackedShape counted = shape;
    visit_fields(counted, [&](const char*, auto& field) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, int64_t>) ++num_fields;
    });
    for (int64_t round = 0; round < 2000; ++round) {
      PackedShape forged = shape;
      const int64_t first = below(random, num_fields);
      const int64_t second = below(random, num_fields);
      int64_t index = 0;
      visit_fields(forged, [&](const char*, auto& field) {
        using Field = std::remove_cvref_t<decltype(field)>;
        if constexpr (std::is_same_v<Field, int64_t>) {
          const bool is_forged = index == first || (round % 2 == 1 && index == second);
          if (is_forged) field = kForged[below(random, std::ssize(kForged))];
          ++index;
        } else if constexpr (std::is_same_v<Field, bool>) {
          if (below(random, 16) == 0) field = !field;
        }
      });
      num_refused += is_refused([&] { use(forged, random, pool); });
    }
  }
  return num_refused > 0;
}

ModelConfig learned_config(int64_t max_positions) {
  Random random(5);
  const Case test{Isa::kGeneric, WeightKind::kFp32, {KvKind::kFp32, false}, false, true};
  ModelConfig config = random_model(random, test)->config();
  config.max_positions = max_positions;
  return config;
}

// A table of positions is never read before its first row or behind its last one.
bool positions_are_checked() {
  constexpr int64_t kLongest = std::numeric_limits<int32_t>::max();
  Model model(learned_config(kLongest), Isa::kGeneric, ThreadPlan{1, 1});
  const AlignedBuffer table(64 * model.config().hidden_size * 4);
  const std::span<const uint8_t> bytes(table.as<uint8_t>(), static_cast<size_t>(table.num_bytes()));
  std::vector<int64_t> offsets(std::begin(kForged), std::end(kForged));
  offsets.insert(offsets.end(), {kMost - (int64_t{1} << 30), kMost - kLongest, kMost - 1});
  for (const int64_t offset : offsets) {
    if (!is_refused([&] { model.borrow_positions(WeightKind::kFp32, bytes, offset); }) ||
        !is_refused([&] { model.set_positions(WeightKind::kFp32, bytes, offset); })) {
      return false;
    }
  }
  Model small(learned_config(62), Isa::kGeneric, ThreadPlan{1, 1});
  small.borrow_positions(WeightKind::kFp32, bytes, 2);
  if (!is_refused([&] { small.borrow_positions(WeightKind::kFp32, bytes, 3); }) ||
      !is_refused([&] { small.borrow_positions(WeightKind::kInt4, bytes, 0); }) ||
      !is_refused([&] { small.borrow_positions(WeightKind::kFp32, bytes.subspan(1), 0); }) ||
      !is_refused([&] {
        small.borrow_positions(WeightKind::kBf16, bytes.subspan(1, bytes.size() - 96), 0);
      })) {
    return false;
  }
  ModelConfig rotary = learned_config(62);
  for (LayerConfig& layer : rotary.layers) layer.attention.inverse_frequencies = {1.0f, 0.1f};
  Model turned(rotary, Isa::kGeneric, ThreadPlan{1, 1});
  return is_refused([&] { turned.borrow_positions(WeightKind::kFp32, bytes, 0); }) &&
         is_refused([&] { turned.set_positions(WeightKind::kFp32, bytes, 0); });
}

// Configs whose sizes multiply beyond 64 bits are refused before anything is allocated of them.
bool configs_are_checked() {
  const ModelConfig config = learned_config(96);
  int64_t num_refused = 0;
  for (const int64_t forged : kForged) {
    for (int field = 0; field < 9; ++field) {
      ModelConfig other = config;
      AttentionConfig& attention = other.layers.front().attention;
      int64_t* const fields[] = {
          &other.vocab_size,   &other.hidden_size,   &other.max_positions,
          &other.num_pages,    &attention.num_heads, &attention.num_kv_heads,
          &attention.head_dim, &attention.window,    &other.layers.front().mlp->size};
      *fields[field] = forged;
      num_refused += is_refused([&] { step_bytes(other, 4, 4096); });
    }
  }
  return num_refused > 0;
}

// A model steps only with the weights that its config asks for.
bool weights_are_checked() {
  Model model(learned_config(96), Isa::kGeneric, ThreadPlan{1, 1});
  const std::vector<int32_t> zero{0}, one{1}, offsets{0, 1};
  return is_refused([&] { model.check({zero, zero, one, one, offsets, zero, zero}); });
}

}  // namespace

void check_forged(Outcome& outcome) {
  Random random(23);
  ThreadPool pool(2);
  auto count = [&](bool passed, const char* what) {
    outcome.count(passed);
    if (!passed) std::printf("forged %s are taken\n", what);
  };
  count(shapes_are_checked(random, pool), "shapes");
  count(positions_are_checked(), "positions");
  count(configs_are_checked(), "configs");
  count(weights_are_checked(), "weights");
}

}  // namespace paredown
