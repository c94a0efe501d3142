#!/usr/bin/env bash
# GPTQModel and what Transformers reads GPTQ and AWQ folders with. GPTQModel asks for a later torch than
# constraints.txt has, so its dependencies are named here, and it has an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 -m venv .venv-gptqmodel
PIP=".venv-gptqmodel/bin/pip install --quiet --constraint constraints.txt"
$PIP torch transformers safetensors accelerate optimum datasets threadpoolctl ninja setuptools \
	device-smi pillow protobuf requests pypcre tokenicer logbar defuser
$PIP --no-deps gptqmodel torchao
