# The commands a person types. `make serve` and `make test` need only Python >= 3.11, make and the package registries.
PYTHON ?= python3
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 8000
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check -q

.PHONY: serve test dev readme

# ---- the service ----
$(VENV)/run.stamp: requirements/run.txt requirements/build.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements/run.txt -r requirements/build.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

serve: $(VENV)/run.stamp
	$(VENV)/bin/tonnage serve --host $(HOST) --port $(PORT)

# ---- tests: the built wheel in its own venv, from a copy of tests/ ----
test:
	$(PYTHON) tests/run.py

dev: $(VENV)/run.stamp
	$(PIP) install --require-hashes -r requirements/test.txt

# ---- documents ----
readme: dev
	$(VENV)/bin/python tests/docs/refresh.py
