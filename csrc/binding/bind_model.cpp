// What Python sees of a model: its configuration, its weights as arrays, and packed ones as fields
// and bytes.
#include "binding/bind_model.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>

#include "binding/bind_linear.h"
#include "binding/bind_step.h"
#include "binding/read_config.h"
#include "model/model.h"
#include "weights/names.h"

namespace nb = nanobind;

namespace paredown {
namespace {

std::span<const uint8_t> table_bytes(const AnyMatrix& values, WeightKind kind) {
  if (static_cast<int64_t>(values.itemsize()) != element_bytes(kind)) {
    throw std::invalid_argument("the table's elements do not have the size of its kind");
  }
  return {static_cast<const uint8_t*>(values.data()), values.nbytes()};
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

}  // namespace

void bind_model(nb::module_& m) {
  m.def(
      "step_bytes",
      [](const nb::dict& config, int num_threads, int64_t num_tokens) {
        return step_bytes(read_config(config), num_threads, num_tokens);
      },
      nb::arg("config"), nb::arg("num_threads"), nb::arg("num_tokens"));

  nb::class_<Model> model(m, "Model");
  bind_steps(model);
  model
      .def(
          "__init__",
          [](Model* self, const nb::dict& config, const std::string& isa, int prefill_threads,
             int decode_threads) {
            new (self) Model(read_config(config), choose_isa(isa),
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
