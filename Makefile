# Every recipe makes its own environment first: Python 3, make and this checkout are enough.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
COMPOSE ?= docker compose
JOBS ?= 2
COVER ?=
JUDGE := ../shared/judge/judge.py
CASES := ../shared/cases

.DEFAULT_GOAL := help
.PHONY: help demo test check coverage docs test-services judge bench-overhead bench-memory bench-accuracy bench-compare bench-peers calibrate wheel clean build up shell down test-docker

help:  ## This list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --editable, because a plain install is hidden by the folder ./neuraldbg, which has no integrations in it.
$(READY): requirements-dev.lock pyproject.toml
	@echo "Making .venv; the first time takes a few minutes."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: $(READY)  ## Six trainings on handwritten digits, two healthy and four failing, as one MLflow sweep.
	$(BIN)/python examples/digits_sweep.py

test: $(READY)  ## Every test that needs Python alone.
	$(BIN)/python -m pytest -n $(JOBS) -m "not services" $(COVER)

check: $(READY)  ## Format, lint, types, security.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive neuraldbg integrations scripts

coverage: $(READY)  ## The tests, and the share of the code that they run; fails below 60 %.
	$(MAKE) test COVER="--cov --cov-report=term"

test-services: $(READY)  ## Tests that need a browser, PostgreSQL or node; installs what is missing.
	sh tests/services.sh
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-services.lock
	$(BIN)/python -m pytest -m services

judge: $(READY)  ## Labelled trainings against the bars of benchmarks/bars.json.
	@if [ -d $(CASES) ]; then $(BIN)/python $(JUDGE) $(CASES) --seeds 0 1 --bars benchmarks/bars.json; \
	else echo "no labelled trainings at $(CASES): nothing to judge"; fi

bench-overhead: $(READY)  ## What watching costs a step, beside the peers: docs/benchmarks/overhead.md.
	$(BIN)/python -m benchmarks.overhead

bench-memory: $(READY)  ## What watching keeps in memory, over steps and modules: docs/benchmarks/memory.md.
	$(BIN)/python -m benchmarks.memory

bench-accuracy: $(READY)  ## Diagnoses on the labelled corpus; writes docs/benchmarks/accuracy.md (about half an hour).
	$(BIN)/python -m benchmarks.accuracy $(ARGS)

bench-compare: $(READY)  ## `neuraldbg compare` over 5,000 runs on MLflow with PostgreSQL; writes docs/benchmarks/compare.md.
	sh tests/services.sh
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-services.lock
	$(BIN)/python -m benchmarks.compare $(ARGS)

bench-peers: $(READY)  ## Peers on the corpus's test split, each in its own environment; writes docs/benchmarks/peers.md.
	$(BIN)/python -m benchmarks.peers $(ARGS)

calibrate: $(READY)  ## Fit the confidences on the corpus's fit split (about ten minutes).
	$(BIN)/python -m benchmarks.calibrate

wheel: $(READY)  ## What ships: the spokes inside, the types and the tests against it.
	rm -rf build dist
	$(BIN)/python -m build
	$(BIN)/python -m zipfile -l dist/*.whl | grep neuraldbg/integrations/mlflow.py
	$(BIN)/python -m pip install --quiet --no-deps --target build/wheel dist/*.whl
	MYPYPATH=build/wheel $(BIN)/mypy --package neuraldbg
	PYTHONPATH=build/wheel $(BIN)/python -P -m pytest -m "not services"

docs: $(READY)  ## The site, into build/site; a broken link is an error.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## Remove what builds and runs left behind; .venv stays.
	rm -rf build dist demo-runs .coverage .mypy_cache .ruff_cache .pytest_cache tests/node/node_modules
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

build:  ## Build the development image.
	$(COMPOSE) build neuraldbg-dev

up:  ## Start the development container.
	$(COMPOSE) up -d neuraldbg-dev

shell:  ## Open a shell in the running container.
	$(COMPOSE) exec neuraldbg-dev bash

down:  ## Stop the containers; the volumes stay.
	$(COMPOSE) down

test-docker:  ## Run the tests inside the container.
	$(COMPOSE) run --rm neuraldbg-dev python -m pytest -m "not services"
