# make run    sets everything up and runs the main job: three language models on built-in text
# make test   sets everything up and runs all tests
# make test-everywhere   the numeric tests with other instruction sets, kernels and threads, and without a compiler
# make check  lint and types
# make docs   builds the documentation: open site/index.html

PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: run test test-everywhere check docs setup setup-dev setup-docs clean

run: setup
	@$(BIN)/seqlab demo

test: setup-dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(PYTEST)

test-everywhere: setup-dev
	@$(BIN)/python tests/everywhere.py $(EVERYWHERE)

check: setup-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: setup-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

setup: .venv/ready

setup-dev: .venv/ready-dev

setup-docs: .venv/ready-docs

# pip, not uv or poetry: only pip finds the CPU build of the pinned torch.
.venv/ready: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable .
	@touch $@

.venv/ready-dev: .venv/ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[dev]'
	@touch $@

.venv/ready-docs: .venv/ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[docs]'
	@touch $@

clean:
	rm -rf .venv build dist site src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
