// What Python sees of vectors in an index. Arrays are checked here; nothing below sees a Python
// object.
#include "binding/bind_retrieve.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include "binding/arrays.h"
#include "machine/isa.h"
#include "retrieve/coil_searcher.h"
#include "retrieve/searcher.h"
#include "weights/names.h"

namespace nb = nanobind;

namespace paredown {
namespace {

using Floats = Array<float, 1>;
using Offsets = Array<int64_t, 1>;
template <class T, int kDims>
using Output = nb::ndarray<T, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;

VectorShape read_shape(const std::string& dtype, int64_t num_vectors, int64_t num_dims) {
  const VectorShape shape{look_up(kWeightKinds, dtype, "dtype"), num_vectors, num_dims};
  check_vectors(shape);
  return shape;
}

template <class T>
std::span<const T> span_of(const std::optional<Array<T, 1>>& array) {
  if (!array) return {};
  return {array->data(), array->size()};
}

VectorShape shape_of(const std::string& dtype, const Array<float, 2>& vectors) {
  return read_shape(dtype, static_cast<int64_t>(vectors.shape(0)),
                    static_cast<int64_t>(vectors.shape(1)));
}

void check_sizes(const VectorShape& shape, size_t num_bytes, size_t num_scales) {
  if (static_cast<int64_t>(num_bytes) != shape.num_bytes() ||
      static_cast<int64_t>(num_scales) != shape.num_scales()) {
    throw std::invalid_argument("values or scales have another size than these vectors");
  }
}

// Returns how many hits there are room for.
int64_t check_outputs(size_t num_queries, const Output<float, 2>& scores,
                      const Output<int64_t, 2>& numbers) {
  const size_t most = scores.shape(1);
  if (num_queries < 1 || most < 1 || scores.shape(0) != num_queries ||
      numbers.shape(0) != num_queries || numbers.shape(1) != most) {
    throw std::invalid_argument("scores and numbers must be [queries, hits]");
  }
  return static_cast<int64_t>(most);
}

void write(const Hits& hits, Output<float, 2>& scores, Output<int64_t, 2>& numbers) {
  const size_t most = scores.shape(1);
  for (size_t query = 0; query < hits.size(); ++query) {
    if (hits[query].size() != most) {
      throw std::invalid_argument("there are fewer documents than hits asked for");
    }
    for (size_t i = 0; i < most; ++i) {
      scores.data()[query * most + i] = hits[query][i].score;
      numbers.data()[query * most + i] = hits[query][i].number;
    }
  }
}

// A searcher that any thread may call, with the arrays that it points into.
class VectorSearch {
 public:
  VectorSearch(const std::string& isa, int num_threads, const std::string& dtype,
               int64_t num_vectors, int64_t num_dims, Bytes values, std::optional<Floats> scales,
               std::optional<Offsets> offsets)
      : values_(std::move(values)),
        scales_(std::move(scales)),
        searcher_(choose_isa(isa), num_threads,
                  {read_shape(dtype, num_vectors, num_dims), bytes_of(values_), span_of(scales_)},
                  span_of(offsets)) {}

  void top(Array<float, 2> queries, Output<float, 2> scores, Output<int64_t, 2> numbers) {
    const int64_t most = check_outputs(queries.shape(0), scores, numbers);
    check_dims(queries);
    nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    write(searcher_.top(queries.data(), static_cast<int64_t>(queries.shape(0)), most), scores,
          numbers);
  }

  void top_max_sim(Array<float, 2> tokens, Offsets query_offsets, Output<float, 2> scores,
                   Output<int64_t, 2> numbers) {
    if (query_offsets.size() < 2) throw std::invalid_argument("there must be queries");
    const int64_t most = check_outputs(query_offsets.size() - 1, scores, numbers);
    check_dims(tokens);
    const std::span<const int64_t> offsets{query_offsets.data(), query_offsets.size()};
    if (offsets.back() != static_cast<int64_t>(tokens.shape(0))) {
      throw std::invalid_argument("query_offsets end at the number of tokens");
    }
    nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    write(searcher_.top_max_sim(tokens.data(), offsets, most), scores, numbers);
  }

 private:
  void check_dims(const Array<float, 2>& queries) const {
    if (static_cast<int64_t>(queries.shape(1)) != searcher_.shape().num_dims) {
      throw std::invalid_argument("queries have another number of dimensions than the vectors");
    }
  }

  Bytes values_;
  std::optional<Floats> scales_;
  Searcher searcher_;
  std::mutex mutex_;
};

// The search among posting lists, bound in the same way.
class CoilSearch {
 public:
  CoilSearch(const std::string& isa, int num_threads, const std::string& dtype, int64_t num_dims,
             Bytes values, std::optional<Floats> scales, Offsets offsets,
             Array<uint32_t, 1> documents, int64_t num_documents, int64_t num_cls_dims,
             std::optional<Bytes> cls_values, std::optional<Floats> cls_scales)
      : values_(std::move(values)),
        scales_(std::move(scales)),
        offsets_(std::move(offsets)),
        documents_(std::move(documents)),
        cls_values_(std::move(cls_values)),
        cls_scales_(std::move(cls_scales)),
        searcher_(choose_isa(isa), num_threads, lists(dtype, num_dims), num_documents,
                  cls(dtype, num_documents, num_cls_dims)) {}

