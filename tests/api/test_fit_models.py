"""Which models a GPU serves, over HTTP."""

import csv
import io
import json

import httpx
import msgspec
import pytest

from tonnage.spec.fit_models import ModelsAnswer

QUERY = "/fit/models?gpu=l40s&engine=vllm&max_model_len=8192&q=qwen3-8b"
CARD = {"serving": {"engine": "vllm", "max_model_len": 8192}, "placement": {"gpu": "l40s"}, "q": "qwen3-8b"}


async def test_query_and_body_ask_the_same_question(client: httpx.AsyncClient) -> None:
    by_query, by_body = await client.get(QUERY), await client.post("/fit/models", json=CARD)

    assert 200 == by_query.status_code
    assert by_query.json() == by_body.json()
    assert "Qwen/Qwen3-8B" in [m["model"] for m in by_query.json()["models"]]


async def test_an_answer_can_be_read_back_into_its_own_type(client: httpx.AsyncClient) -> None:
    content = (await client.get(QUERY)).content

    assert content == msgspec.json.encode(msgspec.json.decode(content, type=ModelsAnswer))


@pytest.mark.parametrize(
    ("accept", "begins"), [("text/plain", "1 x l40s: 44."), ("text/markdown", "## Models on 1 x l40s")]
)
async def test_people_can_read_it(client: httpx.AsyncClient, accept: str, begins: str) -> None:
    answer = await client.get(QUERY, headers={"accept": accept})

    assert answer.text.startswith(begins)
    assert "Qwen/Qwen3-8B" in answer.text


async def test_a_sheet_has_a_row_for_each_model(client: httpx.AsyncClient) -> None:
    plain, sheet = await client.get(QUERY), await client.get(QUERY, headers={"accept": "text/csv"})
    rows = list(csv.DictReader(io.StringIO(sheet.text)))

    assert [m["model"] for m in plain.json()["models"]] == [row["model"] for row in rows]


async def test_an_answer_the_caller_has_is_not_sent_again(client: httpx.AsyncClient) -> None:
    tag = (await client.get(QUERY)).headers["etag"]

    assert 304 == (await client.get(QUERY, headers={"if-none-match": tag})).status_code


async def test_lines_are_answered_one_by_one(client: httpx.AsyncClient) -> None:
    lines = b"\n".join([json.dumps(CARD).encode(), b"{}", json.dumps(CARD | {"q": "Llama-3.2-1B"}).encode()])
    answer = await client.post("/fit/models", content=lines, headers={"content-type": "application/x-ndjson"})
    first, wrong, last = map(json.loads, answer.text.splitlines())

    assert first["considered"]["met"]
    assert "placement" in wrong["detail"]
    assert all("Llama-3.2-1B" in m["model"] for m in last["models"])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("engine=vllm", "placement"),
        ("gpu=l44", "did you mean"),
        ("gpu=l40s&model=Qwen/Qwen3-8B", "models"),
        ("gpu=l40s&models=nobody/nothing", "nobody/nothing"),
        ("gpu=l40s&limit=0", "limit"),
    ],
)
async def test_what_cannot_be_answered_is_a_422_that_says_why(client: httpx.AsyncClient, query: str, said: str) -> None:
    answer = await client.get(f"/fit/models?{query}")

    assert 422 == answer.status_code
    assert said in answer.text
