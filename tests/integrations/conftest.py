"""A live service, and the examples of the checkout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.api.serving import serving

import tonnage


@pytest.fixture(scope="module")
def service():
    with serving() as process:
        yield process.url


@pytest.fixture(scope="session")
def examples(repository):
    return repository / "examples"


@pytest.fixture(scope="session")
def commands(tmp_path_factory):
    """Environment in which `tonnage` and `python` are this interpreter's."""
    shims = tmp_path_factory.mktemp("shims")
    for name, words in {"python": "", "tonnage": "-m tonnage"}.items():
        (shims / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (shims / name).chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TONNAGE_")}
    source = str(Path(tonnage.__file__).parent.parent)
    return {**kept, "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": source}


@pytest.fixture(scope="session")
def shell(commands):
    def run(script, *, cwd, shell="bash", **environment):
        return subprocess.run(
            [shell, "-e", "-c", script],
            cwd=cwd, env={**commands, **environment}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run
