# Everything runs in .venv, which is made here and holds just what requirements.lock pins.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test check format bench lock clean

help:
	@echo "make demo    eleven policies compared on a built-in cluster and workload: a table and a page; then a short live run"
	@echo "make test    the whole test suite"
	@echo "make check   ruff, formatting, types, layers"
	@echo "make bench   benchmarks, CPU seconds of one thread"
	@echo "make lock    renew requirements.lock from pyproject.toml"

demo: $(READY)
	@mkdir -p build
	@$(BIN)/fairlead demo --report build/demo.html
	@$(BIN)/fairlead demo-live

test: $(READY)
	$(BIN)/python -m pytest -n auto tests

check: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks

bench: $(READY)
	@$(BIN)/python -m benchmarks

lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check -e '.[dev]'
	(echo "# Made by 'make lock'."; build/lock/bin/pip freeze --exclude-editable --exclude fairlead) > requirements.lock

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("Fairlead needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q src
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
