# Every target sets up what it needs: a virtual environment in .venv with the pinned, hash-checked versions of
# constraints.txt. Needs only Python >= 3.11, make and git; uses uv where it is installed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo consortium-demo test lint format bench docs pictures dist lock clean test-gpu bench-gpu
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(READY)  ## create .venv with the pinned versions and this package, editable

$(READY): constraints.txt pyproject.toml src/sottovoce/_version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sottovoce needs Python 3.11 or newer; set PYTHON=...")'
	@rm -rf $(VENV)
	@if command -v uv >/dev/null 2>&1; then \
	  echo "setting up $(VENV) with uv" && \
	  uv venv --quiet --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python --require-hashes -r constraints.txt && \
	  uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . ; \
	else \
	  echo "setting up $(VENV) with pip (a minute or two)" && \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . ; \
	fi
	@touch $(READY)

demo: $(READY)  ## twenty nodes train a private SVM by gossip
	@$(BIN)/sottovoce demo

consortium-demo: $(READY)  ## three provisioned sites over FLARE, one killed midway and resumed: two or three minutes
	@$(BIN)/python examples/consortium/demo.py $(ARGS)

# Two processes with a fixed half each, that take about as long as each other (pytest --durations=0 says how long): what
# ran before a test in its process is the same every time. Whatever waits for processes of its own (sites, ranks, a browser)
# is in the first, one after the other; each half computes in one thread. With ARGS, one process and what they say.
FIRST := $(addprefix tests/,auditing cli consortium data network node pages problem report)
LOG := build/first-half.txt

test: $(READY)  ## style, types, unit tests, laws, doctests; ARGS="-x tests/run" for some of the tests
	$(MAKE) --no-print-directory lint
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	@mkdir -p $(dir $(LOG))
	@export OMP_NUM_THREADS=1; $(BIN)/python -m pytest $(FIRST) >$(LOG) 2>&1 & other=$$!; trap 'kill $$other' INT TERM; \
	$(BIN)/python -m pytest $(FIRST:%=--ignore=%); second=$$?; \
	wait $$other; first=$$?; cat $(LOG); exit $$((first ? first : second))
endif

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## benchmarks: ratios against a baseline of the same run
	$(BIN)/python benchmarks/run.py $(ARGS)

test-gpu:  ## the engines' contract on the CUDA device of this machine (PYTHON has CuPy, pytest and the package)
	$(PYTHON) -m pytest -q -m gpu tests/engine/test_gpu.py tests/engine/test_gpu_chorus.py tests/engine/test_gpu_clusters.py tests/engine/test_gpu_spans.py $(ARGS)

bench-gpu:  ## what the gpu engine takes, beside what the device allows
	$(PYTHON) benchmarks/gpu.py alone
	$(PYTHON) benchmarks/gpu.py default
	$(PYTHON) benchmarks/gpu.py figures epsilon-like --certify
	$(PYTHON) benchmarks/gpu.py figures rcv1-like
	$(PYTHON) benchmarks/gpu.py figures covtype --certify
	rm -f build/utility.parquet && $(PYTHON) benchmarks/utility.py --engine gpu --seeds 100 --table build/utility.parquet

docs: $(READY)  ## the site into build/docs: pages, gallery, API; no network, warnings are errors
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo "open build/docs/index.html"

pictures: $(READY)  ## draw the README's pictures anew
	$(BIN)/python docs/pictures.py

dist: $(READY)  ## build the wheel and the sdist into dist/, and run the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/twine check --strict dist/*
	tools/try-wheel $(BIN)/python dist/*.whl

lock: $(READY)  ## pin the newest versions that fit pyproject.toml (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --upgrade \
	  --no-emit-index-url --no-header --quiet -o constraints.txt

clean:  ## remove everything that was made here
	rm -rf $(VENV) build dist docs/api docs/gallery docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
