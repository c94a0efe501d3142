// With the other binding_*.cpp the only file that knows Python. Arrays are checked here; nothing
// below sees a Python object.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "binding_attention.h"
#include "binding_lookup.h"
#include "binding_sampling.h"
#include "binding_step.h"
#include "hash.h"
#include "isa.h"
#include "model.h"
#include "names.h"
#include "probe.h"

namespace nb = nanobind;

namespace paredown {
namespace {

template <class T, int kDims>
using Array = nb::ndarray<const T, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;
using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Ints = Array<int32_t, 1>;

int64_t element_bytes(WeightKind kind) {
  if (kind == WeightKind::kFp32) return 4;
  return kind == WeightKind::kFp16 || kind == WeightKind::kBf16 ? 2 : 1;
}

std::span<const uint8_t> table_bytes(const AnyMatrix& values, WeightKind kind) {
  if (static_cast<int64_t>(values.itemsize()) != element_bytes(kind)) {
    throw std::invalid_argument("the table's elements do not have the size of its kind");
  }
  return {static_cast<const uint8_t*>(values.data()), values.nbytes()};
}

std::span<const int32_t> ints(const Ints& array) { return {array.data(), array.size()}; }

ModelConfig make_config(const nb::dict& options) {
  auto number = [&](const char* key) { return nb::cast<int64_t>(options[key]); };
  auto text = [&](const char* key) { return nb::cast<std::string>(options[key]); };
  ModelConfig config{};
  config.vocab_size = number("vocab_size");
  config.hidden_size = number("hidden_size");
  config.num_layers = number("num_layers");
  config.num_heads = number("num_heads");
  config.num_kv_heads = number("num_kv_heads");
  config.head_dim = number("head_dim");
  config.intermediate_size = number("intermediate_size");
  config.max_positions = number("max_positions");
  config.windows = nb::cast<std::vector<int64_t>>(options["windows"]);
  config.num_sinks = number("num_sinks");
  config.norm = look_up(kNormKinds, text("norm"), "norm");
  config.norm_eps = nb::cast<float>(options["norm_eps"]);
  config.activation = look_up(kActivations, text("activation"), "activation");
  config.gated = nb::cast<bool>(options["gated"]);
  for (const auto& dtype : nb::cast<std::vector<std::string>>(options["kv_dtypes"])) {
    config.kv.push_back(look_up(kKvFormats, dtype, "kv_dtype"));
  }
  config.num_pages = number("num_pages");
  config.inverse_frequencies = nb::cast<std::vector<float>>(options["inverse_frequencies"]);
  config.sparse_layers = nb::cast<std::vector<bool>>(options["sparse_layers"]);
  config.experts = {number("num_experts"), number("experts_per_token"),
                    number("expert_intermediate_size"), number("shared_intermediate_size"),
                    nb::cast<bool>(options["normalized_experts"])};
  return config;
}

struct LinearArrays {
  std::string activations;
  float input_scale;
  AnyMatrix values;
  int64_t group_size;
  std::optional<Array<float, 2>> scales;
  std::optional<Array<uint8_t, 2>> zero_points;
  std::optional<Array<uint8_t, 2>> steps;
  std::optional<Array<float, 1>> bias;
};

LinearSource check_linear(const std::string& kind, const LinearArrays& arrays) {
  LinearSource source{};
  source.kind = look_up(kWeightKinds, kind, "weight kind");
  source.activations = look_up(kActivationForms, arrays.activations, "form of activations");
  source.input_scale = arrays.input_scale;
  source.num_rows = static_cast<int64_t>(arrays.values.shape(0));
  source.num_columns = static_cast<int64_t>(arrays.values.shape(1));
  source.values = arrays.values.data();
  source.group_size = arrays.group_size;
  if (static_cast<int64_t>(arrays.values.itemsize()) != element_bytes(source.kind)) {
    throw std::invalid_argument("the weight's elements do not have the size of its kind");
  }
  if (element_bytes(source.kind) == 1) {
    if (source.group_size < 1) throw std::invalid_argument("group_size must be positive");
    const int64_t num_groups = source.num_columns / source.group_size;
    auto fits = [&](const auto& array, int64_t num_columns) {
      return static_cast<int64_t>(array.shape(0)) == source.num_rows &&
             static_cast<int64_t>(array.shape(1)) == num_columns;
    };
    if (!arrays.scales || !fits(*arrays.scales, arrays.steps ? 1 : num_groups) ||
        (arrays.steps && !fits(*arrays.steps, num_groups)) ||
        (arrays.zero_points && !fits(*arrays.zero_points, num_groups))) {
      throw std::invalid_argument(
          "scales and zero points must be [rows, columns / group_size]; with steps of that shape "
          "scales are [rows, 1]");
    }
    source.steps = arrays.steps ? arrays.steps->data() : nullptr;
    source.scales = arrays.scales->data();
    source.zero_points = arrays.zero_points ? arrays.zero_points->data() : nullptr;
  }
  if (arrays.bias) {
    if (static_cast<int64_t>(arrays.bias->size()) != source.num_rows) {
      throw std::invalid_argument("the bias must have one entry per row");
    }
    source.bias = arrays.bias->data();
  }
  return source;
}

void add_linear(Model& model, const std::string& role, int64_t layer, const std::string& kind,
                AnyMatrix values, int64_t group_size, std::optional<Array<float, 2>> scales,
                std::optional<Array<uint8_t, 2>> zero_points,
                std::optional<Array<uint8_t, 2>> steps, std::optional<Array<float, 1>> bias,
                const std::string& activations, float input_scale) {
  model.add_linear(role, layer,
                   check_linear(kind, {activations, input_scale, values, group_size, scales,
                                       zero_points, steps, bias}));
}

using Bytes = Array<uint8_t, 1>;

std::span<const uint8_t> bytes_of(const Bytes& array) { return {array.data(), array.size()}; }

// Bytes that the model keeps; `owner` keeps the model.
nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>> view_of(std::span<const uint8_t> bytes,
                                                           nb::handle owner) {
  return {bytes.data(), {bytes.size()}, owner};
}

// Every field of a PackedShape must stand in both of the next two functions.
static_assert(sizeof(LinearView) == 160 && sizeof(PackedShape) == 176);

nb::dict shape_fields(const PackedShape& shape) {
  const LinearView& view = shape.view;
  nb::dict fields;
  fields["kind"] = name_of(kWeightKinds, view.kind);
  fields["scale_kind"] = name_of(kScaleKinds, view.scale_kind);
  fields["input"] = name_of(kInputKinds, view.input);
  fields["num_rows"] = view.num_rows;
  fields["num_columns"] = view.num_columns;
  fields["group_size"] = view.group_size;
  fields["num_groups"] = view.num_groups;
  fields["weight_groups"] = view.weight_groups;
  fields["input_groups"] = view.input_groups;
  fields["step_size"] = view.step_size;
  fields["num_steps"] = view.num_steps;
  fields["input_scale"] = view.input_scale;
  fields["has_scales"] = shape.has_scales;
  fields["has_zero_points"] = shape.has_zero_points;
  fields["has_bias"] = shape.has_bias;
  fields["gated"] = shape.gated;
  fields["num_wide_blocks"] = shape.num_wide_blocks;
  return fields;
}

PackedShape shape_from_fields(const nb::dict& fields) {
  auto number = [&](const char* key) { return nb::cast<int64_t>(fields[key]); };
  auto text = [&](const char* key) { return nb::cast<std::string>(fields[key]); };
  auto flag = [&](const char* key) { return nb::cast<bool>(fields[key]); };
  PackedShape shape{};
  LinearView& view = shape.view;
  view.kind = look_up(kWeightKinds, text("kind"), "weight kind");
  view.scale_kind = look_up(kScaleKinds, text("scale_kind"), "scale kind");
  view.input = look_up(kInputKinds, text("input"), "input kind");
  view.num_rows = number("num_rows");
  view.num_columns = number("num_columns");
  view.group_size = number("group_size");
  view.num_groups = number("num_groups");
  view.weight_groups = number("weight_groups");
  view.input_groups = number("input_groups");
  view.step_size = number("step_size");
  view.num_steps = number("num_steps");
  view.input_scale = nb::cast<float>(fields["input_scale"]);
  shape.has_scales = flag("has_scales");
  shape.has_zero_points = flag("has_zero_points");
  shape.has_bias = flag("has_bias");
  shape.gated = flag("gated");
  shape.num_wide_blocks = number("num_wide_blocks");
  return shape;
}

// (role, layer, shape, bytes) of every packed weight.
nb::list packed_linears(nb::handle_t<Model> self) {
  nb::list found;
  for (const PlacedLinear& placed : nb::cast<const Model&>(self).linears()) {
    found.append(nb::make_tuple(placed.role, placed.layer, shape_fields(placed.weight->shape()),
                                view_of(placed.weight->bytes(), self)));
  }
  return found;
}

// One weight on its own, for tests and benchmarks of the kernels.
class Linear {
 public:
  Linear(const std::string& isa, int num_threads, const std::string& kind, AnyMatrix values,
         int64_t group_size, std::optional<Array<float, 2>> scales,
         std::optional<Array<uint8_t, 2>> zero_points, std::optional<Array<uint8_t, 2>> steps,
         std::optional<Array<float, 1>> bias, const std::string& activations, float input_scale)
      : pool_(num_threads), runner_(kernel_table(choose_isa(isa)), pool_) {
    LinearSource source = check_linear(
        kind, {activations, input_scale, values, group_size, scales, zero_points, steps, bias});
    source.short_exponents = runner_.kernels().prefers_short_bf16;
    group_.parts.emplace_back(source, pool_);
    num_columns_ = static_cast<int64_t>(values.shape(1));
    stride_ = (num_columns_ + 31) / 32 * 32;
  }

