"""What surrounds every request: id, deadline, cap, headers, metrics, and no exception that escapes."""

import asyncio
import logging
from typing import Any

import httpx
import msgspec
import pytest
from tests.api.conftest import in_process
from tests.waiting import until

from tonnage.api.app import Application, create_app
from tonnage.api.settings import Settings
from tonnage.errors import (
    ContradictoryWorkload,
    MissingFact,
    SizingError,
    SourceUnavailable,
    UnknownName,
    Unsupported,
)


def application(**settings: Any) -> Application:
    return create_app(Settings(access_log=False, **settings))


def answering(app: Application, answer: Any) -> Application:
    """The application with another estimate function."""
    desk = app.runtime.desk
    desk.sizing = msgspec.structs.replace(desk.sizing, estimate=answer)
    return app


def raising(error: Exception) -> Any:
    def estimate(*_: Any, **__: Any) -> Any:
        raise error

    return estimate


CARD = {"model": {"parameters": 7_000_000_000}}


async def test_a_harmless_request_id_is_kept_and_any_other_replaced(client: httpx.AsyncClient) -> None:
    kept = await client.get("/healthz", headers={"x-request-id": "abc-1.2_3"})
    replaced = await client.get("/healthz", headers={"x-request-id": "a b\"'<script>"})

    assert "abc-1.2_3" == kept.headers["x-request-id"]
    assert replaced.headers["x-request-id"].replace("-", "").isalnum()


async def test_every_request_has_its_own_id(client: httpx.AsyncClient) -> None:
    ids = {(await client.get("/healthz")).headers["x-request-id"] for _ in range(50)}

    assert 50 == len(ids)


