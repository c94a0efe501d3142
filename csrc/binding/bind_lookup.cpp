// What Python sees of lookups in earlier text.
#include "binding/bind_lookup.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sampling/suffix_index.h"

namespace nb = nanobind;

namespace paredown {
namespace {

// Those from `start` on. Only these are looked at, however long the list is.
std::vector<int32_t> tokens_from(const nb::list& token_ids, int64_t start) {
  std::vector<int32_t> tokens;
  const int64_t end = static_cast<int64_t>(token_ids.size());
  tokens.reserve(static_cast<std::size_t>(std::max<int64_t>(end - start, 0)));
  for (int64_t i = start; i < end; ++i) tokens.push_back(nb::cast<int32_t>(token_ids[i]));
  return tokens;
}

}  // namespace

void bind_lookup(nb::module_& m) {
  using Match = SuffixIndex::Match;
  nb::class_<Match>(m, "SuffixMatch")
      .def_ro("length", &Match::length)
      .def_ro("places", &Match::places);
  nb::class_<SuffixIndex> index(m, "SuffixIndex");
  index.attr("MAX_MATCH") = SuffixIndex::kMaxMatch;
  index.attr("MAX_PLACES") = SuffixIndex::kMaxPlaces;
  index.attr("MIN_BEFORE_CHANGE") = SuffixIndex::kMinBeforeChange;
  index
      .def(nb::init<int, int, int>(), nb::kw_only(), nb::arg("min_match"),
           nb::arg("max_match") = SuffixIndex::kMaxMatch,
           nb::arg("max_places") = SuffixIndex::kMaxPlaces)
      .def_prop_ro("num_runs", &SuffixIndex::num_runs)
      .def_prop_ro("num_sequences", &SuffixIndex::num_sequences)
      .def(
          "update",
          [](SuffixIndex& self, int64_t sequence, const nb::list& token_ids) {
            self.extend(sequence, tokens_from(token_ids, self.num_tokens(sequence)));
          },
          nb::arg("sequence"), nb::arg("token_ids"))
      .def("remove", &SuffixIndex::remove, nb::arg("sequence"))
      .def(
          "find",
          [](const SuffixIndex& self, const nb::list& token_ids) {
            const int64_t size = static_cast<int64_t>(token_ids.size());
            return self.find(
                tokens_from(token_ids, std::max<int64_t>(size - self.max_match() - 1, 0)));
          },
          nb::arg("token_ids"))
      .def("continue_from", &SuffixIndex::continue_from, nb::arg("match"), nb::arg("max_tokens"),
           nb::kw_only(), nb::arg("own").none());
}

}  // namespace paredown
