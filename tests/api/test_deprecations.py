"""What is deprecated says so in every answer and in the description."""

from collections.abc import Iterator
from datetime import date

import httpx
import pytest

from tonnage.api.deprecations import DEPRECATED, Deprecation
from tonnage.api.openapi import document

GONE = {
    ("GET", "/estimate"): Deprecation(date(2027, 1, 1), "/docs#post-estimate", sunset=date(2027, 7, 1)),
    ("GET", "/catalog/gpus/{name}"): Deprecation(date(2027, 1, 1), "/docs"),
}


@pytest.fixture(autouse=True)
def deprecated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    document.cache_clear()
    for key, entry in GONE.items():
        monkeypatch.setitem(DEPRECATED, key, entry)
    yield
    document.cache_clear()


@pytest.mark.parametrize("path", ["/estimate?parameters=1", "/estimate/?parameters=1", "/estimate?nonsense=1"])
async def test_an_answer_says_since_when_until_when_and_what_instead(client: httpx.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers

    assert "@1798761600" == headers["deprecation"]
    assert "Thu, 01 Jul 2027 00:00:00 GMT" == headers["sunset"]
    assert '</docs#post-estimate>; rel="deprecation"' == headers["link"]


async def test_a_path_with_a_name_is_meant_whatever_the_name(client: httpx.AsyncClient) -> None:
    answer = await client.get("/catalog/gpus/l4")

    assert "@1798761600" == answer.headers["deprecation"]
    assert "sunset" not in answer.headers


async def test_what_stays_says_nothing(client: httpx.AsyncClient) -> None:
    answer = await client.post("/estimate", json={"model": {"parameters": 1}})

    assert (200, None) == (answer.status_code, answer.headers.get("deprecation"))


def test_the_description_marks_it() -> None:
    paths = document()["paths"]

    assert paths["/estimate"]["get"]["deprecated"]
    assert "deprecated" not in paths["/estimate"]["post"]


def test_nothing_is_deprecated_before_anybody_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in GONE:
        monkeypatch.delitem(DEPRECATED, key)

    assert {} == DEPRECATED
