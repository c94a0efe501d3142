# Two commands: `make demo` sets everything up and runs the main job, `make test` sets everything up
# and runs every check. Both work on a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(shell find csrc -type f)
CPP := $(shell find csrc -name '*.h' -o -name '*.cpp')
PIP := $(BIN)/pip install --quiet --constraint constraints.txt
DEMO := runs/demo
# Text to measure quality on; without it, text sampled from the model itself is used.
export PAREDOWN_DATA ?= $(abspath ../shared/data)

.PHONY: demo test
.DELETE_ON_ERROR:

demo: .venv/demo.stamp
	rm -rf $(DEMO)
	$(BIN)/paredown optimize -o $(DEMO)/model --report $(DEMO)/report
	$(BIN)/paredown generate --model $(DEMO)/model --echo --max-tokens 60 --seed 1 \
		"It was late in the evening when"

test: .venv/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CPP)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/cmake -S . -B build/sanitize -DCMAKE_BUILD_TYPE=Debug -DPAREDOWN_PYTHON=OFF \
		-DPAREDOWN_CHECK=ON -DPAREDOWN_SANITIZE=address,undefined -DCMAKE_CXX_FLAGS_DEBUG= >/dev/null
	$(BIN)/cmake --build build/sanitize --parallel 2 >/dev/null
	build/sanitize/core_check
	$(BIN)/python -m pytest

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.stamp: .venv/bin/python $(SOURCES)
	$(PIP) --editable '.[compress]'
	touch $@

.venv/test.stamp: .venv/bin/python $(SOURCES)
	$(PIP) --editable '.[dev]'
	touch $@
