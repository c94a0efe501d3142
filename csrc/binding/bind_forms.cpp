// What Python sees of the tables of kernels: the forms of an instruction set, in their order.
#include "binding/bind_forms.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "machine/isa.h"
#include "weights/names.h"

namespace nb = nanobind;

namespace paredown {
namespace {

const std::map<std::string, InputLayout> kInputLayouts = {
    {"rows", InputLayout::kRows},
    {"interleaved", InputLayout::kInterleaved},
    {"pairs", InputLayout::kPairs}};

using Names = std::vector<std::pair<std::string, std::string>>;

// The name of each form, and the layout of inputs that it reads.
Names linear_forms(const std::string& isa) {
  const KernelTable& kernels = kernel_table(choose_isa(isa));
  Names found;
  for (int64_t i = 0; i < kernels.num_linear_forms; ++i) {
    const LinearForm& form = kernels.linear_forms[i];
    found.emplace_back(form.name, name_of(kInputLayouts, form.layout));
  }
  return found;
}

// Each format of keys and values, and the name of the form that meets its pages.
Names attention_forms(const std::string& isa) {
  const KernelTable& kernels = kernel_table(choose_isa(isa));
  Names found;
  for (const auto& [name, format] : kKvFormats) {
    for (int64_t i = 0; i < kernels.num_attention_forms; ++i) {
      const AttentionForm& form = kernels.attention_forms[i];
      if (form.kind == format.kind) found.emplace_back(name, form.name);
    }
  }
  return found;
}

}  // namespace

void bind_forms(nb::module_& m) {
  m.def("linear_forms", &linear_forms, nb::arg("isa"));
  m.def("attention_forms", &attention_forms, nb::arg("isa"));
}

}  // namespace paredown