async def test_every_answer_has_the_security_headers(client: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/estimate", "/nowhere", "/docs", "/catalog"):
        headers = (await client.get(path)).headers
        assert ("1", "nosniff", "no-referrer") == (
            headers["api-version"], headers["x-content-type-options"], headers["referrer-policy"],
        )  # fmt: skip
        assert "default-src 'none'" in headers["content-security-policy"]


async def test_no_answer_lets_another_origin_in(client: httpx.AsyncClient) -> None:
    answer = await client.get("/catalog", headers={"origin": "https://elsewhere.example"})

    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", ["/estimate", "/fit", "/catalog", "/catalog/gpus", "/healthz", "/openapi.json"])
async def test_head_has_the_headers_of_get_and_no_body(client: httpx.AsyncClient, path: str) -> None:
    query = "?parameters=7000000000" if path == "/estimate" else ""
    head, get = await client.head(path + query), await client.get(path + query)

    assert (get.status_code, get.headers["content-length"], b"") == (
        head.status_code, head.headers["content-length"], head.content,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/estimate", "GET, HEAD, OPTIONS, POST"),
        ("/catalog/gpus/h100-sxm", "GET, HEAD, OPTIONS"),
        ("/metrics", "GET, HEAD, OPTIONS"),
    ],
)
async def test_options_and_405_name_the_methods_of_a_path(client: httpx.AsyncClient, path: str, allowed: str) -> None:
    options, wrong = await client.options(path), await client.request("PATCH", path)

    assert (204, allowed, b"") == (options.status_code, options.headers["allow"], options.content)
    assert (405, allowed) == (wrong.status_code, wrong.headers["allow"])
    assert "application/problem+json" == wrong.headers["content-type"]


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (UnknownName("gpu", "h100x", ["h100-sxm"], pointer="/placement/gpu"), 422, "unknown-name"),
        (ContradictoryWorkload("8 heads are not divided by 3"), 422, "contradictory-workload"),
        (MissingFact("no layers"), 422, "missing-fact"),
        (Unsupported("no law", ["a", "b"]), 422, "unsupported"),
        (SourceUnavailable("no answer"), 503, "source-unavailable"),
        (SizingError("else"), 422, "invalid-request"),
        (TimeoutError(), 503, "deadline-exceeded"),
        (RecursionError(), 500, "internal-error"),
        (ZeroDivisionError("secret"), 500, "internal-error"),
        (KeyError("secret"), 500, "internal-error"),
    ],
)
async def test_every_error_is_a_problem_document(
    error: Exception, status: int, slug: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with in_process(answering(application(), raising(error))) as client:
        answer = await client.post("/estimate", json=CARD)
    problem = answer.json()

    assert (status, status, f"/problems/{slug}") == (answer.status_code, problem["status"], problem["type"])
    assert ("application/problem+json", "/estimate") == (answer.headers["content-type"], problem["instance"])
    assert "secret" not in answer.text
    assert ("retry-after" in answer.headers) == (status == 503)


async def test_an_unknown_name_says_what_was_meant_and_where() -> None:
    error = UnknownName("gpu", "h100-sxn", ["h100-sxm"], pointer="/placement/gpu")
    async with in_process(answering(application(), raising(error))) as client:
        problem = (await client.post("/estimate", json=CARD)).json()

    assert [("/placement/gpu", ["h100-sxm"])] == [(e["pointer"], e["did_you_mean"]) for e in problem["errors"]]


async def test_the_request_over_the_cap_is_a_503_and_health_still_answers() -> None:
    app = application(max_in_flight=2, deadline_seconds=600)
    may_end, waiting = asyncio.Event(), []

    async def body() -> Any:
        waiting.append(True)
        await may_end.wait()
        yield b"{}"

    async def slow(client: httpx.AsyncClient) -> int:
        return (
            await client.post("/estimate", content=body(), headers={"content-type": "application/json"})
        ).status_code

    async with in_process(app) as client:
        held = [asyncio.create_task(slow(client)) for _ in range(2)]
        await until(lambda: len(waiting) == 2)
        refused = await client.get("/estimate?parameters=1")
        health = [(await client.get(path)).status_code for path in ("/healthz", "/readyz", "/metrics")]
        may_end.set()
        then_answered = await asyncio.gather(*held)

        assert (503, "1") == (refused.status_code, refused.headers["retry-after"])
        assert "/problems/overloaded" == refused.json()["type"]
        assert [200, 200, 200] == health
        assert [422, 422] == then_answered
        assert 200 == (await client.get("/estimate?parameters=1")).status_code


async def test_metrics_are_by_route_template_and_bounded(app: Application, client: httpx.AsyncClient) -> None:
    for n in range(20):
        await client.get(f"/catalog/gpus/none-{n}")
        await client.get(f"/nowhere/{n}")
        await client.request(f"BREW{n}", "/healthz")
    text = (await client.get("/metrics")).text

    assert 'tonnage_http_requests_total{method="GET",route="/catalog/gpus/{name}",status="404"}' in text
    assert "none-" not in text
    assert "BREW" not in text
    assert 'route="unmatched"' in text


async def test_metrics_name_what_operators_ask_for(client: httpx.AsyncClient) -> None:
    await client.get("/estimate?parameters=7000000000&gpu=rtx-4090")
    text = (await client.get("/metrics")).text

    for name in (
        "tonnage_http_requests_total", "tonnage_http_request_duration_seconds_bucket", "tonnage_http_in_flight",
        "tonnage_estimate_seconds_bucket", "tonnage_fit_seconds_bucket", "tonnage_verdicts_total",
        "tonnage_cache_requests_total", "tonnage_catalog_info", "tonnage_catalog_age_seconds", "tonnage_redis_state",
    ):  # fmt: skip
        assert name in text, name


async def test_a_slash_too_many_changes_nothing(client: httpx.AsyncClient) -> None:
    assert 200 == (await client.get("/catalog/gpus/")).status_code
    assert 200 == (await client.get("/catalog//gpus")).status_code


async def test_a_deadline_ends_a_body_that_does_not_come_with_a_408() -> None:
    never = asyncio.Event()

    async def body() -> Any:
        yield b"{"
        await never.wait()

    async with in_process(application(deadline_seconds=0.2)) as client:
        answer = await client.post("/estimate", content=body(), headers={"content-type": "application/json"})

    assert (408, "close") == (answer.status_code, answer.headers["connection"])
