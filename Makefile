# Everything runs in .venv, which is made here and holds all that is needed; only python3 and make must be there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install demo test torture fuzz calibrate lint bench bench-peers docs clean

help:
	@echo "make install    make $(VENV) and install the package with its tools (again only when pyproject.toml changed)"
	@echo "make demo       train on handwritten digits, then on the problem with a known exact solution"
	@echo "make test       lint, then the whole suite"
	@echo "make torture    runs killed at any moment and faults at every write, compared bit for bit with undisturbed ones"
	@echo "make fuzz       mutated problem, token, trajectory, result and checkpoint files: each loads or is refused by name"
	@echo "make calibrate  error rates and power of the verdicts on particle codes, rates in N, H and L (an hour)"
	@echo "make lint       ruff, mypy, import-linter"
	@echo "make bench      the benchmarks"
	@echo "make bench-peers  the same problems with other packages, into benchmarks/RESULTS.md (a quarter of an hour)"
	@echo "make docs       the reference from the docstrings, into build/docs"
	@echo "make clean      remove builds and caches (not $(VENV))"

install: $(STAMP)

$(STAMP): pyproject.toml setup.cfg
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, $(PYTHON) is older: make install PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --editable ".[dev]"
	@touch $@

demo: $(STAMP)
	$(BIN)/meanfield-pde demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# lint first, then the kernels uncompiled (for the coverage of their lines), beside it the compilation of what most tests
# call; the last thing to be read is the summary
test: $(STAMP)
	rm -f .coverage .coverage.*
	$(BIN)/python tests/compile_kernels.py & compiling=$$!; $(MAKE) --no-print-directory lint && \
		NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -m plain --cov --cov-report= $(PYTEST_ARGS) && wait $$compiling
	$(BIN)/python -m pytest -q -n 2 --cov --cov-append --cov-report=term:skip-covered --cov-fail-under=90 $(PYTEST_ARGS)

torture: $(STAMP)
	$(BIN)/python tests/restart/torture.py --kills 50 --every 1 --cold 3

bench: $(STAMP)
	$(BIN)/python benchmarks/attention.py
	$(BIN)/python benchmarks/attention_plane.py
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/ensemble.py
	$(BIN)/python benchmarks/splittings.py
	$(BIN)/python benchmarks/particles.py
	$(BIN)/python benchmarks/particle_training.py
	$(BIN)/python benchmarks/four_corners.py --seeds 8 --sizes 32 128 512

# each package in an environment of its own, .venv-peers/NAME; PyClaw is compiled there and needs gfortran
bench-peers: $(STAMP)
	$(BIN)/python benchmarks/peers/run.py $(PEERS_ARGS)

calibrate: $(STAMP)
	$(BIN)/python benchmarks/limit_calibration.py
	$(BIN)/python benchmarks/limit_power.py
	$(BIN)/python benchmarks/identity_power.py
	$(BIN)/python benchmarks/statistics_power.py
	$(BIN)/python benchmarks/clt_variance.py
	$(BIN)/python benchmarks/chaos.py

fuzz: $(STAMP)
	$(BIN)/python tests/fuzz/fuzz.py --files 2000 --commands 60

docs: $(STAMP)
	$(PIP) install --quiet --editable ".[docs]"
	$(BIN)/pdoc --output-directory build/docs meanfield_pde

clean:
	rm -rf build dist meanfield_pde.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov
	find meanfield_pde tests benchmarks data -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
