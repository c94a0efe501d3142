// What Python sees of attention without a model. Arrays are checked here; nothing below sees a
// Python object.
#include "binding/bind_attention.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "binding/arrays.h"
#include "machine/isa.h"
#include "model/attention_runner.h"
#include "weights/names.h"

namespace nb = nanobind;

namespace paredown {
namespace {

// Over pages of its own.
class Attention {
 public:
  Attention(const std::string& isa, int num_threads, const std::string& kv_dtype,
            const AttentionShape& shape, int64_t num_pages)
      : shape_(shape),
        num_pages_(num_pages),
        kernels_(kernel_table(choose_isa(isa))),
        format_(look_up(kKvFormats, kv_dtype, "kv_dtype")),
        pool_(num_threads),
        runner_(kernels_, pool_, shape) {
    const bool shape_fits = shape.head_dim >= kLanes && shape.head_dim % kLanes == 0 &&
                            shape.num_kv_heads >= 1 && shape.num_heads % shape.num_kv_heads == 0;
    if (!shape_fits) throw std::invalid_argument("head_dim or the numbers of heads do not fit");
    if (shape.num_sinks < 0 || shape.num_sinks > kChunkKeys) {
      throw std::invalid_argument("the number of sinks does not fit");
    }
    pages_ = AlignedBuffer(num_pages * shape.num_kv_heads * kv_head_bytes(format_, shape.head_dim));
    scales_.assign(static_cast<size_t>(2 * shape.num_kv_heads), 1.0f);
  }

  // Of a static format: keys' and values' scales of each kv head; 1 until they are set.
  void set_scales(const std::vector<float>& scales) {
    if (scales.size() != scales_.size()) {
      throw std::invalid_argument("scales must be [keys, values][kv heads]");
    }
    scales_ = scales;
  }

  // Added to scores: [heads][2 max_distance + 1], by distance from query to key.
  void set_relative(Array<float, 2> values) {
    if (static_cast<int64_t>(values.shape(0)) != shape_.num_heads || values.shape(1) % 2 == 0) {
      throw std::invalid_argument("relative positions are [heads, 2 * max_distance + 1]");
    }
    max_distance_ = static_cast<int64_t>(values.shape(1)) / 2;
    relative_ = relative_rows({values.data(), values.size()}, max_distance_);
  }

  int64_t num_bytes() const { return pages_.num_bytes(); }

  // Token i of `keys` and `values` becomes the one at position start + i.
  void write(Ints pages, int64_t start, Array<float, 2> keys, Array<float, 2> values) {
    const auto size = static_cast<size_t>(shape_.num_kv_heads * shape_.head_dim);
    const auto num_tokens = static_cast<int64_t>(keys.shape(0));
    if (keys.shape(1) != size || values.shape(1) != size || values.shape(0) != keys.shape(0)) {
      throw std::invalid_argument("keys and values must be [tokens, kv heads * head_dim]");
    }
    if (start < 0) throw std::invalid_argument("start must not be negative");
    check_pages(ints(pages), start + num_tokens);
    for (int64_t t = 0; t < num_tokens; ++t) {
      const int64_t position = start + t;
      kernels_.write_kv(view(), pages.data()[position / kPageSize], position % kPageSize,
                        keys.data() + static_cast<size_t>(t) * size,
                        values.data() + static_cast<size_t>(t) * size);
    }
  }