  void top(Array<float, 2> tokens, Offsets lists, Offsets query_offsets,
           std::optional<Array<float, 2>> cls, Output<float, 2> scores,
           Output<int64_t, 2> numbers) {
    if (query_offsets.size() < 2) throw std::invalid_argument("there must be queries");
    const int64_t most = check_outputs(query_offsets.size() - 1, scores, numbers);
    if (tokens.shape(0) != lists.size() ||
        static_cast<int64_t>(tokens.shape(1)) != searcher_.shape().num_dims) {
      throw std::invalid_argument("tokens must be [query tokens, dimensions of the vectors]");
    }
    const VectorShape* shape = searcher_.cls_shape();
    if (cls && (shape == nullptr || cls->shape(0) != query_offsets.size() - 1 ||
                static_cast<int64_t>(cls->shape(1)) != shape->num_dims)) {
      throw std::invalid_argument("cls is [queries, dimensions] as documents have it");
    }
    const CoilQueries queries{tokens.data(),
                              {lists.data(), lists.size()},
                              {query_offsets.data(), query_offsets.size()},
                              cls ? cls->data() : nullptr};
    nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    write(searcher_.top(queries, most), scores, numbers);
  }

 private:
  PostingLists lists(const std::string& dtype, int64_t num_dims) const {
    const auto num_vectors = static_cast<int64_t>(documents_.size());
    return {{read_shape(dtype, num_vectors, num_dims), bytes_of(values_), span_of(scales_)},
            {offsets_.data(), offsets_.size()},
            {documents_.data(), documents_.size()}};
  }

  std::optional<StoredVectors> cls(const std::string& dtype, int64_t num_documents,
                                   int64_t num_dims) const {
    if (!cls_values_) return {};
    return StoredVectors{read_shape(dtype, num_documents, num_dims), bytes_of(*cls_values_),
                         span_of(cls_scales_)};
  }

  Bytes values_;
  std::optional<Floats> scales_;
  Offsets offsets_;
  Array<uint32_t, 1> documents_;
  std::optional<Bytes> cls_values_;
  std::optional<Floats> cls_scales_;
  CoilSearcher searcher_;
  std::mutex mutex_;
};

}  // namespace

void bind_retrieve(nb::module_& m) {
  m.attr("MAX_VECTOR_DIMS") = kMaxVectorDims;
  m.attr("MAX_VECTORS") = kMaxVectors;
  m.attr("VECTOR_UNIT") = kVectorUnit;
  m.def(
      "vector_bytes",
      [](const std::string& dtype, int64_t num_vectors, int64_t num_dims) {
        return read_shape(dtype, num_vectors, num_dims).num_bytes();
      },
      nb::arg("dtype"), nb::arg("num_vectors"), nb::arg("num_dims"));
  m.def(
      "pack_vectors",
      [](const std::string& dtype, Array<float, 2> vectors, Output<uint8_t, 1> values,
         Output<float, 1> scales) {
        const VectorShape shape = shape_of(dtype, vectors);
        check_sizes(shape, values.size(), scales.size());
        nb::gil_scoped_release release;
        pack_vectors(shape, vectors.data(), values.data(), scales.data());
      },
      nb::arg("dtype"), nb::arg("vectors"), nb::arg("values"), nb::arg("scales"));
  m.def(
      "unpack_vectors",
      [](const std::string& dtype, Bytes values, Floats scales, Output<float, 2> vectors) {
        const VectorShape shape = read_shape(dtype, static_cast<int64_t>(vectors.shape(0)),
                                             static_cast<int64_t>(vectors.shape(1)));
        check_sizes(shape, values.size(), scales.size());
        nb::gil_scoped_release release;
        unpack_vectors(shape, values.data(), scales.data(), vectors.data());
      },
      nb::arg("dtype"), nb::arg("values"), nb::arg("scales"), nb::arg("vectors"));
  nb::class_<VectorSearch>(m, "VectorSearch")
      .def(nb::init<const std::string&, int, const std::string&, int64_t, int64_t, Bytes,
                    std::optional<Floats>, std::optional<Offsets>>(),
           nb::arg("isa"), nb::arg("num_threads"), nb::arg("dtype"), nb::arg("num_vectors"),
           nb::arg("num_dims"), nb::arg("values"), nb::arg("scales").none(),
           nb::arg("offsets").none())
      .def("top", &VectorSearch::top, nb::arg("queries"), nb::arg("scores"), nb::arg("numbers"))
      .def("top_max_sim", &VectorSearch::top_max_sim, nb::arg("tokens"), nb::arg("query_offsets"),
           nb::arg("scores"), nb::arg("numbers"));
  nb::class_<CoilSearch>(m, "CoilSearch")
      .def(nb::init<const std::string&, int, const std::string&, int64_t, Bytes,
                    std::optional<Floats>, Offsets, Array<uint32_t, 1>, int64_t, int64_t,
                    std::optional<Bytes>, std::optional<Floats>>(),
           nb::arg("isa"), nb::arg("num_threads"), nb::arg("dtype"), nb::arg("num_dims"),
           nb::arg("values"), nb::arg("scales").none(), nb::arg("offsets"), nb::arg("documents"),
           nb::arg("num_documents"), nb::arg("num_cls_dims"), nb::arg("cls_values").none(),
           nb::arg("cls_scales").none())
      .def("top", &CoilSearch::top, nb::arg("tokens"), nb::arg("lists"), nb::arg("query_offsets"),
           nb::arg("cls").none(), nb::arg("scores"), nb::arg("numbers"));
}

}  // namespace paredown
