# One command each. Everything runs in .venv, which the targets make themselves.
#   make quickstart   a small reasoner, trained with DAPO and with CES, compared (about 8 minutes on 2 cores)
#   make test         the tests, lint and types (under 15 minutes on 2 cores)
#   make test-slow    the tests that take over 20 seconds each
# On Linux without a GPU, TORCH_INDEX=https://download.pytorch.org/whl/cpu saves gigabytes of CUDA packages.
PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
BIN = $(VENV)/bin
# torch comes first and alone: with it in place no other package pulls a build of its own.
TORCH = $(shell grep '^torch==' constraints.txt)
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: quickstart test test-slow lint format clean

$(VENV)/torch.stamp: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "trl_ces needs Python 3.11 or newer; name one with PYTHON=python3.11"; exit 2; }
	@echo "Setting up $(VENV) (once; a few minutes)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	@touch $@

$(VENV)/quickstart.stamp: $(VENV)/torch.stamp pyproject.toml
	@$(PIP) -e '.[quickstart]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/torch.stamp pyproject.toml
	@$(PIP) -e '.[dev]'
	@touch $@

quickstart: $(VENV)/quickstart.stamp
	@$(BIN)/trl-ces quickstart

test: lint
	$(BIN)/python -m pytest

test-slow: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info
