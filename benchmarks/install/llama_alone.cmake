# llama-cpp-python forces this on, and installs nothing of it that its bindings call: it doubles the
# time of the build.
set(LLAMA_BUILD_COMMON OFF)
