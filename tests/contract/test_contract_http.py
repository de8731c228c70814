"""Sentences of the contract about requests, formats and errors, asked over HTTP in process."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from tests.api.conftest import in_process

from tonnage.api.app import create_app
from tonnage.api.settings import Settings

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
APP = create_app(Settings(access_log=False, deadline_seconds=600))
PROBLEM = {"type", "title", "status", "detail", "instance"}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with in_process(APP) as client:
        yield client


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert status == response.status_code, response.text
    assert "application/problem+json" == response.headers["content-type"]
    found: dict[str, Any] = response.json()
    assert set(found) >= PROBLEM
    assert status == found["status"]
    for error in found.get("errors", []):
        assert {"pointer", "detail"} <= set(error) <= {"pointer", "detail", "did_you_mean"}
    return found


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("gpu=l40s", {"placement": {"gpu": "l40s"}}),
        (
            "weights_format=bf16&engine=vllm&max_model_len=4096&concurrency=2&gpu=l40s&tensor_parallel_size=2",
            {
                "weights": {"format": "bf16"},
                "serving": {"engine": "vllm", "max_model_len": 4096, "concurrency": 2},
                "placement": {"gpu": "l40s", "tensor_parallel_size": 2},
            },
        ),
        (
            "weights.format=bf16&method=lora&lora.rank=8&lora.target_modules=q_proj,v_proj&offload.optimizer=true",
            {
                "weights": {"format": "bf16"},
                "training": {
                    "method": "lora",
                    "lora": {"rank": 8, "target_modules": ["q_proj", "v_proj"]},
                    "offload": {"optimizer": True},
                },
            },
        ),
        (
            "engine=llama.cpp&kv_cache_dtype.k=q8_0&kv_cache_dtype.v=q4_0&tensor_split=3,1&reserve=6+GiB",
            {
                "serving": {"engine": "llama.cpp", "kv_cache_dtype": {"k": "q8_0", "v": "q4_0"}, "tensor_split": [3, 1]},
                "reserve": "6 GiB",
            },
        ),
        ("engine=vllm&speculative.method=ngram&failure.phase=decode&reserve.fraction=0.2", {
            "serving": {"engine": "vllm", "speculative": {"method": "ngram"}},
            "failure": {"phase": "decode"}, "reserve": {"fraction": 0.2},
        }),
    ],
)  # fmt: skip
async def test_a_query_asks_what_the_body_asks(client: httpx.AsyncClient, query: str, body: dict[str, Any]) -> None:
    by_query = await client.get(f"/estimate?model={MODEL}&{query}")
    by_body = await client.post("/estimate", json={"model": MODEL} | body)

    assert 200 == by_query.status_code == by_body.status_code, by_query.text
    assert by_body.content == by_query.content


@pytest.mark.parametrize("body", [
    {"model": MODEL, "reserve": "6G"},
    {"model": MODEL, "weights": {"bytes": "6G"}},
    {"model": MODEL, "serving": {"engine": "vllm", "kv_cache_memory_bytes": "6G"}},
    {"model": MODEL, "measurements": [{"counter": "device", "peak_bytes": "6G"}]},
    {"model": MODEL, "failure": {"requested_bytes": "6G"}},
])  # fmt: skip
async def test_an_amount_without_an_explicit_unit_is_refused_with_both_readings(
    client: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    detail = problem(await client.post("/estimate", json=body), 422)["detail"]

    assert "6000000000" in detail
    assert "6442450944" in detail


async def test_integral_floats_are_integers_and_texts_are_no_numbers(client: httpx.AsyncClient) -> None:
    serving = {"engine": "vllm", "max_model_len": 4096.0}
    whole = await client.post("/estimate", json={"model": MODEL, "serving": serving})
    exact = await client.post("/estimate", json={"model": MODEL, "serving": serving | {"max_model_len": 4096}})
    text = await client.post("/estimate", json={"model": MODEL, "serving": serving | {"max_model_len": "4096"}})

    assert exact.content == whole.content
    assert "/serving/max_model_len" == problem(text, 422)["errors"][0]["pointer"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_numbers_that_json_does_not_have_never_parse(client: httpx.AsyncClient, number: str) -> None:
    body = f'{{"model": "{MODEL}", "serving": {{"engine": "vllm", "gpu_memory_utilization": {number}}}}}'
    response = await client.post("/estimate", content=body, headers={"content-type": "application/json"})

    problem(response, response.status_code)
    assert response.status_code in (400, 422)


@pytest.mark.parametrize("ask", ["get", "post"])
async def test_strictness_makes_nothing_selected_a_409(client: httpx.AsyncClient, ask: str) -> None:
    too_large = "meta-llama/Llama-3.1-405B-Instruct"
    if ask == "get":
        query = f"/fit?model={too_large}&engine=vllm&gpus=rtx-4090&strict="
        loose, strict = await client.get(query + "false"), await client.get(query + "true")
    else:
        body = {"model": too_large, "serving": {"engine": "vllm"}, "offer": {"gpus": ["rtx-4090"]}}
        loose, strict = await client.post("/fit", json=body), await client.post("/fit?strict=true", json=body)

    assert 200 == loose.status_code
    assert loose.json()["selected"] is None
    assert problem(strict, 409)["errors"]


@pytest.mark.parametrize(
    "path", [f"/estimate?model={MODEL}", f"/fit?model={MODEL}", "/catalog", "/catalog/gpus", "/healthz"]
)
async def test_a_method_that_a_path_does_not_know_names_those_it_does(client: httpx.AsyncClient, path: str) -> None:
    response = await client.delete(path)

    problem(response, 405)
    assert "GET" in response.headers["allow"]


@pytest.mark.parametrize("path", [f"/estimate?model={MODEL}&gpu=l40s", "/catalog/gpus", f"/catalog/models/{MODEL}"])
async def test_who_has_the_answer_is_told_so_and_head_is_get_without_a_body(
    client: httpx.AsyncClient, path: str
) -> None:
    first = await client.get(path)
    head = await client.head(path)
    again = await client.get(path, headers={"if-none-match": first.headers["etag"]})

    assert (304, b"") == (again.status_code, again.content)
    assert (200, b"", first.headers["content-length"]) == (
        head.status_code,
        head.content,
        head.headers["content-length"],
    )
    assert first.headers["cache-control"]


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        (f"/estimate?model={MODEL}&engine=vllm&gpu=l40s", ("application/vnd.msgpack", "text/plain", "image/svg+xml")),
        (f"/fit?model={MODEL}&engine=vllm&gpus=l40s", ("application/vnd.msgpack", "text/plain", "image/svg+xml")),
        ("/catalog/gpus?limit=3", ("application/vnd.msgpack", "text/csv")),
        ("/catalog/models?limit=3", ("application/vnd.msgpack", "text/csv")),
        ("/catalog/skus?limit=3", ("application/vnd.msgpack", "text/csv")),
    ],
)
async def test_answers_come_in_the_media_types_of_the_contract(
    client: httpx.AsyncClient, path: str, kinds: tuple[str, ...]
) -> None:
    plain = await client.get(path)
    for kind in kinds:
        response = await client.get(path, headers={"accept": kind})
        assert (200, kind) == (response.status_code, response.headers["content-type"].partition(";")[0])
        if kind == "application/vnd.msgpack":
            assert plain.json() == msgspec.msgpack.decode(response.content)
    problem(await client.get(path, headers={"accept": "application/pdf"}), 406)


async def test_lists_link_to_their_next_page_until_the_last(client: httpx.AsyncClient) -> None:
    path, seen = "/catalog/optimizers?limit=7", []
    while path:
        page = await client.get(path)
        seen += [row["id"] for row in page.json()["items"]]
        path = page.links["next"]["url"] if "next" in page.links else ""

    whole = (await client.get("/catalog/optimizers?limit=500")).json()["items"]
    assert [row["id"] for row in whole] == seen


@pytest.mark.parametrize(
    "path",
    ["/catalog", "/catalog/models", "/catalog/gpus", "/catalog/skus", "/catalog/formats", "/catalog/kv-formats",
     "/catalog/engines", "/catalog/optimizers", "/catalog/laws", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"],
)  # fmt: skip
async def test_every_path_of_the_contract_is_there(client: httpx.AsyncClient, path: str) -> None:
    assert 200 == (await client.get(path)).status_code


async def test_every_law_that_an_answer_names_can_be_read(client: httpx.AsyncClient) -> None:
    answer = (await client.get(f"/estimate?model={MODEL}&engine=vllm&gpu=l40s")).json()
    for law in {item["law"] for load in answer["gpus"] for item in load["items"]}:
        assert 200 == (await client.get(f"/catalog/laws/{law}")).status_code, law


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", {"content-type": "application/json"}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-type": "application/json", "content-encoding": "gzip"}, 415),
        (b" " * (5 << 20), {"content-type": "application/json"}, 413),
        (b'{"modle": "x"}', {"content-type": "application/json"}, 422),
        (b'{"model": "x", "model": "y"}', {"content-type": "application/json"}, 400),
        (b'{"model": "x\\n"}', {"content-type": "application/json"}, 422),
        (b"[" * 500, {"content-type": "application/json"}, 400),
    ],
)
async def test_what_is_wrong_with_a_body_has_its_status(
    client: httpx.AsyncClient, content: bytes, headers: dict[str, str], status: int
) -> None:
    for path in ("/estimate", "/fit"):
        problem(await client.post(path, content=content, headers=headers), status)


@pytest.mark.parametrize(
    ("query", "pointer", "meant"),
    [
        ("model=x&gpuu=l40s", "/gpuu", "gpu"),
        (f"model={MODEL}&gpu=l40s&gpu=a10", "/gpu", None),
        (f"model={MODEL}&gpu=l40ss", "/placement/gpu", "l40s"),
        (f"model={MODEL}&engine=vlm", "/serving/engine", "vllm"),
    ],
)
async def test_a_wrong_parameter_is_named_with_what_was_meant(
    client: httpx.AsyncClient, query: str, pointer: str, meant: str | None
) -> None:
    error = problem(await client.get(f"/estimate?{query}"), 422)["errors"][0]

    assert pointer == error["pointer"]
    assert meant is None or meant in error["did_you_mean"]
