"""Every example is answered as it is printed."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tonnage.api.app import create_app
from tonnage.api.settings import Settings

CHANGES = {"versions", "digest", "catalog"}
"""Parts that change with every edit of any fact."""


@pytest.fixture(scope="module")
def examples(repository: Path) -> dict[str, dict[str, Any]]:
    return {
        path.stem: json.loads(path.read_text()) for path in sorted((repository / "openapi" / "examples").glob("*.json"))
    }


def lasting(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in CHANGES}


async def test_every_example_replays(examples: dict[str, dict[str, Any]]) -> None:
    """After a change that moves a number run `make openapi`, look at the difference and name it in CHANGELOG."""
    app = create_app(Settings(access_log=False, deadline_seconds=600))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://tonnage.test") as client:
        for name, pair in examples.items():
            request, expected = pair["request"], pair["response"]
            answer = await client.request(request["method"], request["path"], json=request.get("body"))

            assert (name, expected["status"]) == (name, answer.status_code)
            assert expected["content_type"] == answer.headers["content-type"]
            assert (name, lasting(expected["body"])) == (name, lasting(answer.json()))


def test_there_is_an_example_of_each_endpoint_and_kind_of_answer(examples: dict[str, dict[str, Any]]) -> None:
    asked = {(pair["request"]["path"].partition("?")[0], pair["response"]["status"]) for pair in examples.values()}

    assert {("/estimate", 200), ("/estimate", 422), ("/fit", 200), ("/fit", 409)} <= asked
