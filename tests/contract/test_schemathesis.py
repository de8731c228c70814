"""
Schemathesis over a running service: every check, every phase, nothing excluded.

A small number of examples here; `make fuzz` runs the same with 600.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.api.serving import serving

EXAMPLES = os.environ.get("FUZZ_EXAMPLES", "5")
SEED = os.environ.get("FUZZ_SEED", "1")


@pytest.mark.timeout(3600)
def test_schemathesis_finds_nothing() -> None:
    binary = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    assert binary is not None
    with serving(access_log="false") as process:
        command = [
            binary, "--config-file", str(Path(__file__).with_name("schemathesis.toml")),
            "run", f"{process.url}/openapi.json", "--checks", "all", "--seed", SEED, "--max-examples", EXAMPLES,
            "--continue-on-failure", "--generation-database", "none", "--no-color", "--no-shrink",
            "--request-timeout", "300",
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 0 == result.returncode, "\n".join(line[:500] for line in result.stdout.splitlines())[-20_000:]
