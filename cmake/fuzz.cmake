# Fuzzers: libFuzzer drives them where the compiler brings it, else csrc/fuzz/driver.cpp does.
add_library(fuzz_kernels OBJECT csrc/kernels/isa_table.cpp)
target_compile_definitions(fuzz_kernels PRIVATE PAREDOWN_ISA=generic)
# PAREDOWN_FLAGS of the kernels, but that they need not be fast.
target_compile_options(fuzz_kernels PRIVATE ${PAREDOWN_FLAGS} -O1)

file(GLOB PAREDOWN_FUZZED CONFIGURE_DEPENDS csrc/machine/*.cpp csrc/weights/*.cpp
     csrc/sampling/*.cpp csrc/retrieve/*.cpp csrc/model/*.cpp)
list(APPEND PAREDOWN_FUZZED csrc/check/random_model.cpp)
set(PAREDOWN_FUZZ_FLAGS ${PAREDOWN_FLAGS} -O1 -g1 -fno-omit-frame-pointer
    -fsanitize=address,undefined -fno-sanitize-recover=all)
add_library(fuzzed OBJECT ${PAREDOWN_FUZZED})
target_compile_definitions(fuzzed PRIVATE PAREDOWN_GUARD_PAGES)
add_library(fuzz_driver OBJECT csrc/fuzz/kernel_table.cpp)
target_compile_options(fuzz_driver PRIVATE ${PAREDOWN_FUZZ_FLAGS})
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  set(PAREDOWN_COVERAGE -fsanitize=fuzzer-no-link)
  set(PAREDOWN_FUZZ_LINK -fsanitize=address,undefined,fuzzer)
else()
  set(PAREDOWN_COVERAGE -fsanitize-coverage=trace-pc)
  set(PAREDOWN_FUZZ_LINK -fsanitize=address,undefined)
  target_sources(fuzz_driver PRIVATE csrc/fuzz/driver.cpp)
endif()
target_compile_options(fuzzed PRIVATE ${PAREDOWN_FUZZ_FLAGS} ${PAREDOWN_COVERAGE})

foreach(target packed_model packing)
  add_executable(fuzz_${target} csrc/fuzz/${target}.cpp $<TARGET_OBJECTS:fuzzed>
    $<TARGET_OBJECTS:fuzz_kernels> $<TARGET_OBJECTS:fuzz_driver>)
  target_compile_options(fuzz_${target} PRIVATE ${PAREDOWN_FUZZ_FLAGS} ${PAREDOWN_COVERAGE})
  target_link_options(fuzz_${target} PRIVATE ${PAREDOWN_FUZZ_LINK})
  target_link_libraries(fuzz_${target} PRIVATE Threads::Threads)
endforeach()
