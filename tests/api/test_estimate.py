"""POST and GET /estimate beyond the answer itself: derivations on request."""

import httpx
import pytest

CARD = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "serving": {"engine": "vllm", "max_model_len": 8192},
    "placement": {"gpu": "l40s"},
}
QUERY = "model=meta-llama/Llama-3.1-8B-Instruct&engine=vllm&max_model_len=8192&gpu=l40s"


async def test_derivations_come_only_when_asked_for(client: httpx.AsyncClient) -> None:
    plain = (await client.post("/estimate", json=CARD)).json()
    told = (await client.post("/estimate?explain=true", json=CARD)).json()

    assert "derivations" not in plain
    assert plain == {name: value for name, value in told.items() if name != "derivations"}
    assert told["derivations"]


async def test_asking_for_the_field_asks_for_its_contents(client: httpx.AsyncClient) -> None:
    told = (await client.post("/estimate?fields=derivations", json=CARD)).json()

    assert ["derivations"] == list(told)
    assert any("8 × (256 + 256)" == step["numbers"] for d in told["derivations"] for step in d["steps"])


async def test_explained_and_plain_answers_have_tags_of_their_own(client: httpx.AsyncClient) -> None:
    paths = ("", "&explain=true", "&fields=derivations", "&fields=digest")
    tags = {(await client.get(f"/estimate?{QUERY}{more}")).headers["etag"] for more in paths}

    assert len(paths) == len(tags)


async def test_lines_of_a_batch_are_explained_too(client: httpx.AsyncClient) -> None:
    line = '{"model": {"parameters": 7000000000}}\n'
    answer = await client.post(
        "/estimate?explain=true", content=line * 2, headers={"content-type": "application/x-ndjson"}
    )

    assert 2 == answer.text.count('"derivations"')


@pytest.mark.parametrize("value", ["yes", "1", ""])
async def test_explain_is_true_or_false(client: httpx.AsyncClient, value: str) -> None:
    assert 422 == (await client.get(f"/estimate?{QUERY}&explain={value}")).status_code


async def test_what_cannot_be_estimated_cannot_be_explained(client: httpx.AsyncClient) -> None:
    answer = await client.post("/estimate?explain=true", json=CARD | {"placement": {"gpu": "l40z"}})

    assert 422 == answer.status_code
    assert "l40s" in answer.text
