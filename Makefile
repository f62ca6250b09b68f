# `make help` lists the commands. Each works alone in a fresh clone: it first builds .venv with the
# pinned versions of requirements/, which needs Python 3.11 or newer and a package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUNDLES ?= bundles
PORT_OPTION = $(if $(PORT),--port $(PORT))
# Two workers share the machine: more threads than that inside each would only fight for the cores.
TEST_THREADS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
CODE := fullrank trainer service tests benchmarks

.DEFAULT_GOAL := help
.PHONY: help install demo serve test test-slow test-browser check format bench pins clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fullrank needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

# What the product needs to run, and what its developers need on top: two stamps, so that the demo
# does not wait for linters and a browser driver.
$(VENV)/.run-installed: requirements/trainer.txt requirements/service.txt requirements/build.txt pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements/trainer.txt -r requirements/service.txt -r requirements/build.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev-installed: requirements/dev.txt $(VENV)/.run-installed
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

install: $(VENV)/.dev-installed ## build .venv with everything that the other commands need

demo: $(VENV)/.run-installed ## train on the installed numpy and scipy, then search them in a browser
	$(BIN)/fullrank demo $(PORT_OPTION)

serve: $(VENV)/.run-installed ## serve BUNDLES=bundles on PORT=8000
	$(BIN)/fullrank serve --bundles $(BUNDLES) $(PORT_OPTION)

test: $(VENV)/.dev-installed ## every test that takes seconds, on both cores
	$(TEST_THREADS) $(BIN)/pytest -n 2 --dist worksteal -m "not slow and not browser"

test-slow: $(VENV)/.dev-installed ## the tests that take minutes, one after another
	$(BIN)/pytest -m "slow and not browser"

test-browser: $(VENV)/.dev-installed ## the search page in headless Chromium
	$(BIN)/pytest -m browser

check: $(VENV)/.dev-installed ## lint, format and strict types
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

format: $(VENV)/.dev-installed ## apply the formatter and the lint's safe fixes
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

# One after another: each measures the whole machine. What an experiment has finished it keeps in
# out/, so an interrupted run goes on where it stopped.
EXPERIMENTS := features quality swap documents studies keywords cross_language content_matching \
	clickthrough half_transductive findings retrieval http live caching writes soak
.NOTPARALLEL:

bench: ## measure all that is claimed and print every table; hours
	@$(MAKE) --keep-going --no-print-directory $(addprefix bench-,$(EXPERIMENTS))

bench-%: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks.$*

PIN := $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host

pins: $(VENV)/.dev-installed ## pin requirements/ anew from pyproject.toml; commit the result
	$(BIN)/pip install --quiet --disable-pip-version-check pip-tools
	$(PIN) --upgrade --all-extras -o requirements/dev.txt pyproject.toml
	$(PIN) --extra service -c requirements/dev.txt -o requirements/service.txt pyproject.toml
	$(PIN) --extra trainer -c requirements/dev.txt -o requirements/trainer.txt pyproject.toml
	$(PIN) -c requirements/dev.txt -o requirements/build.txt requirements/build.in

clean: ## remove .venv, caches and build outputs; bundles stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
