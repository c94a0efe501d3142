// Prints the instruction sets that this machine can run, for a build that looks at no others.
#include <cstdio>

#include "machine/isa.h"

int main() {
  for (const paredown::Isa isa : paredown::supported_isas()) {
    std::printf("%s;", paredown::isa_name(isa));
  }
  return 0;
}
