# `make help` lists the commands. Each works in a fresh clone: it first builds .venv with the pinned
# versions of requirements/, which needs Python 3.11 or newer and a package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUNDLES ?= bundles
PORT_OPTION = $(if $(PORT),--port $(PORT))
# A pytest worker for each processor; more threads in each would only compete with the other workers.
WORKERS = logical
TEST_THREADS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# A worker that hangs where no signal reaches it is ended; another runs what is left.
PYTEST = $(TEST_THREADS) $(BIN)/pytest -n $(WORKERS) --dist worksteal -o faulthandler_exit_on_timeout=true
# Otherwise each of the many processes that the tests start would compile all of its modules again.
unexport PYTHONDONTWRITEBYTECODE
CODE := $(wildcard .ci fullrank trainer service fleet tests benchmarks examples)
# Units that compile no kernel, train no model, start no server, read no shared collection and are
# no sweep over hundreds of cases.
FAST_TESTS := tests/unit/fullrank tests/unit/service tests/unit/benchmarks/harness \
	$(filter-out %/clicks %/features %/promotion %/rerank %/systems %/indexing %/training %/test_train.py,$(wildcard tests/unit/trainer/*))

# Few tests that take a third of the time of all: they compare a fleet with one machine and lose its nodes, kill
# processes, fill disks, and send random requests to every operation.
FLEET_TESTS := tests/fleet $(addprefix tests/unit/fleet/,counting jobs training) \
	$(wildcard tests/unit/fleet/serving/test_equal*.py) \
	$(addprefix tests/unit/fleet/serving/,test_experiments.py test_frozen.py test_replicas.py)
FAULT_TESTS := tests/faults tests/unit/service/experiments/test_loop_killed.py tests/api/test_openapi.py tests/api/test_clients.py
LONG_TESTS := $(FLEET_TESTS) $(FAULT_TESTS)

.DEFAULT_GOAL := help
.PHONY: help install demo serve test test-fast test-long test-fleet test-faults test-sweeps test-slow test-portable test-browser test-javascript test-wheel coverage check format bench reproduce pins site site-serve release clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fullrank needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

# Python compiles modules when they are imported first: pip would compile thousands that nobody imports, for as long as
# it installs all packages.
#
# Two stamps: .run-installed is what the product needs, .dev-installed adds what its developers need,
# so the demo does not wait for linters and a browser driver.
$(VENV)/.run-installed: requirements/trainer.txt requirements/service.txt requirements/build.txt pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes \
		-r requirements/trainer.txt -r requirements/service.txt -r requirements/build.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev-installed: requirements/dev.txt $(VENV)/.run-installed
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

install: $(VENV)/.dev-installed ## build .venv with everything that the other commands need

demo: $(VENV)/.run-installed ## train on the installed numpy and scipy, then search them in a browser
	$(BIN)/fullrank demo $(PORT_OPTION) $(DEMO)

serve: $(VENV)/.run-installed ## serve BUNDLES=bundles on PORT=8000
	$(BIN)/fullrank serve --bundles $(BUNDLES) $(PORT_OPTION)

# Half as many workers again, because these tests often wait for a process or a second to pass.
test: WORKERS = $$(($$(getconf _NPROCESSORS_ONLN) * 3 / 2))
test: $(VENV)/.dev-installed ## every promise once but those of check and test-long, on all cores
	$(PYTEST) -m "not slow and not browser and not sweep and not server" --ignore tests/browser --ignore tests/walls $(addprefix --ignore ,$(LONG_TESTS))

test-long: test-fleet test-faults test-sweeps ## fleets, faults, the whole API, killed commands, research recipes, databases, hundreds of random cases

test-fleet: $(VENV)/.dev-installed ## a fleet answers as one machine does, also while nodes die
	$(PYTEST) -m "not slow" $(FLEET_TESTS)

test-faults: $(VENV)/.dev-installed ## killed processes, full disks, damaged files, random requests to every operation
	$(PYTEST) -m "not slow" $(FAULT_TESTS)

test-sweeps: $(VENV)/.dev-installed ## research recipes, databases, hundreds of random cases
	$(PYTEST) -m "(sweep or server) and not slow and not browser" --ignore tests/browser $(addprefix --ignore ,$(LONG_TESTS))

test-fast: $(VENV)/.dev-installed ## units only, under 30 s: the loop while you edit
	$(PYTEST) -q -m "not slow and not browser and not data and not sweep and not server" \
		$(filter-out %/__pycache__,$(FAST_TESTS))

coverage: $(VENV)/.dev-installed ## `make test` and `make test-long` with the lines that no test runs
	$(PYTEST) -q -m "not slow and not browser" --ignore tests/browser --cov --cov-report=term

test-slow: $(VENV)/.dev-installed ## the tests that take minutes, and twenty times as many random cases
	$(BIN)/pytest -m "slow and not browser" --ignore tests/wheel
	$(PYTEST) -q -m "sweep or hypothesis" --hypothesis-profile thorough --timeout 3600 -o faulthandler_timeout=0 tests/unit tests/contract

test-portable: $(VENV)/.dev-installed ## the kernels as compiled for a processor without special instructions
	NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES= $(PYTEST) -q tests/unit/fullrank/kernels tests/unit/fullrank/retrieval

test-wheel: $(VENV)/.dev-installed ## install the wheel with each extra alone and run its commands
	$(BIN)/pytest tests/wheel

test-browser: $(VENV)/.dev-installed ## the search page in headless Chromium
	$(PYTEST) --dist loadfile -m browser tests/browser

JAVASCRIPT := clients/javascript

$(JAVASCRIPT)/node_modules/.package-lock.json: $(JAVASCRIPT)/package-lock.json
	cd $(JAVASCRIPT) && npm ci

test-javascript: $(VENV)/.dev-installed $(JAVASCRIPT)/node_modules/.package-lock.json ## build clients/javascript, run its pages in headless Chromium
	cd $(JAVASCRIPT) && npm run build && npm run examples
	$(BIN)/pytest tests/javascript

check: $(VENV)/.dev-installed ## lint, format, strict types, import and layout rules
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/pytest -q tests/walls

format: $(VENV)/.dev-installed ## apply the formatter and the lint's safe fixes
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

# Benchmarks run one at a time because each measures the whole machine. Finished experiments are kept
# in out/, so an interrupted run continues where it stopped.
EXPERIMENTS := clicks.shop clicks.loop $(addprefix experiments.,papers rerank typed)
PERFORMANCE := $(addprefix performance.,quality training retrieval http live writes soak)
.NOTPARALLEL:

bench: ## measure what needs no other environment and no options; takes hours
	@$(MAKE) --keep-going --no-print-directory $(addprefix bench-,$(PERFORMANCE) $(EXPERIMENTS))

bench-%: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks.$*

reproduce: $(VENV)/.dev-installed ## print the README's table of results from nothing; REPRODUCE=--plan shows the commands; takes hours
	$(BIN)/python -m benchmarks.reproduce $(REPRODUCE)

# One resolution for Python 3.11.0 to 3.14: markers say which pin applies where, hashes say what a
# pin is, and no address of an index is written.
# pip before 23.3 overlooks the pin `coverage` where a package asks for `coverage[toml]`, so pins name extras.
PIN := $(BIN)/uv pip compile --quiet --universal --fork-strategy fewest --no-strip-extras \
	--python-version 3.11 --only-binary :all: --generate-hashes --no-header
# Frameworks of others, which `make test-wheel` alone installs.
INTEGRATIONS := langchain llamaindex haystack mcp
DEV_EXTRAS := client dev import postgresql qdrant ray rerank service site tracing

pins: $(VENV)/.dev-installed ## pin requirements/ anew from pyproject.toml; commit the result
	$(PIN) --upgrade $(addprefix --extra ,$(DEV_EXTRAS)) -o requirements/dev.txt pyproject.toml requirements/build.in >/dev/null
	$(PIN) --extra service -c requirements/dev.txt -o requirements/service.txt pyproject.toml >/dev/null
	$(PIN) --extra ray -c requirements/dev.txt -o requirements/fleet.txt pyproject.toml >/dev/null
	$(PIN) --extra trainer -c requirements/dev.txt -o requirements/trainer.txt pyproject.toml >/dev/null
	$(PIN) $(addprefix --extra ,$(INTEGRATIONS)) -c requirements/dev.txt -o requirements/integrations.txt pyproject.toml >/dev/null
	$(PIN) -c requirements/dev.txt -o requirements/build.txt requirements/build.in >/dev/null

RELEASE := build/release

# VERSION=0.2.0 first sets the version, dates the changelog and tags it.
release: $(VENV)/.dev-installed ## build dist/: wheel, sdist, SBOM, licences; install the wheel and run the demo
	$(if $(VERSION),$(BIN)/python .ci/release.py version $(VERSION))
	rm -rf dist $(RELEASE)
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m venv $(RELEASE)/venv
	$(RELEASE)/venv/bin/pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements/trainer.txt -r requirements/service.txt
	$(RELEASE)/venv/bin/pip install --quiet --disable-pip-version-check --no-deps dist/*.whl
	$(RELEASE)/venv/bin/python .ci/release.py about dist
	cd $(RELEASE) && venv/bin/fullrank --version && venv/bin/fullrank demo --no-serve --out demo
	cd dist && sha256sum * > SHA256SUMS
	@ls -l dist

# Our own search box is in the site if it knows a service; else the theme searches an index of its own.
site: $(VENV)/.dev-installed ## build the documentation into build/site; a broken link fails
	$(BIN)/zensical build --strict

SITE_PORT ?= 8001
SITE_SEARCH := build/site-search

site-serve: ## build the documentation, train on it, and serve it with its own search on SITE_PORT=8001
	FULLRANK_SITE_SEARCH=http://localhost:$(or $(PORT),8000) $(MAKE) site
	rm -rf $(SITE_SEARCH)
	$(BIN)/fullrank import build/site $(SITE_SEARCH)/docs --url '/{path}/'
	$(BIN)/fullrank train $(SITE_SEARCH)/docs --out $(SITE_SEARCH)/bundles --name docs
	trap 'kill 0' EXIT; $(BIN)/python -m http.server $(SITE_PORT) --bind 127.0.0.1 --directory build/site & \
	FULLRANK_CORS_ORIGINS=http://localhost:$(SITE_PORT) $(BIN)/fullrank serve --bundles $(SITE_SEARCH)/bundles $(PORT_OPTION)

clean: ## remove .venv, caches and build outputs; bundles stay
	rm -rf $(VENV) .cache build dist *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf $(JAVASCRIPT)/node_modules $(JAVASCRIPT)/*/dist tests/javascript/build examples/*/build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
