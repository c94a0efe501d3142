// With the other binding_*.cpp the only file that knows Python. Arrays are checked here; nothing
// below sees a Python object.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "binding/arrays.h"
#include "binding/bind_attention.h"
#include "binding/bind_forms.h"
#include "binding/bind_linear.h"
#include "binding/bind_lookup.h"
#include "binding/bind_model.h"
#include "binding/bind_retrieve.h"
#include "binding/bind_sampling.h"
#include "kernels/probe.h"
#include "machine/hash.h"
#include "machine/isa.h"
#include "model/model.h"
#include "weights/names.h"

namespace nb = nanobind;

namespace paredown {

NB_MODULE(_core, m) {
  m.doc() = "Paredown's native core: batched decoder steps over paged keys and values.";
  // A daemon thread keeps what its frames hold when the interpreter ends, so a user is told
  // nothing. The build that the tests run does tell.
  nb::set_leak_warnings(PAREDOWN_LEAK_WARNINGS);
  m.attr("VERSION") = PAREDOWN_VERSION;
  m.attr("INTERFACE") = PAREDOWN_INTERFACE;

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
  m.attr("LAYOUT_VERSION") = kLayoutVersion;
  m.attr("MAX_THREADS") = ThreadPool::kMaxThreads;
  m.attr("MAX_SIZE") = kMaxSize;
  m.attr("MAX_HEAD_DIM") = kMaxHeadDim;
  m.attr("MAX_EXPERTS") = kMaxExperts;
  nb::exception<ThreadError>(m, "ThreadError", PyExc_RuntimeError);
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
  bind_forms(m);
  bind_linear(m);
  bind_model(m);
  bind_retrieve(m);
}

}  // namespace paredown