  size_t num_bytes() const { return group_.parts[0].bytes().size(); }

  void run(Array<float, 2> input,
           nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> output) {
    const int64_t num_tokens = static_cast<int64_t>(input.shape(0));
    const int64_t num_rows = group_.parts[0].view().num_rows;
    if (static_cast<int64_t>(input.shape(1)) != num_columns_ ||
        static_cast<int64_t>(output.shape(0)) != num_tokens ||
        static_cast<int64_t>(output.shape(1)) != num_rows) {
      throw std::invalid_argument("input must be [tokens, columns], output [tokens, rows]");
    }
    if (num_tokens > max_tokens_) {
      max_tokens_ = num_tokens;
      runner_.reserve(num_tokens, stride_);
    }
    auto row = [&](int64_t t, float* buffer) {
      std::copy_n(input.data() + t * num_columns_, num_columns_, buffer);
      std::fill(buffer + num_columns_, buffer + stride_, 0.0f);
      return buffer;
    };
    runner_.run(group_, num_tokens, row,
                {output.data(), num_rows, false, false, false, Activation::kSilu});
  }

 private:
  ThreadPool pool_;
  LinearRunner runner_;
  LinearGroup group_;
  int64_t num_columns_ = 0;
  int64_t stride_ = 0;
  int64_t max_tokens_ = 0;
};

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "Paredown's native core: batched decoder steps over paged keys and values.";

