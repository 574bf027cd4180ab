# `make serve` and `make test` each work on a clean checkout; `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 8000
BIN := $(VENV)/bin
BUILD_INPUTS := pyproject.toml CMakeLists.txt service/__init__.py $(wildcard model/native/*.cpp model/native/*.hpp)

.PHONY: help setup serve test check format clean
.DEFAULT_GOAL := help

help:  ## list the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: $(BUILD_INPUTS) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.serve
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

setup: $(VENV)/.serve $(VENV)/.dev  ## install what running and testing need into .venv

serve: $(VENV)/.serve  ## serve the default model on HOST:PORT (127.0.0.1:8000)
	$(BIN)/tane serve --host $(HOST) --port $(PORT)

test: $(VENV)/.dev  ## run every test
	$(BIN)/python -m pytest

check: $(VENV)/.dev  ## format, lint, types and the fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile
	$(BIN)/python -m pytest -m 'not slow'

format: $(VENV)/.dev  ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove what the commands above made
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
