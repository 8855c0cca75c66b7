# The two commands a new user needs: `make run` and `make test`. Both set up .venv on first use.

PYTHON ?= python3
VENV ?= .venv
PY ?= $(VENV)/bin/python
READY ?= $(VENV)/.ready
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test test-engines check test-gpu bench results wheel clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "decodescope needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 3; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version): PyTorch, transformers, Textual and the test tools."
	@echo "It takes about 2.4 GB of disk with a CPU build of PyTorch, about 8 GB with the CUDA build, once."
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[run,serve,dev]'
	@touch $@
	@echo "Ready: $$(du -sh $(VENV) | cut -f1) in $(VENV)."

run: $(READY)  ## set up and start the app (no terminal: print one run's summary); ARGS="--model ..."
	$(PY) -m decodescope $(ARGS)

# They wait for processes that ask every 5 s, so they run side by side.
test-engines: $(READY)  ## the tests of attach on real processes and servers
	$(PY) -m pytest -m engines -n 4 --dist worksteal tests/attach tests/cli $(ARGS)

# Hundreds of child processes import the package: what it compiles to is kept between them.
test: $(READY)  ## all tests that need no GPU and no engine, in two processes; ARGS="tests/tui -x" chooses, in one
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -m "not gpu and not engines" $(or $(ARGS),-n 2 --dist worksteal)

check: $(READY)  ## formatting, lint, types, import rules
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(dir $(PY))lint-imports

test-gpu: $(READY)  ## the tests that need or can use a CUDA GPU; records the run in benchmarks/results
	$(PY) -m benchmarks gpu-tests $(ARGS)

bench: $(READY)  ## measure the analyzer here; see benchmarks/README.md for the GPU measurements
	$(PY) -m benchmarks analyzer $(ARGS)

results: $(READY)  ## write docs/results.md, docs/results/, their plots and the README's table from the records
	$(PY) -m benchmarks results

wheel: $(READY)  ## build the wheel and try it in a clean environment
	rm -rf dist $(VENV)-wheel
	$(PY) -m build --wheel
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd dist && ../$(VENV)-wheel/bin/python ../tests/wheel_smoke.py
	rm -rf $(VENV)-wheel

clean:  ## remove what set-up and the tools made
	rm -rf $(VENV) $(VENV)-wheel dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