  // Sinks are seen with queries of their own; num_keys are those of whole texts, where queries see
  // later keys.
  void run(Ints starts, Ints lengths, Ints page_offsets, Ints pages, Array<float, 2> queries,
           nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> outputs,
           std::optional<Array<float, 2>> sink_queries, std::optional<Ints> num_keys) {
    const auto size = static_cast<size_t>(shape_.num_heads * shape_.head_dim);
    if (lengths.size() != starts.size() || page_offsets.size() != starts.size() + 1) {
      throw std::invalid_argument("the slice arrays differ in length");
    }
    if (!shape_.is_causal && (!num_keys || num_keys->size() != starts.size())) {
      throw std::invalid_argument("queries that see later keys want the keys of each text");
    }
    slices_.clear();
    size_t num_tokens = 0;
    for (size_t s = 0; s < starts.size(); ++s) {
      const int32_t begin = page_offsets.data()[s];
      const int32_t end = page_offsets.data()[s + 1];
      if (begin < 0 || end < begin || static_cast<size_t>(end) > pages.size()) {
        throw std::invalid_argument("page_offsets leave the pages");
      }
      const std::span<const int32_t> own{pages.data() + begin, static_cast<size_t>(end - begin)};
      if (starts.data()[s] < 0 || lengths.data()[s] < 1) {
        throw std::invalid_argument("starts must be 0 or more and lengths 1 or more");
      }
      check_pages(own, int64_t{starts.data()[s]} + lengths.data()[s]);
      const int32_t keys = num_keys ? num_keys->data()[s] : 0;
      if (!shape_.is_causal && keys < 1) throw std::invalid_argument("a text has no keys");
      check_pages(own, keys);
      slices_.push_back({own.data(), starts.data()[s], lengths.data()[s], 0, keys});
      num_tokens += static_cast<size_t>(lengths.data()[s]);
    }
    if (queries.shape(0) != num_tokens || queries.shape(1) != size ||
        outputs.shape(0) != num_tokens || outputs.shape(1) != size) {
      throw std::invalid_argument("queries and outputs must be [tokens, heads * head_dim]");
    }
    if (shape_.num_sinks > 0 &&
        (!sink_queries || sink_queries->shape(0) != num_tokens || sink_queries->shape(1) != size)) {
      throw std::invalid_argument("sinks want queries of their own, as many");
    }
    nb::gil_scoped_release release;
    const auto stride = static_cast<int64_t>(size);
    runner_.plan(slices_);
    runner_.run(view(), {queries.data(),
                         stride,
                         outputs.data(),
                         stride,
                         nullptr,
                         sink_queries ? sink_queries->data() : nullptr,
                         stride,
                         1.0f,
                         {relative_.empty() ? nullptr : relative_.data(), max_distance_}});
  }

 private:
  KvView view() const {
    return {format_.kind, pages_.as<uint8_t>(), shape_.num_kv_heads, shape_.head_dim,
            format_.is_static ? scales_.data() : nullptr};
  }

  void check_pages(std::span<const int32_t> pages, int64_t num_tokens) const {
    if (static_cast<int64_t>(pages.size()) * kPageSize < num_tokens) {
      throw std::invalid_argument("a slice has too few pages");
    }
    for (const int32_t page : pages) {
      if (page < 0 || page >= num_pages_) throw std::invalid_argument("a page is unknown");
    }
  }

  AttentionShape shape_;
  int64_t num_pages_;
  const KernelTable& kernels_;
  KvFormat format_;
  ThreadPool pool_;
  AttentionRunner runner_;
  AlignedBuffer pages_;
  std::vector<float> scales_;
  std::vector<float> relative_;
  int64_t max_distance_ = 0;
  std::vector<AttentionSlice> slices_;
};

}  // namespace

void bind_attention(nb::module_& m) {
  nb::class_<Attention>(m, "Attention")
      .def(
          "__init__",
          [](Attention* self, const std::string& isa, int num_threads, const std::string& kv_dtype,
             int64_t num_heads, int64_t num_kv_heads, int64_t head_dim, int64_t window,
             int64_t num_pages, int64_t num_sinks, float soft_cap, bool is_causal) {
            const AttentionShape shape{num_heads, num_kv_heads, head_dim, window,
                                       num_sinks, soft_cap,     is_causal};
            new (self) Attention(isa, num_threads, kv_dtype, shape, num_pages);
          },
          nb::arg("isa"), nb::arg("num_threads"), nb::arg("kv_dtype"), nb::arg("num_heads"),
          nb::arg("num_kv_heads"), nb::arg("head_dim"), nb::arg("window"), nb::arg("num_pages"),
          nb::arg("num_sinks") = 0, nb::arg("soft_cap") = 0.0f, nb::arg("is_causal") = true)
      .def_prop_ro("num_bytes", &Attention::num_bytes)
      .def("set_scales", &Attention::set_scales, nb::arg("scales"))
      .def("set_relative", &Attention::set_relative, nb::arg("values"))
      .def("write", &Attention::write, nb::arg("pages"), nb::arg("start"), nb::arg("keys"),
           nb::arg("values"))
      .def("run", &Attention::run, nb::arg("starts"), nb::arg("lengths"), nb::arg("page_offsets"),
           nb::arg("pages"), nb::arg("queries"), nb::arg("outputs"),
           nb::arg("sink_queries") = nb::none(), nb::arg("num_keys") = nb::none());
}

}  // namespace paredown
