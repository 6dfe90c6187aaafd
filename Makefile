# Every target sets up what it needs: a virtual environment in .venv with the pinned, hash-checked versions of
# constraints.txt. Needs only Python >= 3.11, make, git and a C++ compiler; uses uv where it is installed. Without a
# compiler everything but the compiled engine works.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --disable-pip-version-check
ifneq ($(shell command -v uv 2>/dev/null),)
  INSTALL := uv pip install --python $(BIN)/python
else
  INSTALL := $(PIP) --progress-bar off
  PROGRESS := | awk '/^Collecting/ {printf "\r\033[K  %d: %s", ++n, $$2; fflush()} /^Installing/ {printf "\r\033[K  installing %d packages", n; fflush()} END {print ""}'
endif
EDITABLE := PATH="$(abspath $(BIN)):$$PATH" $(PIP) --quiet --no-deps --no-build-isolation
SHELL := bash
.SHELLFLAGS := -o pipefail -c

.PHONY: sbom help setup native demo consortium-demo test test-native test-fast lint format bench docs pictures dist lock clean test-gpu bench-gpu
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(READY)  ## create .venv with the pinned versions and this package, editable

# What `make demo` needs: the package and what it runs with. `awk` shows which package is on its way.
$(RUNTIME): constraints.txt pyproject.toml CMakeLists.txt src/sottovoce/_version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sottovoce needs Python 3.11 or newer; set PYTHON=...")'
	@rm -rf $(VENV) && $(PYTHON) -m venv $(VENV) && mkdir -p build
	@$(BIN)/python tools/runtime_requirements.py > build/runtime.txt
	@echo "1 of 2: packages to run with, into $(VENV)"
	@$(INSTALL) --require-hashes -r build/runtime.txt $(PROGRESS)
	@echo "2 of 2: sottovoce, with its C++ extension"
	@$(EDITABLE) -e .
	@touch $(RUNTIME)

$(READY): $(RUNTIME) plugins/gpu/pyproject.toml
	@echo "packages for tests, documents and development (some minutes)"
	@$(INSTALL) --require-hashes -r constraints.txt $(PROGRESS)
	@$(EDITABLE) -e plugins/gpu
	@touch $(READY)

native: $(READY)  ## build the native extension again, after a change of src/native
	@$(EDITABLE) -e .

demo: $(RUNTIME)  ## twenty nodes train a private SVM by gossip
	@$(BIN)/sottovoce demo

consortium-demo: $(RUNTIME)  ## three provisioned sites over FLARE, one killed midway and resumed: two or three minutes
	@$(BIN)/python examples/consortium/demo.py $(ARGS)

# Two processes with a fixed half each, that take about as long as each other (pytest --durations=0 says how long): what
# ran before a test in its process is the same every time. Whatever waits for processes of its own (sites, ranks, a browser)
# is in the first, one after the other; each half computes in one thread. With ARGS, one process and what they say.
# A busy machine can make a test that waits for processes fail: up to three such tests run once more, alone, and the log
# shows both times. A test that needs this is a bug to look into.
FIRST := $(addprefix tests/,auditing cli consortium data network node pages problem report)
LOG := build/first-half.txt
FAILED := build/first-half-cache

