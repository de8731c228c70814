# The commands a person types. `make serve` and `make test` need only Python >= 3.11, make and the package registries.
PYTHON ?= python3
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 8000
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check -q

.PHONY: serve test dev readme bench chaos fuzz mutate openapi docs golden pictures image-test sbom audit checkov test-extras

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
	$(VENV)/bin/python benchmarks/estimate.py

# faults under load against real processes; docs/faults.md has the last table and how to read it
SOAK ?= 60
CARDS ?= 100000
chaos: dev
	$(VENV)/bin/python -m tests.chaos --soak $(SOAK) --cards $(CARDS) --write docs/faults.md

# every parser for FUZZ_SECONDS; with atheris led by coverage as well, where it installs (not with every Python)
FUZZ_SECONDS ?= 220
fuzz: dev
	$(VENV)/bin/python -m tests.fuzz --seconds $(FUZZ_SECONDS)
	FUZZ_EXAMPLES=600 FUZZ_CARDS=5000 FUZZ_PARSERS=2000 $(VENV)/bin/python -m pytest -q \
	  tests/contract/test_schemathesis.py tests/api/test_fuzz.py tests/properties/test_parsers.py
	if $(PIP) install --only-binary :all: atheris; then for target in log config; do \
	  $(VENV)/bin/python -m tests.fuzz --coverage $$target --seconds $$(($(FUZZ_SECONDS) / 3)) || exit 1; done; \
	else echo "atheris is not to be had here: coverage does not lead"; fi

# a sample of small wrong changes that the tests must notice; MUTANTS=0 takes all of them
MUTANTS ?= 200
mutate: dev
	for package in laws estimate fit; do $(VENV)/bin/python -m tests.mutation $$package --sample $(MUTANTS) || exit 1; done

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

# pictures of the page that tests/page compares with, from recorded answers; ANSWERS=1 records those first
ANSWERS ?=
pictures: dev
	$(VENV)/bin/python -m tests.page.pictures $(if $(ANSWERS),--answers)

# ---- delivery: longer checks, run before a release ----
# the image without a Docker engine: built, then used as a cluster would
image-test:
	deploy/image_test.sh

# bill of materials (CycloneDX) and licences of what runs
sbom: $(VENV)/run.stamp
	mkdir -p dist
	$(VENV)/bin/python deploy/sbom.py > dist/sbom.cdx.json
	$(VENV)/bin/python deploy/sbom.py --licences > dist/licences.md

# known vulnerabilities of the pins, where an advisory database can be reached
AUDIT := .cache/audit
$(AUDIT)/stamp: requirements/audit.txt
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip --disable-pip-version-check -q install --require-hashes -r requirements/audit.txt
	touch $@

audit: $(AUDIT)/stamp
	$(AUDIT)/bin/python deploy/audit.py $(addprefix requirements/,run.txt build.txt traces.txt)

# checkov in an environment of its own (about 300 MB); TOOLS is a Python with the pins of requirements/test.txt
CHECKOV := .cache/checkov
$(CHECKOV)/stamp: requirements/checkov.txt
	$(PYTHON) -m venv $(CHECKOV)
	$(CHECKOV)/bin/python -m pip --disable-pip-version-check -q install --require-hashes -r requirements/checkov.txt
	touch $@

TOOLS ?= $(VENV)/bin/python
checkov: $(CHECKOV)/stamp $(if $(filter $(VENV)/%,$(TOOLS)),dev)
	$(TOOLS) deploy/render_chart.py .cache/chart
	$(CHECKOV)/bin/checkov --config-file deploy/checkov.yaml -d .cache/chart --framework kubernetes
	$(CHECKOV)/bin/checkov --config-file deploy/checkov.yaml -f Dockerfile --framework dockerfile

# what optional extras bring: bulk sizing on Ray Data and Parquet, traces, SkyPilot's, dstack's and Ray's own checks, gpuhunt's offers,
# the client of assistants' protocol
# (about 1.5 GB)
EXTRAS := .cache/extras
$(EXTRAS)/stamp: requirements/extras.txt
	$(PYTHON) -m venv $(EXTRAS)
	$(EXTRAS)/bin/python -m pip --disable-pip-version-check -q install --require-hashes -r requirements/extras.txt
	touch $@

test-extras: $(EXTRAS)/stamp
	$(EXTRAS)/bin/python -m pip --disable-pip-version-check -q install --no-deps --no-build-isolation -e .
	$(EXTRAS)/bin/python -m pytest -W ignore tests/integrations/test_launchers.py tests/cli/test_bulk.py tests/api/test_tracing.py \
	  tests/catalog/test_imports.py tests/cli/test_mcp.py
