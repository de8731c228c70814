"""Fixtures that every test may use."""

import importlib.util
import os
from pathlib import Path

import pytest

if importlib.util.find_spec("hypothesis"):  # the optional extras are tested without
    from hypothesis import HealthCheck, settings

    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    if settings.get_current_profile_name() == "default":  # the mutation run has a profile of its own
        settings.load_profile("any machine")


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout, for tests of documents, charts and pins; the package itself comes from the wheel."""
    named = os.environ.get("REPOSITORY_UNDER_TEST")
    return Path(named) if named else Path(__file__).resolve().parent.parent
