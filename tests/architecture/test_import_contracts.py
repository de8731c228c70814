"""Imports point downwards; frameworks and the environment stay at the edge."""

import shutil
import subprocess
import sys
from pathlib import Path


def test_import_contracts_hold(repository):
    command = shutil.which("lint-imports", path=str(Path(sys.executable).parent))

    result = subprocess.run(
        [command, "--config", repository / "pyproject.toml", "--no-cache"], capture_output=True, text=True, check=False
    )

    assert 0 == result.returncode, result.stdout
