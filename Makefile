# make serve: serve the default model at http://127.0.0.1:8000 (KEYBLOCK_HOST and KEYBLOCK_PORT say otherwise).
# make test:  every check that a change has to pass (HYPOTHESIS_PROFILE=thorough: four times the examples of property tests).
# make test-lab: the tests of the systems that papers compare with (lab/); QUICK=1 leaves out the trainings, which take minutes.
# make test-clients: what Cohere's, LangChain's, Haystack's ... own libraries make of it (docs/use/clients.md); environments of 1.5 GB in build/.
# make wheel: native/ as a wheel for any Linux, for this Python or that of PYTHON=... (docs/develop/native.md).
# make audit: known vulnerabilities of the locked versions (docs/run/secure.md); says so where there is no network to ask.
# make docs: the documentation as a site in build/site, its links and measured figures checked.
# make bench: how fast it serves, beside other rerankers; puts it into docs/results/speed.md (25 minutes).
# All make what they need in .venv first, at the versions of requirements/constraints.txt; PYTHON=... names another interpreter.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
CLIENTS := frameworks haystack langchain litellm openapi
TESTS_frameworks := keyblock_haystack keyblock_langchain keyblock_llama_index
TESTS_haystack := cohere cohere_spans haystack rerankers
TESTS_langchain := cohere infinity langchain llama_index nvidia voyage
TESTS_litellm := litellm use_with
TESTS_openapi := openapi
.PHONY: help serve test test-lab check pytest env docs test-clients $(CLIENTS:%=test-clients-%) wheel audit bench clean
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements/constraints.txt
PINS := pyproject.toml requirements/constraints.txt
NATIVE := native/pyproject.toml native/setup.py $(wildcard native/src/* native/keyblock_native/*.py)

help:
	@sed -n 's/^# //p' Makefile | head -9

$(VENV)/made:
	@[ -n "$(PYTHON)" ] || { echo "KeyBlock needs Python 3.11 or newer: install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) cannot make a virtual environment: install its venv module (Debian: apt install python3-venv)" >&2; exit 1; }
	@touch $@

$(VENV)/serving: $(PINS) | $(VENV)/made
	@echo "Installing what serving needs into $(VENV) (about 120 MB to download) ..."
	@$(INSTALL) --editable '.[cpu,serve,cli,files]'
	@touch $@

# what reads documents without the interpreter's lock (docs/develop/native.md): where it cannot be built, all works without it
$(VENV)/native: $(NATIVE) requirements/constraints.txt | $(VENV)/made
	@if command -v c++ >/dev/null; then \
		echo "Compiling what reads documents (native/; half a minute) ..."; \
		$(INSTALL) setuptools nanobind && $(INSTALL) --no-build-isolation --no-deps --force-reinstall ./native \
		|| echo "native/ could not be built: documents are prepared in Python, which takes longer" >&2; \
	else \
		echo "No C++ compiler is here: documents are prepared in Python, which takes longer (docs/develop/native.md)" >&2; \
	fi
	@touch $@

$(VENV)/testing: $(PINS) | $(VENV)/made
	@echo "Installing what training and the tests need into $(VENV) (PyTorch among it; minutes) ..."
	@$(INSTALL) --editable '.[cpu,serve,cli,files,otel,train,ray,ray-serve,test]'
	@touch $@ $(VENV)/serving

env: $(VENV)/testing $(VENV)/native

serve: $(VENV)/serving $(VENV)/native
	@exec $(BIN)/keyblock-serve

check: $(VENV)/testing
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# the static checks beside the tests; each of the tests' processes computes in one thread
test: env
	@$(MAKE) --no-print-directory --jobs=2 check pytest

# one process more than cores, up to 8: many tests wait for a server or a deadline
pytest: env
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --dist=worksteal \
		--numprocesses=$$($(BIN)/python -c 'import os; print(min(8, (os.cpu_count() or 1) + 1))')

test-lab: env
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --dist=worksteal --numprocesses=2 $(if $(QUICK),-m "not slow") lab/tests

build/clients/%/made: requirements/clients/%.txt
	@echo "Installing the clients of $< into $(@D) (a minute) ..."
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

test-clients: $(CLIENTS:%=test-clients-%)

$(CLIENTS:%=test-clients-%): test-clients-%: $(VENV)/serving build/clients/%/made
	build/clients/$*/bin/python -m pytest -c tests/clients/pytest.ini $(TESTS_$*:%=tests/clients/test_%.py)

# an environment for each Python, by what it calls its extensions: a wheel is for one, and many are called python3
WHEEL := build/wheel/$(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_config_var("SOABI"))' 2>/dev/null)

$(WHEEL)/made: requirements/wheel.txt requirements/constraints.txt
	@echo "Installing a C++ compiler into $(@D) (a minute) ..."
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements/constraints.txt --requirement $<
	@touch $@

wheel: $(WHEEL)/made
	@echo "Compiling native/ for any Linux (a minute) ..."
	@$(WHEEL)/bin/python native/wheel.py build/wheel/dist

build/docs/made: requirements/docs.txt
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

docs: $(VENV)/serving build/docs/made
	@$(BIN)/python -c 'import json; from service.app import create_app; from service.ranking.ranker import Ranker; \
		from service.settings import Settings; settings = Settings(); \
		print(json.dumps(create_app(settings, Ranker(settings, [])).openapi()))' > docs/use/openapi.json
	@$(BIN)/python -m benchmarks.figures --check || { echo "stale: python -m benchmarks.figures" >&2; exit 1; }
	@NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

build/audit/made: requirements/audit.txt
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# AUDIT="--ignore-vuln ID" accepts one
audit:
	@$(MAKE) --no-print-directory build/audit/made || { echo "nothing was audited: pip-audit cannot be installed here" >&2; exit 0; }; \
	build/audit/bin/python requirements/audit.py build/audit/bin/pip-audit $(AUDIT)

# KeyBlock beside its peers; BENCH="--quick", "--only start", "--publish" ... instead of all of it (benchmarks/performance)
BENCH ?= --measure --publish
bench: env
	@$(BIN)/python -m benchmarks.performance $(BENCH)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info native/build native/*.egg-info
