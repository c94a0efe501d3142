// What Python sees of drafts.
#include "binding_draft.h"

#include <nanobind/stl/vector.h>

#include <vector>

#include "draft.h"

namespace nb = nanobind;

namespace paredown {
namespace {

using Numbers = const std::vector<int32_t>&;

std::vector<std::vector<int32_t>> drafts(Model& model, Numbers tokens, Numbers starts,
                                         Numbers lengths, Numbers page_offsets, Numbers pages,
                                         const std::vector<SamplingState*>& states,
                                         Numbers num_guesses) {
  std::vector<int32_t> num_logits;
  for (int32_t count : num_guesses) num_logits.push_back(count > 0);
  const std::vector<int32_t> num_released(starts.size());
  const DraftInput input{{tokens, starts, lengths, num_logits, page_offsets, pages, num_released},
                         states,
                         num_guesses};
  check_drafts(model, input);
  nb::gil_scoped_release release;
  return write_drafts(model, input);
}

}  // namespace

void bind_drafts(nb::class_<Model>& model) {
  model.def("write_drafts", drafts, nb::arg("tokens"), nb::arg("starts"), nb::arg("lengths"),
            nb::arg("page_offsets"), nb::arg("pages"), nb::arg("states"), nb::arg("num_guesses"));
}

}  // namespace paredown
