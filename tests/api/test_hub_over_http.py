"""Models that only the Hub knows, asked for over HTTP."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.adapters.hub_server import HubServer, running_hub
from tests.api.conftest import in_process

from tonnage.api.app import create_app
from tonnage.api.settings import Settings

CARD = {"model": "someone/some-model", "placement": {"gpu": "h100-sxm"}}


@pytest.fixture
async def hub() -> AsyncIterator[HubServer]:
    async with running_hub() as server:
        yield server


def asking(hub: HubServer) -> httpx.AsyncClient:
    return in_process(create_app(Settings(access_log=False, hub_enabled=True, hub_endpoint=hub.endpoint)))


async def test_a_model_of_the_hub_is_estimated(hub: HubServer) -> None:
    hub.add_repository("someone/some-model")
    async with asking(hub) as client:
        answers = [await client.post("/estimate", json=CARD) for _ in range(3)]

    assert [200, 200, 200] == [answer.status_code for answer in answers]
    assert "someone/some-model" == answers[0].json()["model"]["id"]
    assert 1 == len({answer.json()["digest"] for answer in answers})
    assert 1 == sum("config.json" in path for path in hub.paths)


async def test_a_fit_asks_the_hub_too(hub: HubServer) -> None:
    hub.add_repository("someone/some-model")
    async with asking(hub) as client:
        answer = await client.post(
            "/fit", json={"model": "someone/some-model", "offer": {"gpus": ["rtx-4090"]}, "limit": 1}
        )

    assert (200, "someone/some-model") == (answer.status_code, answer.json()["model"]["id"])


async def test_a_model_of_the_catalogue_is_not_asked_for(hub: HubServer) -> None:
    async with asking(hub) as client:
        assert 200 == (await client.post("/estimate", json={"model": "Qwen/Qwen3-0.6B"})).status_code

    assert [] == hub.paths


async def test_a_model_that_nobody_has_is_a_422(hub: HubServer) -> None:
    async with asking(hub) as client:
        answer = await client.post("/estimate", json=CARD)

    assert (422, "/model") == (answer.status_code, answer.json()["errors"][0]["pointer"])


async def test_a_hub_that_fails_is_a_503_with_a_time_to_come_back(hub: HubServer) -> None:
    hub.serve("/someone/some-model/resolve/main/config.json", b"", status=500)
    async with asking(hub) as client:
        answer = await client.post("/estimate", json=CARD)

    assert (503, "5", "/problems/source-unavailable") == (
        answer.status_code, answer.headers["retry-after"], answer.json()["type"],
    )  # fmt: skip


async def test_without_the_hub_an_unknown_model_is_a_422_that_says_how_to_pass_its_config(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post("/estimate", json=CARD)

    assert 422 == answer.status_code
    assert "config.json" in answer.json()["detail"]
