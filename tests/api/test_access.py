"""Keys, scopes, limits and addresses."""

import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.conftest import in_process

from tonnage.adapters.rate_counter import RateCounter
from tonnage.adapters.redis_link import LinkSettings, RedisLink
from tonnage.api.access import needed_scope, new_key, read_keys, refuse_open_house
from tonnage.api.app import create_app
from tonnage.api.gate import Gate
from tonnage.api.settings import Settings, SettingsError

READER, SIZER, ADMIN = "tonnage_reader-0123456789", "tonnage_sizer-0123456789", "tonnage_admin-0123456789"


def line(name: str, scopes: str, token: str) -> str:
    return f"{name}:{scopes}:{hashlib.sha256(token.encode()).hexdigest()}"


READER_LINE = line("reader", "read", READER)
SIZER_LINE = line("sizer", "estimate+fit", SIZER)
ADMIN_LINE = line("root", "admin", ADMIN)


def asking(**settings: Any) -> httpx.AsyncClient:
    return in_process(create_app(Settings(access_log=False, **settings)))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("//estimate", "estimate"),
        ("/estimate//", "estimate"),
        ("//fit//models/", "fit"),
        ("//metrics/", "admin"),
        ("//catalog//gpus/", "read"),
        ("/estimates", "read"),
        ("//", None),
        ("//docs/", None),
    ],
)
def test_no_spelling_of_a_path_needs_less_than_the_path(path: str, scope: str | None) -> None:
    assert scope == needed_scope(path, metrics_open=False)


@pytest.mark.parametrize(
    ("token", "path", "status"),
    [
        (READER, "/catalog", 200),
        (READER, "/catalog/gpus", 200),
        (READER, "/estimate?parameters=1", 403),
        (READER, "/estimate/?parameters=1", 403),
        (READER, "/%65stimate?parameters=1", 403),
        (READER, "/fit/models?gpu=l4", 403),
        (READER, "/metrics/", 403),
        (SIZER, "/estimate?parameters=1", 200),
        (SIZER, "/catalog", 403),
        (SIZER, "/metrics", 403),
        (ADMIN, "/metrics", 200),
        (ADMIN, "/catalog", 200),
        (ADMIN, "/estimate?parameters=1", 200),
        ("tonnage_" + "x" * 43, "/catalog", 401),
    ],
)
async def test_a_key_opens_what_its_scopes_say(token: str, path: str, status: int) -> None:
    async with asking(api_keys=f"{READER_LINE} {SIZER_LINE} {ADMIN_LINE}") as client:
        answer = await client.get(path, headers=bearer(token))

    assert status == answer.status_code
    assert ("www-authenticate" in answer.headers) == (status == 401)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic abc",
        f"Bearer {READER} x",
        READER,
        f"Token {READER}",
        "Bearer " + "a" * 5000,
    ],
)
async def test_without_a_well_formed_key_it_is_a_401(header: str | None) -> None:
    async with asking(api_keys=READER_LINE) as client:
        answer = await client.get("/catalog", headers={} if header is None else {"authorization": header})

    assert (401, "application/problem+json") == (answer.status_code, answer.headers["content-type"])


@pytest.mark.parametrize(
    "path", ["/", "/page/main.js", "/healthz", "/readyz", "/openapi.json", "/docs", "/docs/docs.js", "/problems"]
)
async def test_some_paths_need_no_key(path: str) -> None:
    async with asking(api_keys=READER_LINE) as client:
        assert 200 == (await client.get(path)).status_code


async def test_a_path_that_does_not_exist_needs_a_key_too() -> None:
    async with asking(api_keys=READER_LINE) as client:
        assert 401 == (await client.get("/nowhere")).status_code


@pytest.mark.parametrize(
    "path",
    ["//catalog", "/catalog/", "/estimate/?parameters=1", "/ESTIMATE", "/docs/../catalog", "/problems/../metrics"],
)
async def test_another_spelling_of_a_path_opens_nothing(path: str) -> None:
    async with asking(api_keys=ADMIN_LINE) as client:
        answer = await client.request("GET", httpx.URL(f"http://tonnage.test{path}"))

        assert answer.status_code in (401, 404)


async def test_an_answer_to_a_key_is_not_for_shared_caches() -> None:
    async with asking(api_keys=READER_LINE) as client:
        answer = await client.get("/catalog", headers=bearer(READER))

    assert "private, max-age=60" == answer.headers["cache-control"]


