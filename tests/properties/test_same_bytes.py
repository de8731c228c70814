"""
The same card has the same digest and the same bytes: in every process, whatever the order of its sets, in every Python.

Other Pythons are used where they and the compiled packages for them are to be had; what is missing is said.
"""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.golden import orders
from tests.golden.predictions import cases

import tonnage

VERSIONS = ["3.11", "3.12", "3.13", "3.14"]
NEEDED = ["msgspec", "packaging"]
"""What estimates and /fit need beside the standard library."""
ANSWERS = """
import hashlib, json, sys
import msgspec
from tonnage import library
for kind, question in json.load(sys.stdin):
    answer = getattr(library, kind)(question)
    print(answer.digest, hashlib.sha256(msgspec.json.encode(answer)).hexdigest())
"""


@pytest.fixture(scope="module")
def questions():
    estimates = [["estimate", card] for card in cases().values()]
    return json.dumps([*estimates, *(["fit", order] for order in list(orders.REQUESTS.values())[::8])])


@pytest.fixture(scope="module")
def answered(questions, tmp_path_factory):
    """Digest and hash of every answer of one Python, with the seed of its hashes."""
    source = tmp_path_factory.mktemp("source")
    (source / "tonnage").symlink_to(Path(tonnage.__file__).parent)

    def ask(seed, python=sys.executable, packages=None):
        paths = [str(source), *([str(packages)] if packages else [])]
        env = os.environ | {
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [python, "-c", ANSWERS]
        ended = subprocess.run(command, input=questions, capture_output=True, text=True, check=False, env=env)
        assert 0 == ended.returncode, ended.stderr
        return ended.stdout.splitlines()

    return ask


@pytest.fixture(scope="module")
def usual(answered):
    return answered("0")


def test_answers_do_not_depend_on_the_process_or_the_seed_of_its_hashes(answered, usual, questions):
    assert len(json.loads(questions)) == len(usual) == len({line.split()[0] for line in usual})
    assert usual == answered("1") == answered("random")


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_do_not_depend_on_the_python(answered, usual, tmp_path, version):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"not run: Python {version} is not here")
    pins = [f"{name}=={importlib.metadata.version(name)}" for name in NEEDED]
    options = ["--target", str(tmp_path), "--python-version", version, "--only-binary", ":all:", "--no-deps"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "-q",
        "--retries",
        "1",
        "install",
        *options,
        *pins,
    ]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"not run: packages for Python {version} are not to be had: {installed.stderr.splitlines()[-1:]}")

    assert usual == answered("random", python, tmp_path)


def interpreter(version):
    """One that works, on the path or where pyenv and CI's machines keep several."""
    names = [shutil.which(f"python{version}")]
    for home, pattern in (
        (os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), f"versions/{version}.*/bin/python"),
        (os.environ.get("RUNNER_TOOL_CACHE", "/opt/hostedtoolcache"), f"Python/{version}.*/*/bin/python"),
    ):
        names += sorted(Path(home).glob(pattern))
    for name in names:
        if name and subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(name)
    return None
