"""
`make test`: build the wheel, install it into a fresh environment, run the tests from a copy of tests/.

Nothing of service/ is on the path, so a data file that is missing from the wheel fails here and not at a customer's.
Dependencies and the build backend are hash-checked first; then the wheel goes in with --no-deps.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
PIP = ["-m", "pip", "--disable-pip-version-check", "-q", "install"]


def run(*command: str | Path, **options: object) -> None:
    subprocess.run([str(c) for c in command], check=True, **options)


def environment() -> Path:
    """Virtual environment with the pinned test requirements, reused while they do not change."""
    pins = (ROOT / "requirements" / "test.txt").read_bytes()
    home = CACHE / f"test-{hashlib.sha256(pins + sys.version.encode()).hexdigest()[:12]}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        run(python, *PIP, "--require-hashes", "-r", ROOT / "requirements" / "test.txt")
        (home / "ready").touch()
    return python


def wheel(python: Path) -> Path:
    """The built wheel."""
    out = CACHE / "wheel"
    shutil.rmtree(out, ignore_errors=True)
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", out]
    run(python, "-m", "pip", "--disable-pip-version-check", "-q", "wheel", *options, ROOT)
    return next(out.glob("*.whl"))


def main() -> int:
    python = environment()
    run(python, *PIP, "--no-deps", "--force-reinstall", wheel(python))
    copy = CACHE / "tests"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    env["REPOSITORY_UNDER_TEST"] = str(ROOT)
    arguments = sys.argv[1:] or ["-n", "2", "--dist", "loadfile"]
    return subprocess.run([python, "-m", "pytest", *arguments], cwd=copy, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