async def test_metrics_can_be_opened() -> None:
    async with asking(api_keys=READER_LINE, metrics_open=True) as client:
        assert 200 == (await client.get("/metrics")).status_code


def test_only_a_hash_of_a_new_key_is_stored() -> None:
    token, stored = new_key("reader", "read")

    assert line("reader", "read", token) == stored
    assert token not in stored


def test_keys_come_from_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# ours\n{READER_LINE}\n\n")
    ring = read_keys(Settings(api_keys=SIZER_LINE, api_keys_file=str(file)))

    assert ring is not None
    assert {"reader", "sizer"} == {key.name for key in ring.keys}


@pytest.mark.parametrize(
    "text", ["nonsense", "a:read:abc", f"a:everything:{'0' * 64}", f"{READER_LINE} {READER_LINE}", READER]
)
def test_a_line_that_is_no_key_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_keys(Settings(api_keys=text))

    assert text not in str(caught.value)


def test_a_missing_or_empty_file_of_keys_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for name in (str(empty), str(tmp_path / "none")):
        with pytest.raises(SettingsError):
            read_keys(Settings(api_keys_file=name))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_the_service_does_not_start_open_where_others_reach_it(host: str) -> None:
    with pytest.raises(SettingsError):
        refuse_open_house(Settings(host=host))
    refuse_open_house(Settings(host=host, allow_open=True))
    refuse_open_house(Settings(host=host, api_keys=READER_LINE))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_the_own_machine_may_be_open(host: str) -> None:
    refuse_open_house(Settings(host=host))


async def test_the_request_over_the_limit_is_a_429_with_headers() -> None:
    async with asking(rate_limit_per_minute=3) as client:
        answers = [await client.get("/catalog") for _ in range(5)]

    assert [200, 200, 200, 429, 429] == [answer.status_code for answer in answers]
    assert ["2", "1", "0", "0", "0"] == [answer.headers["ratelimit-remaining"] for answer in answers]
    assert {"3"} == {answer.headers["ratelimit-limit"] for answer in answers}
    assert 1 <= int(answers[3].headers["retry-after"]) <= 120
    assert "/problems/rate-limited" == answers[3].json()["type"]


async def test_health_and_metrics_are_never_limited() -> None:
    async with asking(rate_limit_per_minute=1) as client:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert [200, 200, 200] == [(await client.get(path)).status_code for _ in range(3)]


async def test_each_key_has_its_own_limit() -> None:
    async with asking(rate_limit_per_minute=1, api_keys=f"{READER_LINE} {ADMIN_LINE}") as client:
        statuses = [(await client.get("/catalog", headers=bearer(key))).status_code for key in (READER, READER, ADMIN)]

    assert [200, 429, 200] == statuses


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "198.51.100.7, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "198.51.100.7, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "nonsense", "unknown"),
        ("2001:db8::1", "", "2001:db8::/64"),
        ("2001:db8::ffff:1", "", "2001:db8::/64"),
        ("::ffff:192.0.2.1", "", "192.0.2.1"),
    ],
)
def test_a_limit_counts_by_the_nearest_address_that_is_not_a_proxy(peer: str, forwarded: str, address: str) -> None:
    gate = Gate(Settings(trusted_proxies="10.0.0.0/8"), None, RateCounter(RedisLink(LinkSettings(url="")), 1))

    assert address == gate.address({"client": (peer, 1)}, {b"x-forwarded-for": forwarded.encode()} if forwarded else {})


async def test_a_listed_origin_may_read_and_another_may_not() -> None:
    async with asking(cors_origins="https://ours.example, https://too.example") as client:
        ours = await client.get("/catalog", headers={"origin": "https://ours.example"})
        other = await client.get("/catalog", headers={"origin": "https://other.example"})
        asked = {"origin": "https://too.example", "access-control-request-method": "POST"}
        preflight = await client.options("/estimate", headers=asked)

    assert "https://ours.example" == ours.headers["access-control-allow-origin"]
    assert "access-control-allow-origin" not in other.headers
    assert ("https://too.example", 204) == (preflight.headers["access-control-allow-origin"], preflight.status_code)
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in preflight.headers


async def test_a_problem_can_be_read_across_origins() -> None:
    async with asking(cors_origins="https://ours.example") as client:
        answer = await client.get("/nowhere", headers={"origin": "https://ours.example"})

    assert "https://ours.example" == answer.headers["access-control-allow-origin"]
