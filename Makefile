# `make serve` and `make test` each work on a clean checkout; `make help` lists the rest.
# PYTHON, VENV, HOST, PORT and WORKERS may be given: `make serve PYTHON=python3.12 PORT=9000`; CLUSTER holds options of
# `python -m tests.cluster`: `make cluster CLUSTER="--replicas 3 --json"`.
PYTHON ?= python3
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 8000
# Test processes; each may load the default model.
WORKERS ?= 2
BIN := $(VENV)/bin
BUILD_INPUTS := pyproject.toml CMakeLists.txt service/__init__.py $(wildcard model/native/*.cpp model/native/*.hpp)

.PHONY: help setup serve test check lint promtool chromium cluster sanitize format clean
.DEFAULT_GOAL := help

help:  ## list the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# A venv whose creation failed half way leaves a python without pip, so the target is taken away again.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is not Python 3.11 or later, which Tane needs: name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -f $@; exit 1; }

define compiler
@command -v "$${CXX:-c++}" >/dev/null || { echo "a C++20 compiler is needed to build the extension (g++ or clang++)" >&2; exit 1; }
endef

$(VENV)/.serve: $(BUILD_INPUTS) | $(BIN)/python
	$(compiler)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

# Holds what serving needs too, so that the extension is built once.
$(VENV)/.dev: $(BUILD_INPUTS) | $(BIN)/python
	$(compiler)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(VENV)/.serve $@

# Ray's wheels are 90 MB, and 350 MB when installed.
$(VENV)/.ray: $(BUILD_INPUTS) | $(BIN)/python
	$(compiler)
	$(BIN)/python -m pip install --quiet --editable '.[ray]'
	@touch $(VENV)/.serve $@

setup: $(VENV)/.dev  ## install what running and testing need into .venv

serve: $(VENV)/.serve  ## serve the default model on HOST:PORT (127.0.0.1:8000)
	$(BIN)/tane serve --host $(HOST) --port $(PORT)

test: $(VENV)/.dev  ## run every test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

check: lint  ## format, lint, types and the fast tests
	$(BIN)/python -m pytest -m 'not slow' -n $(WORKERS) --dist loadfile

lint: $(VENV)/.dev  ## format, lint and types, without tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile

promtool: $(BIN)/promtool  ## bring promtool, which checks the alerts: that of this machine, or Debian's

$(BIN)/promtool: | $(BIN)/python
	@if found=$$(command -v promtool); then ln -sf "$$found" $@; else \
		work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && cd "$$work" && \
		apt-get -o APT::Sandbox::User=root download -qq prometheus && dpkg-deb --extract prometheus_*.deb . && \
		install usr/bin/promtool $(abspath $@); fi

chromium:  ## bring Chromium, which drives the page in the tests: that of this machine, or Debian's (as root)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends chromium >/dev/null

cluster: $(VENV)/.ray  ## two replicas behind Ray Serve: load, affinity and the loss of one; Ray is installed first
	$(BIN)/python -m tests.cluster $(CLUSTER)

sanitize:  ## the kernels' C++ tests under address, undefined-behaviour and thread sanitizers
	tests/native/run.sh asan
	tests/native/run.sh tsan

format: $(VENV)/.dev  ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove what the commands above made
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
