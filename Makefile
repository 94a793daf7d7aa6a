# Everything runs in .venv, which is made here and holds just what requirements.lock pins.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test fuzz simulate soak kills steer-kills steer-faults steer-audit truth slurm-versions ray-faults ray-truth takeovers check format bench book pictures man lock clean

help:
	@echo "make demo    eleven policies compared on a built-in cluster and workload: a table and a page; then a short live run"
	@echo "make test    the whole test suite"
	@echo "make simulate SEEDS=1000   histories of the service with simulated faults, on all cores"
	@echo "make soak HOURS=72         days of the service in virtual time, ten submissions a second, with random faults"
	@echo "make takeovers             kill -9 of a service that has a standby, 20 times, and how long clients wait"
	@echo "make kills KILLS=1000      kill -9 of real daemons, schedulers, shims and jobs at random instants"
	@echo "make steer-faults          faults of Slurm, of users and of the clock on a real Slurm that is steered"
	@echo "make steer-kills           30 jobs on a real Slurm, steered by a service that is killed 50 times"
	@echo "make steer-audit           54 jobs on a real Slurm for 20 minutes: are promises about averages kept?"
	@echo "make truth                 40 jobs on a real Slurm and in the simulator, four policies: do both agree? 10 minutes"
	@echo "make ray-faults            12 jobs on a real Ray; a node, the head, and 30 times the service are killed"
	@echo "make ray-truth             30 jobs on a real Ray and in the simulator: do both agree? 6 minutes"
	@echo "make slurm-versions        tests of steering and watching on the Slurm of newer Debian releases"
	@echo "make fuzz    ten minutes of made-up requests, one leading to the next, against a real service"
	@echo "make check   ruff, formatting, types, layers"
	@echo "make bench   benchmarks, CPU seconds of one thread"
	@echo "make book    the documentation as a site for the browser, in build/book"
	@echo "make pictures              draw the pictures of the book in docs/images again"
	@echo "make man     the manual page fairlead(1) in build/man, to be read with: man build/man/fairlead.1"
	@echo "make lock    renew requirements.lock from pyproject.toml"

demo: $(READY)
	@mkdir -p build
	@$(BIN)/fairlead demo --report build/demo.html
	@$(BIN)/fairlead demo-live

# Tests wait for real processes more than they compute, so two workers share a core.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * len(os.sched_getaffinity(0)))')
test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) tests

SEEDS ?= 1000
simulate: $(READY)
	@$(BIN)/python tests/simulation/simulate.py --seeds $(SEEDS)

HOURS ?= 72
soak: $(READY)
	@$(BIN)/python tests/simulation/soak.py --hours $(HOURS)

takeovers: $(READY)
	@$(BIN)/python tests/service/takeovers.py 20

KILLS ?= 1000
kills: $(READY)
	@$(BIN)/python tests/service/kills.py $(KILLS)

steer-faults: $(READY)
	@$(BIN)/python tests/live/steer_faults.py

steer-kills: $(READY)
	@$(BIN)/python tests/live/steer_kills.py 50

steer-audit: $(READY)
	@$(BIN)/python tests/live/steer_audit.py

truth: $(READY)
	@$(BIN)/python tests/live/steer_truth.py

ray-faults: $(READY)
	@$(BIN)/python tests/live/ray_faults.py 30

ray-truth: $(READY)
	@$(BIN)/python tests/live/ray_truth.py

RELEASES ?= trixie forky
slurm-versions: $(READY)
	@$(BIN)/python tests/live/slurm_versions.py $(RELEASES)

fuzz: $(READY)
	$(BIN)/python tests/fuzz.py 600

check: $(READY)
	$(BIN)/ruff check src tests benchmarks book
	$(BIN)/ruff format --check src tests benchmarks book
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix src tests benchmarks book
	$(BIN)/ruff format src tests benchmarks book

bench: $(READY)
	@$(BIN)/python -m benchmarks

book: $(READY)
	@$(BIN)/python -m book build/book

pictures: $(READY)
	@$(BIN)/python -m book.pictures

man: $(READY)
	@mkdir -p build/man
	@$(BIN)/python -m fairlead.cli.manual > build/man/fairlead.1

lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check -e '.[dev]'
	(echo "# Made by 'make lock'."; build/lock/bin/pip freeze --exclude-editable --exclude fairlead) > requirements.lock

$(READY): pyproject.toml requirements.lock hatch_build.py $(wildcard src/fairlead/numerics/c/*)
	$(PYTHON) -c 'import sys; sys.exit("Fairlead needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q src
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