test: $(READY)  ## style, types, unit tests, laws, doctests; ARGS="-x tests/run" for some of the tests
	$(MAKE) --no-print-directory lint
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	@mkdir -p $(dir $(LOG))
	@rm -rf $(FAILED); export OMP_NUM_THREADS=1; \
	$(BIN)/python -m pytest -o cache_dir=$(FAILED) $(FIRST) >$(LOG) 2>&1 & other=$$!; trap 'kill $$other' INT TERM; \
	$(BIN)/python -m pytest $(FIRST:%=--ignore=%); second=$$?; \
	wait $$other; first=$$?; cat $(LOG); \
	if [ $$first = 1 ] && [ "$$(grep -c '": true' $(FAILED)/v/cache/lastfailed)" -le 3 ]; then \
	  echo "The tests that failed run once more, alone."; \
	  $(BIN)/python -m pytest -o cache_dir=$(FAILED) --last-failed $(FIRST); first=$$?; \
	fi; exit $$((first ? first : second))
endif

# The extension with sanitizers in a place of its own, and the tests of its loops with it.
SANITIZED := build/sanitized
test-native: $(READY)  ## address, undefined-behavior and thread sanitizers over the native loops; ARGS="-k people" for some
	PATH="$(abspath $(BIN)):$$PATH"; cmake -S . -B $(SANITIZED) -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSOTTOVOCE_SANITIZE=address,undefined && ninja -C $(SANITIZED)
	tools/with-sanitizers $(BIN)/python $(SANITIZED) tests/engine/test_native.py tests/engine/test_contract.py \
	  tests/engine/test_exact_sums.py tests/engine/test_large_n.py -k "not nodes and not auto" $(ARGS)
	$(CXX) -std=c++17 -O1 -g -fsanitize=thread -fopenmp-simd -Isrc/native -o $(SANITIZED)/races tests/engine/races.cpp \
	  src/native/kernels.cpp src/native/pool.cpp -pthread
	$(SANITIZED)/races

# Parts whose tests compute in this process alone, without slow ones: laws, accounting, secure draws, plug-ins.
FAST := $(addprefix tests/,problem network privacy)
FAST_TOO := $(addprefix tests/,algorithm secure export test_architecture.py test_plugins.py test_streams.py)
QUICKLY := -m "not slow and not data and not gpu"

test-fast: $(READY)  ## style, types, unit tests and laws in two minutes; not all that `make test` runs
	@mkdir -p $(dir $(LOG))
	@export OMP_NUM_THREADS=1; $(BIN)/python -m pytest -q $(QUICKLY) $(FAST) >$(LOG) 2>&1 & other=$$!; trap 'kill $$other' INT TERM; \
	{ $(CHECK); } && $(BIN)/python -m pytest -q $(QUICKLY) $(FAST_TOO); second=$$?; \
	wait $$other; first=$$?; cat $(LOG); exit $$((first ? first : second))

CHECK := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

lint: $(READY)  ## ruff and mypy
	$(CHECK)

format: $(READY)  ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## benchmarks: ratios against a baseline of the same run
	$(BIN)/python benchmarks/run.py $(ARGS)

test-gpu:  ## the engines' contract on the CUDA device of this machine (PYTHON has CuPy, pytest and the package)
	$(PYTHON) -m pytest -q -m gpu plugins/gpu/tests $(ARGS)

bench-gpu:  ## what the gpu engine takes, beside what the device allows
	$(PYTHON) plugins/gpu/benchmark.py alone
	$(PYTHON) plugins/gpu/benchmark.py default
	$(PYTHON) plugins/gpu/benchmark.py figures epsilon-like --certify
	$(PYTHON) plugins/gpu/benchmark.py figures rcv1-like
	$(PYTHON) plugins/gpu/benchmark.py figures covtype --certify
	rm -f build/utility.parquet && $(PYTHON) benchmarks/utility.py --engine gpu --seeds 100 --table build/utility.parquet

docs: $(READY)  ## the site into build/docs: pages, gallery, API; no network, warnings are errors
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo "open build/docs/index.html"

pictures: $(READY)  ## draw the README's pictures anew
	$(BIN)/python docs/pictures.py

dist: $(READY)  ## build the wheel and the sdist into dist/, and run the wheel in an empty environment
	rm -rf dist
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/twine check --strict dist/*
	tools/try-wheel $(BIN)/python dist/*.whl

SBOM := build/sbom-tool
sbom:  ## build/sbom.json: the pinned packages of a run in CycloneDX; ARGS="onnx excel" for extras
	@$(PYTHON) -m venv $(SBOM) && $(SBOM)/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	$(PYTHON) tools/runtime_requirements.py $(ARGS) > build/sbom.txt
	$(SBOM)/bin/cyclonedx-py requirements build/sbom.txt --pyproject pyproject.toml --sv 1.6 --output-reproducible \
	  -o build/sbom.json

lock: $(READY)  ## pin the newest versions that fit pyproject.toml (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --upgrade \
	  --no-emit-index-url --no-header --quiet -o constraints.txt
	$(PYTHON) tools/runtime_requirements.py flare sql > deploy/requirements.txt

clean:  ## remove everything that was made here
	rm -rf $(VENV) build dist docs/api docs/gallery docs/generated docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
