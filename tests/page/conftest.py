"""A real service and a real browser."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip


@contextmanager
def running_service():
    """Address of a running `tonnage serve`."""
    command = shutil.which("tonnage", path=str(Path(sys.executable).parent))
    run = [command] if command else [sys.executable, "-c", "from tonnage.cli import main; main()"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as output:
            process = subprocess.Popen([*run, "serve", "--port", "0"], stdout=output, stderr=subprocess.STDOUT)
        for _ in range(600):
            if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
                break
            time.sleep(0.1)
        yield found.group()
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="session")
def service():
    with running_service() as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    """Chromium; closed after the module, since its driver holds an event loop that asyncio tests would trip over."""
    if BROWSER is None:
        pytest.skip("not run: no Chromium is installed (Debian package chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield running
        running.close()
