"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout, for tests of documents, charts and pins; the package itself comes from the wheel."""
    named = os.environ.get("REPOSITORY_UNDER_TEST")
    return Path(named) if named else Path(__file__).resolve().parent.parent
