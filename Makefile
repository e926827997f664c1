# All that a contributor types. `.venv` is made once, and again when a pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
PLUGINS := $(patsubst %/pyproject.toml,%,$(sort $(wildcard plugins/*/pyproject.toml)))
EVERYDAY := . plugins/console plugins/echo
TYPED := hermes_core $(wildcard tests benchmarks) tools
# Programs of others that tests talk to. Some need a newer Python than the rest.
PEERS := plugins/buzz/tests/peers.txt
PEER_PYTHONS ?= python3.13 python3.12 $(wildcard ~/.pyenv/versions/3.1[23]*/bin/python) $(PYTHON)

.PHONY: demo test lint types prove bench docs clean

demo: .venv/run.stamp
	@$(BIN)/python tools/demo.py

test: .venv/dev.stamp .venv/peers.stamp
	$(BIN)/pytest -n 2

lint: .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: .venv/dev.stamp
	$(BIN)/mypy $(TYPED)
	@for p in $(PLUGINS) contrib/plugin; do MYPYPATH=$$p $(BIN)/mypy $$p || exit 1; done

prove: .venv/dev.stamp
	$(BIN)/python tools/prove.py

bench: .venv/dev.stamp
	$(BIN)/python -m benchmarks

docs: .venv/dev.stamp
	$(BIN)/python tools/docs.py

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run.stamp: $(EVERYDAY:%=%/pyproject.toml) | .venv/bin/python
	$(PIP) $(EVERYDAY:%=-e %)
	@touch $@

.venv/dev.stamp: pyproject.toml $(PLUGINS:%=%/pyproject.toml) | .venv/bin/python
	$(PIP) 'pip>=25.1'
	$(PIP) -e . $(PLUGINS:%=-e %) --group dev
	@touch $@ .venv/run.stamp

.venv/peers.stamp: $(PEERS) | .venv/bin/python
	@for python in $(PEER_PYTHONS); do $$python -c '' 2>/dev/null && break; done; \
	$$python -m venv --clear .venv/peers && .venv/peers/bin/python -m pip install --quiet \
	--disable-pip-version-check --only-binary :all: -r $(PEERS) || \
	echo 'Tests that need $(PEERS) are skipped. To try again: rm $@'
	@touch $@
