#!/usr/bin/env bash
# llm-compressor pins its own versions of what we use too, so it has an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 -m venv .venv-llm-compressor
.venv-llm-compressor/bin/pip install --quiet --constraint constraints.txt llmcompressor
