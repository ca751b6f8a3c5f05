# `make help` lists the targets.
#
# Variables: VENV (the virtual environment, .venv), PYTHON (the interpreter that
# creates it; found by itself if unset), JOBS (test processes), DEMO_FLAGS and
# TEST_FLAGS (added to the commands), MUTANTS (names of mutants, with `*`).

VENV ?= .venv
JOBS ?= 2
TEST_FLAGS ?=
DEMO_FLAGS ?=
MUTANTS ?=
UV ?= uv

# One malloc arena keeps the runtime's memory from growing with every cohort
# size; the log level leaves TensorFlow's errors and drops its greetings.
export MALLOC_ARENA_MAX := 1
export TF_CPP_MIN_LOG_LEVEL := 2

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := setup.py fedsteer_tff tasks scripts examples docs tests
# Whose docstrings are checked against the signatures.
LIBRARIES := fedsteer_tff tasks examples
# Where a docstring of one sentence need not say which errors are raised.
OTHERS := setup.py scripts docs tests
BRIEF := --config=lint.pydoclint.ignore-one-line-docstrings=true
# A file's tests are run by one process, as they share fixtures; files in the
# order of tests/conftest.py.
PARALLEL = -n $(JOBS) --dist=loadscope --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs check coverage mutation
.PHONY: format install requirements clean

help:  ## Lists the targets.
	@sed -n 's/^\([a-z]*\):.*##/\1/p' Makefile | while read -r name text; do \
	  printf '  make %-13s%s\n' "$$name" "$$text"; done

demo: $(STAMP)  ## Trains FedSteer on the digits task and writes runs/demo/.
	$(BIN)/python -m scripts.train --flagfile=scripts/presets/demo.flags \
	  $(DEMO_FLAGS)

test: $(STAMP)  ## Runs the whole test suite.
	$(BIN)/python -m pytest tests $(PARALLEL) $(TEST_FLAGS)

lint: $(STAMP)  ## Checks style, formatting, types and docstrings.
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff check --preview --select=DOC501 $(LIBRARIES)
	$(BIN)/ruff check --preview --select=DOC501 $(BRIEF) $(OTHERS)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/pydoclint --quiet $(LIBRARIES)

docs: $(STAMP)  ## Builds the documentation into build/site/; warnings are errors.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: lint coverage  ## Runs lint and coverage.

coverage: $(STAMP)  ## Runs the whole test suite; fails if it covers too little.
	$(BIN)/python -m pytest tests $(PARALLEL) --cov $(TEST_FLAGS)

# Without pytest's plugins: mutmut starts pytest again where the tests are
# imported, and setuptools has put what it brings along on the path by then.
mutation: $(STAMP)  ## Breaks subspace and aggregators in turn; takes hours.
	PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 \
	  $(BIN)/mutmut run --max-children $(JOBS) $(MUTANTS)

format: $(STAMP)  ## Rewrites the sources in the checked format.
	$(BIN)/ruff check --fix --exit-zero --quiet $(SOURCES)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

install: $(STAMP)  ## Creates the environment, as the targets above do.

requirements:  ## Rewrites requirements.txt from requirements.in (needs uv).
	$(UV) pip compile requirements.in --output-file=requirements.txt \
	  --universal --python-version=3.9 --no-python-downloads --upgrade \
	  --generate-hashes --no-annotate --quiet \
	  --custom-compile-command='make requirements'

clean:  ## Removes the environment and the caches; keeps runs/.
	@$(check_venv)
	rm -rf "$(VENV)" .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage* \
	  mutants build dist *.egg-info
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# What scripts/find_python.sh says; it runs once, when first asked for.
interpreter = $(eval interpreter := $$(shell \
  PYTHON='$(PYTHON)' VENV='$(VENV)' sh scripts/find_python.sh))$(interpreter)
kind = $(firstword $(interpreter))
value = $(wordlist 2,$(words $(interpreter)),$(interpreter))

# What is at VENV is removed only if it was made here.
MARK := $(VENV)/.made-by-make
check_venv = test ! -e "$(VENV)" || test -f "$(MARK)" || { \
  echo "VENV=$(VENV) was not made by this Makefile: move it away, or choose" \
    "another with VENV=..." >&2; exit 1; }

define install_with_python
"$(value)" -m venv "$(VENV)"
$(BIN)/python -m pip install --disable-pip-version-check -qq \
  --no-deps --require-hashes -r requirements.txt
endef

# Without the configuration in pyproject.toml, which is for resolving.
define install_with_uv
"$(value)" --no-config venv --quiet --allow-existing --python 3.11 \
  "$(VENV)"
"$(value)" --no-config pip install --quiet --python $(BIN)/python \
  --no-deps --require-hashes -r requirements.txt
endef

# The stamp comes last, so that an interrupted installation is done again.
$(STAMP): requirements.txt
	$(if $(filter error,$(kind)),$(error $(value)))
	@$(check_venv)
	@echo 'Installing the pinned packages into $(VENV) (about 2 minutes) ...'
	@rm -rf "$(VENV)"
	@mkdir -p "$(VENV)"
	@touch "$(MARK)"
	$(install_with_$(kind))
	@touch $@
