"""The command as a person types it, in this process or in one of its own."""

import os
import subprocess
import sys
from typing import NamedTuple

import pytest

from tonnage.cli import main


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def tonnage(capsys, monkeypatch):
    """Runs the command in this process."""
    for name in [name for name in os.environ if name.startswith("TONNAGE_")]:
        monkeypatch.delenv(name)

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Ended(ended.value.code or 0, out, err)

    return run


@pytest.fixture(scope="session")
def process():
    """Runs the command in a process of its own."""

    def run(*words, **options):
        command = [sys.executable, "-m", "tonnage", *map(str, words)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
        return Ended(result.returncode, result.stdout, result.stderr)

    return run
