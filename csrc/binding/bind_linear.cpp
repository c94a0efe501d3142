// What Python sees of one linear layer.
#include "binding/bind_linear.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "machine/isa.h"
#include "model/linear_runner.h"
#include "weights/bitmap.h"
#include "weights/decode_row.h"
#include "weights/names.h"

namespace nb = nanobind;

namespace paredown {

namespace {

template <class Value>
Value read(nb::handle value, const std::string& name) {
  Value found;
  if (!nb::try_cast(value, found)) {
    throw std::invalid_argument("field '" + name + "' of a weight is of the wrong type");
  }
  return found;
}

SourceArray source_array(const AnyArray& array, const std::string& name) {
  SourceArray found{array.data(), Element::kByte, 0, 1};
  if (array.ndim() != 1 && array.ndim() != 2) {
    throw std::invalid_argument("array '" + name + "' of a weight has rows and columns");
  }
  found.num_rows = static_cast<int64_t>(array.shape(0));
  if (array.ndim() == 2) found.num_columns = static_cast<int64_t>(array.shape(1));
  if (array.itemsize() == 2) found.element = Element::kWord;
  if (array.dtype() == nb::dtype<float>()) found.element = Element::kFloat;
  if (array.itemsize() > 2 && found.element != Element::kFloat) {
    throw std::invalid_argument("array '" + name + "' of a weight has numbers of another type");
  }
  return found;
}

void read_arrays(const nb::dict& fields, GivenLinear& given) {
  for (const auto& [key, value] : fields) {
    const auto name = nb::cast<std::string>(key);
    given.arrays.push_back(read<AnyArray>(value, name));
    given.source.arrays[name] = source_array(given.arrays.back(), name);
  }
  const auto values = given.source.arrays.find("values");
  if (values == given.source.arrays.end()) throw std::invalid_argument("a weight has no values");
  given.source.num_rows = values->second.num_rows;
}

}  // namespace

GivenLinear read_linear(const nb::dict& fields) {
  GivenLinear given{};
  LinearSource& source = given.source;
  const std::map<std::string, std::function<void(nb::handle, const std::string&)>> readers = {
      {"kind",
       [&](nb::handle value, const std::string& name) {
         source.kind = look_up(kWeightKinds, read<std::string>(value, name), "weight kind");
       }},
      {"activations",
       [&](nb::handle value, const std::string& name) {
         source.activations =
             look_up(kActivationForms, read<std::string>(value, name), "form of activations");
       }},
      {"group_size",
       [&](nb::handle value, const std::string& name) {
         source.group_size = read<int64_t>(value, name);
       }},
      {"bitmap",
       [&](nb::handle value, const std::string& name) {
         source.bitmap = look_up(kBitmapChoices, read<std::string>(value, name), "bitmap choice");
       }},
      {"input_scale",
       [&](nb::handle value, const std::string& name) {
         source.input_scale = read<float>(value, name);
       }},
      {"arrays", [&](nb::handle value, const std::string& name) {
         read_arrays(read<nb::dict>(value, name), given);
       }}};
  for (const auto& [key, value] : fields) {
    const auto name = nb::cast<std::string>(key);
    const auto reader = readers.find(name);
    if (reader == readers.end()) {
      throw std::invalid_argument("a weight has no field '" + name + "'");
    }
    reader->second(value, name);
  }
  if (fields.size() != readers.size())
    throw std::invalid_argument("a field of a weight is missing");
  source.num_columns = columns_of(source.kind, source.arrays.at("values"));
  return given;
}

namespace {

// One weight on its own, for tests and benchmarks of the kernels.
class Linear {
 public:
  Linear(const std::string& isa, int num_threads, const nb::dict& weight)
      : pool_(num_threads), runner_(kernel_table(choose_isa(isa)), pool_) {
    GivenLinear given = read_linear(weight);
    given.source.short_exponents = runner_.kernels().prefers_short_bf16;
    group_.parts.emplace_back(given.source, pool_);
    num_columns_ = given.source.num_columns;
    stride_ = (num_columns_ + 31) / 32 * 32;
  }

  size_t num_bytes() const { return group_.parts[0].bytes().size(); }

  // Of codes, as an embedding reads them.
  void read_row(int64_t row,
                nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu> values) const {
    const LinearView& view = group_.parts[0].view();
    if (!has_decoded_rows(view) || row < 0 || row >= view.num_rows ||
        static_cast<int64_t>(values.shape(0)) != view.num_columns) {
      throw std::invalid_argument("a row of codes has the weight's columns, in whole blocks");
    }
    decode_row(view, row, values.data());
  }

  std::string form(int64_t num_tokens) const {
    if (num_tokens < 1) throw std::invalid_argument("there must be tokens");
    return runner_.kernels().linear_form(group_.parts[0].view(), num_tokens).name;
  }

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
      max_tokens_ = 0;  // until all is there
      runner_.reserve(num_tokens, stride_);
      max_tokens_ = num_tokens;
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

void bind_linear(nb::module_& m) {
  m.def("bitmap_pays", &bitmap_pays, nb::arg("value_bits"), nb::arg("num_numbers"),
        nb::arg("num_zeros"));
  nb::class_<Linear>(m, "Linear")
      .def(nb::init<const std::string&, int, const nb::dict&>(), nb::arg("isa"),
           nb::arg("num_threads"), nb::arg("weight"))
      .def_prop_ro("num_bytes", &Linear::num_bytes)
      .def("form", &Linear::form, nb::arg("num_tokens"))
      .def("read_row", &Linear::read_row, nb::arg("row"), nb::arg("values"))
      .def("run", &Linear::run, nb::arg("input"), nb::arg("output"));
}

}  // namespace paredown
