"""Answers in the media type that was asked for."""

import httpx
import msgspec
import pytest

from tonnage.spec.fit import FitAnswer
from tonnage.spec.report import Estimate

CARD = {"model": {"parameters": 7_000_000_000}, "reserve": "6 GiB", "placement": {"gpu": "rtx-4090"}}
QUESTION = {"model": {"parameters": 7_000_000_000}, "offer": {"gpus": ["rtx-4090"]}, "limit": 2}


async def asked(client: httpx.AsyncClient, path: str, accept: str) -> httpx.Response:
    return await client.post(path, json=CARD if path == "/estimate" else QUESTION, headers={"accept": accept})


@pytest.mark.parametrize("path", ["/estimate", "/fit"])
@pytest.mark.parametrize(("accept", "begins"), [("text/plain", ""), ("image/svg+xml", "<svg"), ("text/markdown", "")])
async def test_people_can_read_an_answer(client: httpx.AsyncClient, path: str, accept: str, begins: str) -> None:
    answer = await asked(client, path, accept)

    assert 200 == answer.status_code
    assert answer.headers["content-type"].startswith(accept)
    assert answer.text.startswith(begins)
    assert "GiB" in answer.text


async def test_a_picture_may_have_its_style_and_runs_nothing(client: httpx.AsyncClient) -> None:
    policy = (await asked(client, "/estimate", "image/svg+xml")).headers["content-security-policy"]

    assert "style-src 'unsafe-inline'" in policy
    assert "script" not in policy
    assert "sandbox" in policy


async def test_messagepack_holds_what_json_holds(client: httpx.AsyncClient) -> None:
    packed = (await asked(client, "/estimate", "application/vnd.msgpack")).content
    plain = (await asked(client, "/estimate", "application/json")).content

    assert msgspec.json.decode(plain) == msgspec.msgpack.decode(packed)


@pytest.mark.parametrize(("path", "struct"), [("/estimate", Estimate), ("/fit", FitAnswer)])
async def test_an_answer_can_be_read_back_into_its_own_type(client: httpx.AsyncClient, path: str, struct: type) -> None:
    content = (await asked(client, path, "application/json")).content

    assert content == msgspec.json.encode(msgspec.json.decode(content, type=struct))


@pytest.mark.parametrize("path", ["/estimate", "/fit"])
async def test_a_media_type_that_nobody_makes_is_a_406(client: httpx.AsyncClient, path: str) -> None:
    answer = await asked(client, path, "application/pdf")

    assert 406 == answer.status_code
    assert "image/svg+xml" in answer.json()["detail"]


async def test_chosen_fields_are_all_that_is_sent(client: httpx.AsyncClient) -> None:
    answer = await client.post("/estimate?fields=required,verdict", json=CARD)
    whole = (await client.post("/estimate", json=CARD)).json()

    assert {"required": whole["required"], "verdict": whole["verdict"]} == answer.json()


async def test_the_tag_names_the_chosen_fields(client: httpx.AsyncClient) -> None:
    query = "/estimate?parameters=7000000000"
    tags = {(await client.get(query + more)).headers["etag"] for more in ("", "&fields=required", "&fields=verdict")}

    assert 3 == len(tags)


async def test_numbers_are_finite_and_bytes_are_integers(client: httpx.AsyncClient) -> None:
    card = {"model": "meta-llama/Llama-3.1-8B-Instruct", "serving": {"engine": "vllm"}, "placement": {"gpu": "l40s"}}
    answer = (await client.post("/estimate", json=card)).json()

    def walk(node: object, name: str = "") -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                walk(value, key)
        elif isinstance(node, list):
            for value in node:
                walk(value, name)
        elif name.endswith("_bytes"):
            assert node is None or isinstance(node, int), name

    walk(answer)