  m.def("supported_isas", [] {
    std::vector<std::string> names;
    for (Isa isa : supported_isas()) names.emplace_back(isa_name(isa));
    return names;
  });
  m.def("known_isas", [] {
    std::vector<std::pair<std::string, std::string>> found;
    for (Isa isa : known_isas()) found.emplace_back(isa_name(isa), why_unavailable(isa));
    return found;
  });
  m.def(
      "step_bytes",
      [](const nb::dict& config, int num_threads, int64_t num_tokens) {
        return step_bytes(make_config(config), num_threads, num_tokens);
      },
      nb::arg("config"), nb::arg("num_threads"), nb::arg("num_tokens"));
  m.attr("LAYOUT_VERSION") = kLayoutVersion;
  m.attr("MAX_DECODE_TOKENS") = kMaxDecodeTokens;
  m.def(
      "hash_chunks",
      [](Bytes bytes, int64_t chunk_bytes, int num_threads) {
        nb::gil_scoped_release release;
        return hash_chunks(bytes_of(bytes), chunk_bytes, num_threads);
      },
      nb::arg("bytes"), nb::arg("chunk_bytes"), nb::arg("num_threads"));
  m.def(
      "measure_peak",
      [](const std::string& isa, int num_threads, const std::string& unit) {
        return measure_peak(choose_isa(isa), num_threads, unit);
      },
      nb::arg("isa"), nb::arg("num_threads"), nb::arg("unit"),
      nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "measure_bandwidth",
      [](const std::string& isa, int num_threads, int64_t num_bytes) {
        return measure_bandwidth(choose_isa(isa), num_threads, num_bytes);
      },
      nb::arg("isa"), nb::arg("num_threads"), nb::arg("num_bytes"),
      nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "measure_region",
      [](const std::string& isa, int num_threads, int64_t num_regions, int64_t num_operations) {
        return measure_region(choose_isa(isa), num_threads, num_regions, num_operations);
      },
      nb::arg("isa"), nb::arg("num_threads"), nb::arg("num_regions"), nb::arg("num_operations"),
      nb::call_guard<nb::gil_scoped_release>());

  bind_lookup(m);
  bind_sampling(m);
  bind_attention(m);

