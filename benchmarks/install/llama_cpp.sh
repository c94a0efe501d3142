#!/bin/sh
# Builds llama.cpp (llama-cpp-python has no wheels) for this very processor, with all its instruction
# sets. Takes some minutes. PIP is the pip command of the environment to install into.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
headers="-I$here/gcc12"
# No cache: a wheel that was built with other flags must not come back.
CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-2}" \
CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAVA_BUILD=OFF \
-DCMAKE_PROJECT_llama.cpp_INCLUDE=$here/llama_alone.cmake \
-DCMAKE_C_FLAGS=$headers -DCMAKE_CXX_FLAGS=$headers" \
	nice $PIP --no-cache-dir --no-binary llama-cpp-python llama-cpp-python
