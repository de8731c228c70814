"""A real service and a real browser."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.waiting import SECONDS, wait_for

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
PATIENT = {"TONNAGE_DEADLINE_SECONDS": "600"}
"""No answer is refused because the machine is slow."""
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
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
            process = subprocess.Popen(
                [*run, "serve", "--port", "0"], stdout=output, stderr=subprocess.STDOUT, env=os.environ | PATIENT
            )
        try:
            wait_for(lambda: ADDRESS.search(log.read_text()))
            yield ADDRESS.search(log.read_text()).group()
        finally:
            process.terminate()
            process.wait(SECONDS)


@pytest.fixture(scope="session")
def service():
    with running_service() as address:
        yield address


def patient(new_context):
    """Pages that wait as long as any test for what comes sooner or later."""

    def make(**options):
        context = new_context(**options)
        context.set_default_timeout(1000 * SECONDS)
        return context

    return make


@pytest.fixture(scope="module")
def browser():
    """Chromium; closed after the module, since its driver holds an event loop that asyncio tests would trip over."""
    if BROWSER is None:
        pytest.skip("not run: no Chromium is installed (Debian package chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        running.new_context = patient(running.new_context)
        yield running
        running.close()
