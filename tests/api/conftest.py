"""One application for the HTTP tests, asked in process."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.adapters.conftest import start_server  # noqa: F401  (a fixture here too)

from tonnage.api.app import Application, create_app
from tonnage.api.settings import Settings


@pytest.fixture(scope="session")
def app() -> Application:
    return create_app(Settings(access_log=False, deadline_seconds=600))


@pytest.fixture
async def client(app: Application) -> AsyncIterator[httpx.AsyncClient]:
    async with in_process(app) as client:
        yield client


def in_process(app: Application) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://tonnage.test")
