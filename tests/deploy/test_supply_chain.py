"""What is shipped: pins with hashes and without addresses, licences that allow it, a bill of materials, the same wheel twice."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

ALLOWED = {"MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC", "PSF-2.0", "MPL-2.0", "0BSD", "Unlicense"}


@pytest.fixture(scope="module")
def sbom(repository):
    spec = importlib.util.spec_from_file_location("sbom", repository / "deploy" / "sbom.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def installed(sbom):
    found = sbom.installed()
    if not found:
        pytest.skip("not run: Tonnage is not installed, its source is on the path")
    return found


@pytest.mark.parametrize("name", ["build", "run", "test", "docs", "traces", "checkov", "extras", "audit"])
def test_pins_have_hashes_and_no_address(repository, name):
    text = (repository / "requirements" / f"{name}.txt").read_text()
    pins = re.split(r"(?m)^(?=[a-z0-9])", text)[1:]

    assert pins
    assert [] == [pin.split()[0] for pin in pins if "==" not in pin or "--hash=sha256:" not in pin]
    assert "://" not in text


FAKE_PIP_AUDIT = """
import json, sys
print(json.dumps({answer}) if {answer} else "")
print("it is written elsewhere", file=sys.stderr)
"""
KNOWN = {"name": "redis", "version": "8.1.0", "vulns": []}
SKIPPED = {"name": "redis", "skip_reason": "not found"}
BROKEN = KNOWN | {"vulns": [{"id": "CVE-2027-1", "fix_versions": ["8.1.1"]}]}


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        ({"dependencies": [KNOWN]}, 0, "pins.txt: 1 packages looked up, 0 known vulnerabilities\n"),
        ({"dependencies": [BROKEN]}, 1, "  redis 8.1.0: CVE-2027-1, mended in 8.1.1\n"),
        ({"dependencies": [SKIPPED, BROKEN]}, 1, "1 packages looked up, 1 known vulnerabilities, 1 are not known"),
        ({"dependencies": [SKIPPED]}, 0, "not run: pins.txt: no advisory database answers here: it knows none of 1"),
        (None, 0, "not run: pins.txt: no advisory database answers here: it is written elsewhere"),
    ],
)
def test_vulnerabilities_fail_and_a_database_that_does_not_answer_is_said(repository, tmp_path, answer, code, says):
    (tmp_path / "pip_audit.py").write_text(FAKE_PIP_AUDIT.replace("{answer}", repr(answer)))
    command = [sys.executable, repository / "deploy" / "audit.py", "pins.txt"]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}

    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=env)

    assert (code, True) == (ended.returncode, says in ended.stdout), ended


def test_an_image_with_traces_runs_the_same_otherwise(repository):
    run, traces = (
        set(re.findall(r"(?m)^[a-z0-9-]+==\S+", (repository / "requirements" / f"{name}.txt").read_text()))
        for name in ("run", "traces")
    )

    assert run < traces
    assert {"opentelemetry-sdk", "opentelemetry-instrumentation-asgi"} <= {pin.split("==")[0] for pin in traces}


def test_everything_that_runs_has_a_licence_that_allows_it(sbom, installed):
    parts = {
        name: set(re.split(r" (?:AND|OR|WITH) ", sbom.licence_of(here).strip("()")))
        for name, (here, _) in installed.items()
    }

    assert {} == {name: licences for name, licences in parts.items() if not licences & ALLOWED}


def test_the_bill_names_everything_that_runs(repository, sbom, installed):
    bill = sbom.bill()
    listed = {part["name"]: part["version"] for part in bill["components"]}
    lines = (repository / "requirements" / "run.txt").read_text().splitlines()
    pins = [line.removesuffix("\\") for line in lines if re.match(r"[a-z0-9-]+==", line)]
    needed = [pin for pin in map(Requirement, pins) if pin.marker is None or pin.marker.evaluate()]

    assert "tonnage" == bill["metadata"]["component"]["name"]
    assert len(needed) > 10
    assert set() == {pin.name for pin in needed} - set(listed)
    assert {d["ref"] for d in bill["dependencies"]} == {
        part["bom-ref"] for part in (*bill["components"], bill["metadata"]["component"])
    }
    assert json.dumps(bill) == json.dumps(sbom.bill())


def test_the_same_sources_give_the_same_wheel(repository, tmp_path):
    """Other folder, other times of files, other umask: the same bytes."""
    wheels = []
    for name, umask in (("one", 0o022), ("two", 0o077)):
        source = tmp_path / name
        before = os.umask(umask)
        try:
            shutil.copytree(repository / "service", source / "service", ignore=shutil.ignore_patterns("__pycache__"))
            for file in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
                shutil.copy(repository / file, source)
            os.utime(source / "service" / "tonnage" / "units.py", (umask, umask))
            command = "import hatchling.build; print(hatchling.build.build_wheel('.'))"
            environment = {**os.environ, "SOURCE_DATE_EPOCH": "1735689600"}
            made = subprocess.run(
                [sys.executable, "-c", command], cwd=source, env=environment, capture_output=True, text=True, check=True
            )
        finally:
            os.umask(before)
        wheels.append((source / made.stdout.split()[-1]).read_bytes())

    assert wheels[0] == wheels[1]
