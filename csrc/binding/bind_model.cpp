// What Python sees of a model: its configuration, its weights as arrays, and packed ones as fields
// and bytes.
#include "binding/bind_model.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <type_traits>

#include "binding/bind_linear.h"
#include "binding/bind_step.h"
#include "binding/fields.h"
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

// Bytes that the model keeps; `owner` keeps the model.
nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>> view_of(std::span<const uint8_t> bytes,
                                                           nb::handle owner) {
  return {bytes.data(), {bytes.size()}, owner};
}

// A shape's fields as Python has them, by the names of visit_fields.
nb::dict shape_fields(const PackedShape& shape) {
  nb::dict fields;
  visit_fields(shape, [&](const char* name, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_enum_v<Field>) {
      fields[name] = name_of(names_of<Field>(), field);
    } else {
      fields[name] = field;
    }
  });
  return fields;
}

PackedShape shape_from_fields(const nb::dict& dict) {
  Fields fields(dict, "a packed weight");
  PackedShape shape{};
  visit_fields(shape, [&](const char* name, auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_enum_v<Field>) {
      field = look_up(names_of<Field>(), fields.get<std::string>(name), name);
    } else {
      field = fields.get<Field>(name);
    }
  });
  fields.finish();
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

  m.def(
      "encode_bytes",
      [](const nb::dict& config, int num_threads, int64_t max_tokens) {
        return encode_bytes(read_config(config), num_threads, max_tokens);
      },
      nb::arg("config"), nb::arg("num_threads"), nb::arg("max_tokens"));

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
      .def(
          "add_linear",
          [](Model& model, const std::string& role, int64_t layer, const nb::dict& weight) {
            model.add_linear(role, layer, read_linear(weight).source);
          },
          nb::arg("role"), nb::arg("layer"), nb::arg("weight"))
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
      .def("set_token_types",
           [](Model& model, const std::string& kind, AnyMatrix values) {
             const WeightKind weight_kind = look_up(kWeightKinds, kind, "weight kind");
             model.set_token_types(weight_kind, table_bytes(values, weight_kind));
           })
      .def("set_relative",
           [](Model& model, Array<float, 2> values) {
             model.set_relative({values.data(), values.size()});
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
          "borrow_token_types",
          [](Model& model, const std::string& kind, Bytes bytes) {
            model.borrow_token_types(look_up(kWeightKinds, kind, "weight kind"), bytes_of(bytes));
          },
          nb::arg("kind"), nb::arg("bytes"), nb::keep_alive<1, 3>())
      .def(
          "copy_pages", [](Model& model, Ints pairs) { model.copy_pages(ints(pairs)); },
          nb::arg("pairs"));
}

}  // namespace paredown
