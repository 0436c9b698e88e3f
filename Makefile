# make demo   the 60-second tour: no key, no network but the package registry
# make test   everything that must hold: ruff, mypy --strict, pytest
# make lint   ruff and mypy alone
# make bench  the benchmarks
# make lock   resolve the locked requirements anew
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench lock clean

demo: $(VENV)/core.installed
	$(BIN)/art-e demo

test: lint
	$(BIN)/pytest -n auto

lint: $(VENV)/dev.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/dev.installed
	$(BIN)/python -m tests.benchmarks

# What is installed is what is locked, hash by hash; the project itself is linked to this checkout.
$(VENV)/%.installed: requirements/%.txt pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --all-build-deps --allow-unsafe \
	--strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
lock: $(VENV)/dev.installed
	$(COMPILE) -o requirements/core.txt pyproject.toml
	$(COMPILE) --extra dev -o requirements/dev.txt pyproject.toml

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
