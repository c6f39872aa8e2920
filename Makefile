# Everything that is done with a checkout. It needs make, a POSIX shell and Python 3.11 or newer with venv.

PYTHON ?= python3
# Processes the tests run in, one more than there are cores, since they often wait; ARGS are handed on to pytest or the benchmarks, as in: make test ARGS="-k watchdog".
WORKERS ?= 3
ARGS ?=
# How long the torture lasts, what it decides by (nothing: another seed each time) and on which major version.
MINUTES ?= 5
SEED ?=
SERVER ?=

VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/dev.txt
BENCH_LOCK := requirements/bench.txt
BROWSER_LOCK := requirements/browser.txt
# Upgraded by: npm --prefix tests/page install axe-core@latest
AXE_LOCK := tests/page/package-lock.json
AXE := tests/page/node_modules
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
# UPGRADE=--upgrade takes the newest versions; without it `make lock` keeps what is locked and adds what is missing.
UPGRADE ?=
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" $(UPGRADE)

.DEFAULT_GOAL := help
.PHONY: help venv demo test torture check format conformance pictures lock clean bench bench-quick

help: ## show this list
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
		printf '%-16s %s\n' "$$target" "$$text"; done

venv: $(VENV)/.installed ## make the virtual environment, or bring it up to date, in .venv

demo: venv ## see it at work on a throw-away PostgreSQL with made-up data (ARGS=--serve: stay up, with the status page)
	@$(BIN)/pgretention demo $(ARGS)

test: $(VENV)/.browser $(AXE)/.installed ## run all tests, on every PostgreSQL found here
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

torture: venv ## kill, cut and restart everything for MINUTES=5 and prove that nothing is lost (SEED=n repeats one)
	$(BIN)/python -m tests.torture --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(SERVER),--server $(SERVER))

check: $(VENV)/.browser ## look for mistakes without running anything: lint, format, types, import order
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/ty check
	$(BIN)/lint-imports

format: venv ## put the code into the one format and sort the imports
	$(BIN)/ruff check --select I --fix
	$(BIN)/ruff format

pictures: $(VENV)/.browser $(AXE)/.installed ## take the pictures of docs/images anew, with a browser
	$(BIN)/python -m tests.page

conformance: venv ## write docs/conformance.md anew from the markers in the tests
	$(BIN)/python -m tests.conformance

bench: $(VENV)/.bench ## measure it beside what one would do instead (a quarter of an hour)
	$(BIN)/python -m bench $(ARGS)

bench-quick: $(VENV)/.bench ## the same with few rows and one round (a minute or two)
	$(BIN)/python -m bench --quick $(ARGS)

lock: venv ## write requirements/*.txt anew from pyproject.toml (UPGRADE=--upgrade: newest versions)
	$(COMPILE) pyproject.toml --output-file requirements/runtime.txt
	$(COMPILE) pyproject.toml --extra demo --extra otel --group dev --group build \
		--constraint requirements/runtime.txt --output-file $(LOCK)
	$(COMPILE) --group bench --constraint $(LOCK) --output-file $(BENCH_LOCK)
	$(COMPILE) --group browser --constraint $(LOCK) --constraint $(BENCH_LOCK) --output-file $(BROWSER_LOCK)

clean: ## remove the virtual environment, caches and whatever was built
	rm -rf $(VENV) $(AXE) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -path ./.git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# Each stamp is written last, so an interrupted installation is begun again from nothing.
$(VENV)/.locked: $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "pgretention needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing what $(LOCK) lists into $(VENV) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP_INSTALL) --require-hashes -r $(LOCK)
	@touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	@$(PIP_INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.bench: $(VENV)/.installed $(BENCH_LOCK)
	@$(PIP_INSTALL) --require-hashes -r $(BENCH_LOCK)
	@touch $@

$(VENV)/.browser: $(VENV)/.bench $(BROWSER_LOCK)
	@$(PIP_INSTALL) --require-hashes -r $(BROWSER_LOCK)
	@touch $@

$(AXE)/.installed: $(AXE_LOCK) tests/page/package.json tests/page/.npmrc
	@if command -v npm >/dev/null; then npm --prefix tests/page ci --loglevel error && touch $@; \
	else echo "npm is not here: the tests in a browser are left out" >&2; fi
