// Replaces the global operator new of the check, to count what a step allocates.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "check/checks.h"
#include "check/random_model.h"

namespace {

std::atomic<int64_t> num_allocations{0};

void* allocate_or_null(std::size_t size) noexcept {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}

void* allocate(std::size_t size) {
  void* memory = allocate_or_null(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_null(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_null(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace paredown {
namespace {

struct Form {
  const char* name;
  bool has_experts;
  bool has_cross;
};

constexpr Form kForms[] = {{"plain layers", false, false},
                           {"experts and unequal layers", true, false},
                           {"cross-attention", false, true}};

int64_t allocations_of_second_step(Model& model, const Case& test) {
  // A chunk of a prompt and a decode, side by side.
  const std::vector<int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<int32_t> starts{0, 0};
  const std::vector<int32_t> lengths{11, 1};
  const std::vector<int32_t> num_logits{1, 1};
  const std::vector<int32_t> page_offsets{0, 1, 2};
  const std::vector<int32_t> pages{3, 5};
  const std::vector<int32_t> num_released{0, 0};
  StepInput input{tokens, starts, lengths, num_logits, page_offsets, pages, num_released};
  // Both read a text across, in pages that are all zero.
  const std::vector<int32_t> cross_lengths{40, 3};
  const std::vector<int32_t> cross_offsets{0, 3, 4};
  const std::vector<int32_t> cross_pages{7, 8, 9, 11};
  if (test.has_cross) {
    input.cross_lengths = cross_lengths;
    input.cross_offsets = cross_offsets;
    input.cross_pages = cross_pages;
  }
  std::vector<float> logits(2 * kVocab);
  model.step(input, logits.data());
  const int64_t before = num_allocations.load();
  model.step(input, logits.data());
  return num_allocations.load() - before;
}

}  // namespace

void check_allocations(Outcome& outcome) {
  Random random(3);
  for (Isa isa : supported_isas()) {
    for (WeightKind kind : {WeightKind::kFp32, WeightKind::kBf16, WeightKind::kInt4}) {
      for (const Form& form : kForms) {
        Case test{isa, kind, {KvKind::kBf16, false}, false, false, form.has_experts};
        test.unequal = form.has_experts;
        test.has_cross = form.has_cross;
        const std::unique_ptr<Model> model = random_model(random, test);
        const int64_t count = allocations_of_second_step(*model, test);
        outcome.count(count == 0);
        if (count == 0) continue;
        std::printf("a step on %s with weights of kind %d and %s allocated %lld times\n",
                    isa_name(isa), static_cast<int>(kind), form.name,
                    static_cast<long long>(count));
      }
    }
  }
}

}  // namespace paredown
