// What Python sees of steps, of drafts and of texts that become vectors. Numbers come as lists,
// which cost a step less than arrays made of them.
#include "binding/bind_step.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "model/draft.h"

namespace nb = nanobind;

namespace paredown {
namespace {

using Numbers = const std::vector<int32_t>&;
using Vectors = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Logits = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A view of an object's memory, given back at its end.
class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_ND | PyBUF_FORMAT) != 0) {
      throw nb::python_error();
    }
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::span<const int32_t> numbers() const {
    const std::string_view format = view_.format == nullptr ? "B" : view_.format;
    if (view_.ndim != 1 || view_.itemsize != 4 || format != "i") {
      throw std::invalid_argument("the pages of a slice must be a row of 32-bit integers");
    }
    return {static_cast<const int32_t*>(view_.buf), static_cast<size_t>(view_.shape[0])};
  }

 private:
  Py_buffer view_{};
};

// The pages of the slices of a step: of each a list, or what holds them as 32-bit integers and is
// read where it lies.
class PageTable {
 public:
  explicit PageTable(const nb::list& slices) {
    offsets_.reserve(slices.size() + 1);
    for (nb::handle one : slices) add(one);
  }
  std::span<const int32_t> offsets() const { return offsets_; }
  std::span<const int32_t> pages() const { return pages_; }

 private:
  void add(nb::handle one) {
    if (PyList_Check(one.ptr())) {
      for (nb::handle page : nb::borrow<nb::list>(one)) pages_.push_back(nb::cast<int32_t>(page));
    } else {
      const Buffer buffer(one);
      const std::span<const int32_t> numbers = buffer.numbers();
      pages_.insert(pages_.end(), numbers.begin(), numbers.end());
    }
    offsets_.push_back(static_cast<int32_t>(pages_.size()));
  }

  std::vector<int32_t> offsets_{0};
  std::vector<int32_t> pages_;
};

void step(Model& model, Numbers tokens, Numbers starts, Numbers lengths, Numbers num_logits,
          const nb::list& pages, Numbers num_released, Numbers text_lengths,
          const nb::list& cross_pages, Numbers cross_lengths, Logits logits) {
  const PageTable table(pages);
  const PageTable across(cross_pages);
  const StepInput input{tokens,          starts,           lengths,       num_logits,
                        table.offsets(), table.pages(),    num_released,  text_lengths,
                        cross_lengths,   across.offsets(), across.pages()};
  model.check(input);
  int64_t num_rows = 0;
  for (int32_t count : input.num_logits) num_rows += count;
  if (static_cast<int64_t>(logits.shape(0)) != num_rows ||
      static_cast<int64_t>(logits.shape(1)) != model.config().vocab_size) {
    throw std::invalid_argument("logits must be [sum of num_logits, vocab_size]");
  }
  nb::gil_scoped_release release;
  model.step(input, logits.data());
}

void write_cross(Model& model, Vectors vectors, Numbers lengths, const nb::list& pages) {
  const PageTable table(pages);
  if (static_cast<int64_t>(vectors.shape(1)) != model.config().hidden_size) {
    throw std::invalid_argument("vectors must be [tokens, hidden_size]");
  }
  const CrossInput input{vectors.data(), static_cast<int64_t>(vectors.shape(0)), lengths,
                         table.offsets(), table.pages()};
  model.check(input);
  nb::gil_scoped_release release;
  model.write_cross(input);
}

EncodeOutput encode_output(const std::string& name) {
  if (name == "head") return EncodeOutput::kHead;
  if (name == "tokens") return EncodeOutput::kTokens;
  throw std::invalid_argument("the output '" + name + "' is unknown");
}

// Vectors [rows][size] of whole texts, in memory that the array keeps.
nb::ndarray<nb::numpy, float, nb::ndim<2>> encode(Model& model, Numbers tokens, Numbers types,
                                                  Numbers lengths, Numbers num_unseen,
                                                  const std::string& output) {
  const EncodeInput input{tokens, types, lengths, num_unseen};
  const EncodeOutput kind = encode_output(output);
  model.check(input, kind);
  const auto num_rows = static_cast<size_t>(model.encoded_rows(input, kind));
  const auto size = static_cast<size_t>(model.encoded_size(kind));
  auto memory = std::make_unique_for_overwrite<float[]>(num_rows * size);
  {
    nb::gil_scoped_release release;
    model.encode(input, kind, memory.get());
  }
  float* vectors = memory.release();
  nb::capsule owner(vectors, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return {vectors, {num_rows, size}, owner};
}

std::vector<std::vector<int32_t>> drafts(Model& model, Numbers tokens, Numbers starts,
                                         Numbers lengths, const nb::list& pages,
                                         Numbers text_lengths,
                                         const std::vector<SamplingState*>& states,
                                         Numbers num_draft_tokens) {
  const PageTable table(pages);
  std::vector<int32_t> num_logits;
  for (int32_t count : num_draft_tokens) num_logits.push_back(count > 0);
  const std::vector<int32_t> num_released(starts.size());
  const DraftInput input{{tokens, starts, lengths, num_logits, table.offsets(), table.pages(),
                          num_released, text_lengths},
                         states,
                         num_draft_tokens};
  check_drafts(model, input);
  nb::gil_scoped_release release;
  return write_drafts(model, input);
}

}  // namespace

void bind_steps(nb::class_<Model>& model) {
  model.def("step", step, nb::arg("tokens"), nb::arg("starts"), nb::arg("lengths"),
            nb::arg("num_logits"), nb::arg("pages"), nb::arg("num_released"),
            nb::arg("text_lengths"), nb::arg("cross_pages"), nb::arg("cross_lengths"),
            nb::arg("logits"));
  model.def("write_cross", write_cross, nb::arg("vectors"), nb::arg("lengths"), nb::arg("pages"));
  model.def("encode", encode, nb::arg("tokens"), nb::arg("types"), nb::arg("lengths"),
            nb::arg("num_unseen"), nb::arg("output"));
  model.def("write_drafts", drafts, nb::arg("tokens"), nb::arg("starts"), nb::arg("lengths"),
            nb::arg("pages"), nb::arg("text_lengths"), nb::arg("states"),
            nb::arg("num_draft_tokens"));
}

}  // namespace paredown
