// What Python sees of one linear layer.
#include "binding/bind_linear.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <stdexcept>

#include "machine/isa.h"
#include "model/linear_runner.h"
#include "weights/names.h"

namespace nb = nanobind;

namespace paredown {

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
    if (source.group_size < 1 || source.group_size > source.num_columns) {
      throw std::invalid_argument("group_size must be from 1 to the number of columns");
    }
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

namespace {

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
      .def("form", &Linear::form, nb::arg("num_tokens"))
      .def("run", &Linear::run, nb::arg("input"), nb::arg("output"));
}

}  // namespace paredown
