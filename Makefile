# Everything that is done to this repository, one word each. Works for any user, in a folder of any name;
# the network is needed only to install. PYTHON says which interpreter makes the environment.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# an editable install has no bytecode from pip, and Python writes none where PYTHONDONTWRITEBYTECODE is set
COMPILE := $(BIN)/python -m compileall -q core hookspecs builtin_plugins
PYTEST := $(BIN)/python -m pytest
ARGS ?=
# tests wait more than they compute, so a machine of two cores runs four at a time
JOBS ?= 4

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check format interop soak bench links wheel constraints clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.installed ## Install, host the built-in server, call a tool, show the trace
	@$(BIN)/bascule demo

test: $(VENV)/.installed-all ## Run the tests; make test ARGS="-k name -x" for some of them
	$(PYTEST) -n $(JOBS) -m "not interop and not soak" $(ARGS)

check: $(VENV)/.installed-all ## Formatter, linter, strict types, import rules, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -q -m "not slow" tests/test_architecture.py tests/test_docs.py tests/test_requirements.py

format: $(VENV)/.installed-all ## Bring the code into its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

interop: $(VENV)/.installed-all ## Run servers and clients that others wrote (needs a package index once)
	$(PYTEST) -m interop -rs $(ARGS)

soak: $(VENV)/.installed-all ## Repeat for minutes what must not leak
	$(PYTEST) -m soak -rs $(ARGS)
	BASCULE_KILLS=300 $(PYTEST) -rs tests/test_sandbox_kill.py

bench: $(VENV)/.installed-all ## Compare calls through Bascule with bare pipes, and starts with bare imports
	$(BIN)/python tests/bench/in_process.py $(ARGS)
	$(BIN)/python tests/bench/cold_start.py
	$(BIN)/python tests/bench/spawn.py
	$(BIN)/python tests/bench/many_hook_plugins.py
	$(BIN)/python tests/bench/faults.py

links: ## Make the links of the editable install anew
	@mkdir -p .dev/bascule
	@for name in __init__.py py.typed core hookspecs builtin_plugins; do \
	    ln -sfn ../../$$name .dev/bascule/$$name; \
	done

wheel: $(VENV)/.installed ## Build dist/bascule-*.whl
	@rm -rf dist
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir dist .

constraints: ## Write constraints.txt anew, from a fresh install of the newest versions
	@set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(PYTHON) -m venv "$$fresh"; \
	"$$fresh/bin/python" -m pip --disable-pip-version-check install --quiet --editable '.[test,check,fast]'; \
	"$$fresh/bin/python" -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+$$' \
	    | sort --ignore-case > constraints.txt
	@wc -l constraints.txt

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Bascule needs Python 3.11 or newer, and $(PYTHON) is not; name one that is: make PYTHON=python3.12" >&2; \
	    exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	    echo "$(PYTHON) can't make environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# The stamps keep the network out of every run after the first, until a dependency changes.
$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing Bascule into $(VENV) …"
	@$(PIP) --editable .
	@$(COMPILE)
	@touch $@

$(VENV)/.installed-all: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "installing Bascule and its tests' tools into $(VENV) …"
	@$(PIP) --editable '.[test,check,fast]'
	@$(COMPILE)
	@touch $(VENV)/.installed $@
