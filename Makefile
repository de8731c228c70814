# The commands a person types. `make serve` and `make test` need only Python >= 3.11, make and the package registries.
PYTHON ?= python3
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 8000
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check -q

.PHONY: serve test dev readme bench chaos fuzz openapi docs golden

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

# ---- measured: each prints its own table ----
bench: dev
	$(PIP) install fastapi || echo "fastapi is not to be had here: its row is left out"
	$(VENV)/bin/python benchmarks/speed.py

chaos: dev
	$(VENV)/bin/python benchmarks/chaos.py

fuzz: dev
	FUZZ_EXAMPLES=600 FUZZ_CARDS=5000 $(VENV)/bin/python -m pytest -q tests/contract/test_schemathesis.py tests/api/test_fuzz.py

# ---- documents ----
openapi: dev
	cd openapi && ../$(VENV)/bin/python regenerate.py

# outputs in the README and docs/, docs/laws.md, the tables that are made; look at the difference before committing
readme: dev
	$(VENV)/bin/python tests/docs/refresh.py

DOCS := .cache/docs
$(DOCS)/stamp: requirements/docs.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip --disable-pip-version-check -q install --require-hashes -r requirements/docs.txt
	touch $@

# pages into .cache/site; a broken link fails
docs: $(DOCS)/stamp
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build

# ---- kept answers: look at what moved before committing ----
golden: dev
	$(VENV)/bin/python -m tests.golden.predictions
