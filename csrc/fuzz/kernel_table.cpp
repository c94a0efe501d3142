// Fuzzers run on the generic set alone, which compiles in a minute.
#include "kernels/kernel_table.h"

namespace paredown {

extern const KernelTable kernels_generic;

const KernelTable& kernel_table(Isa) { return kernels_generic; }

}  // namespace paredown