  nb::class_<Linear>(m, "Linear")
      .def(nb::init<const std::string&, int, const std::string&, AnyMatrix, int64_t,
                    std::optional<Array<float, 2>>, std::optional<Array<uint8_t, 2>>,
                    std::optional<Array<uint8_t, 2>>, std::optional<Array<float, 1>>,
                    const std::string&, float>(),
           nb::arg("isa"), nb::arg("num_threads"), nb::arg("kind"), nb::arg("values"),
           nb::arg("group_size"), nb::arg("scales").none(), nb::arg("zero_points").none(),
           nb::arg("steps").none(), nb::arg("bias").none(), nb::arg("activations"),
           nb::arg("input_scale"))
      .def_prop_ro("num_bytes", &Linear::num_bytes)
      .def("run", &Linear::run, nb::arg("input"), nb::arg("output"));

  nb::class_<Model> model(m, "Model");
  bind_steps(model);
  model
      .def(
          "__init__",
          [](Model* self, const nb::dict& config, const std::string& isa, int prefill_threads,
             int decode_threads) {
            new (self) Model(make_config(config), choose_isa(isa),
                             ThreadPlan{prefill_threads, decode_threads});
          },
          nb::arg("config"), nb::arg("isa"), nb::arg("prefill_threads"), nb::arg("decode_threads"))
      .def_prop_ro("isa", [](const Model& model) { return model.kernels().name; })
      .def_prop_ro("weight_bytes", &Model::weight_bytes)
      .def_prop_ro("step_bytes", &Model::step_bytes)
      .def_prop_ro("sampler", &Model::sampler, nb::rv_policy::reference_internal)
      .def("add_linear", add_linear, nb::arg("role"), nb::arg("layer"), nb::arg("kind"),
           nb::arg("values"), nb::arg("group_size"), nb::arg("scales").none(),
           nb::arg("zero_points").none(), nb::arg("steps").none(), nb::arg("bias").none(),
           nb::arg("activations"), nb::arg("input_scale"))
      .def("set_norm", &Model::set_norm, nb::arg("role"), nb::arg("layer"), nb::arg("weight"),
           nb::arg("bias"))
      .def(
          "set_kv_scales",
          [](Model& model, int64_t layer, const std::vector<float>& keys,
             const std::vector<float>& values) { model.set_kv_scales(layer, keys, values); },
          nb::arg("layer"), nb::arg("keys"), nb::arg("values"))
      .def("set_embedding",
           [](Model& model, const std::string& kind, AnyMatrix values) {
             const WeightKind weight_kind = look_up(kWeightKinds, kind, "weight kind");
             model.set_embedding(weight_kind, table_bytes(values, weight_kind));
           })
      .def("set_positions",
           [](Model& model, const std::string& kind, AnyMatrix values, int64_t offset) {
             const WeightKind weight_kind = look_up(kWeightKinds, kind, "weight kind");
             model.set_positions(weight_kind, table_bytes(values, weight_kind), offset);
           })
      .def("tie_embedding", &Model::tie_embedding)
      .def("check_weights", &Model::check_weights)
      .def("packed_linears", packed_linears)
      // The model keeps the arrays that it borrows from, and with them the file they map.
      .def(
          "borrow_linear",
          [](Model& model, const std::string& role, int64_t layer, const nb::dict& shape,
             Bytes bytes) {
            model.borrow_linear(role, layer, shape_from_fields(shape), bytes_of(bytes));
          },
          nb::arg("role"), nb::arg("layer"), nb::arg("shape"), nb::arg("bytes"),
          nb::keep_alive<1, 5>())
      .def(
          "borrow_embedding",
          [](Model& model, const std::string& kind, Bytes bytes) {
            model.borrow_embedding(look_up(kWeightKinds, kind, "weight kind"), bytes_of(bytes));
          },
          nb::arg("kind"), nb::arg("bytes"), nb::keep_alive<1, 3>())
      .def(
          "borrow_positions",
          [](Model& model, const std::string& kind, Bytes bytes, int64_t offset) {
            model.borrow_positions(look_up(kWeightKinds, kind, "weight kind"), bytes_of(bytes),
                                   offset);
          },
          nb::arg("kind"), nb::arg("bytes"), nb::arg("offset"), nb::keep_alive<1, 3>())
      .def(
          "copy_pages", [](Model& model, Ints pairs) { model.copy_pages(ints(pairs)); },
          nb::arg("pairs"));
}

}  // namespace paredown
