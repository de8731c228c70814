"""Lists by filter, order and page; entries by id and alias; 304 for who has it already."""

import csv
import io
from typing import Any

import httpx
import msgspec
import pytest

from tonnage.api.catalog_views import COLLECTIONS
from tonnage.catalog import load_catalog


async def listed(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await client.get(path)
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_the_index_counts_what_there_is(client: httpx.AsyncClient) -> None:
    index = await listed(client, "/catalog")

    assert set(COLLECTIONS) == set(index["collections"])
    for name, link in index["collections"].items():
        assert f"/catalog/{name}" == link["href"]
        assert link["count"] == (await listed(client, f"{link['href']}?limit=1"))["total"]


@pytest.mark.parametrize("name", sorted(COLLECTIONS))
async def test_every_entry_of_every_list_can_be_had_by_its_id(client: httpx.AsyncClient, name: str) -> None:
    for item in (await listed(client, f"/catalog/{name}?limit=500"))["items"]:
        entry = await client.get(f"/catalog/{name}/{item['id']}")
        assert (200, item["id"]) == (entry.status_code, entry.json()["id"])


@pytest.mark.parametrize(
    "sort", ["id", "-id", "memory_usable_bytes", "-memory_usable_bytes", "tdp_watts", "-release_date"]
)
async def test_pages_hold_every_row_once_in_order(client: httpx.AsyncClient, sort: str) -> None:
    seen: list[dict[str, Any]] = []
    following: str | None = f"/catalog/gpus?sort={sort}&limit=17"
    while following:
        answer = await client.get(following)
        page = answer.json()
        seen += page["items"]
        following = page["next"]
        assert (following is not None) == ("link" in answer.headers)
    field = sort.removeprefix("-")
    values = [row[field] for row in seen if row[field] is not None]

    assert sorted(row["id"] for row in seen) == sorted(gpu.id for gpu in load_catalog().gpus)
    assert values == sorted(values, reverse=sort.startswith("-"))


async def test_filters_narrow_a_list(client: httpx.AsyncClient) -> None:
    large = await listed(client, "/catalog/gpus?vendor=nvidia&min_memory_usable_bytes=100000000000&limit=500")

    assert 0 < large["total"] < (await listed(client, "/catalog/gpus"))["total"]
    assert all(gpu["vendor"] == "nvidia" and gpu["memory_usable_bytes"] >= 10**11 for gpu in large["items"])


async def test_a_list_field_filters_by_an_entry(client: httpx.AsyncClient) -> None:
    found = await listed(client, "/catalog/gpus?native_dtypes=fp8&limit=500")

    assert 0 < found["total"]
    assert all("fp8" in gpu["native_dtypes"] for gpu in found["items"])


async def test_q_looks_into_names_whatever_their_case(client: httpx.AsyncClient) -> None:
    found = await listed(client, "/catalog/models?q=LLAMA-3.1-8b")

    assert any("Llama-3.1-8B" in model["id"] for model in found["items"])


async def test_packages_of_one_gpu_can_be_listed(client: httpx.AsyncClient) -> None:
    found = await listed(client, "/catalog/skus?gpu=rtx-4090&limit=500")

    assert found["items"]
    assert {"rtx-4090"} == {package["gpu"] for package in found["items"]}


async def test_an_entry_is_found_by_another_spelling(client: httpx.AsyncClient) -> None:
    entry = await listed(client, "/catalog/models/META-LLAMA/llama-3.1-8b-instruct")

    assert entry["id"].lower() in ("meta-llama/llama-3.1-8b-instruct", "meta-llama/llama-3.1-8b")


async def test_an_encoded_slash_is_a_slash(client: httpx.AsyncClient) -> None:
    assert 200 == (await client.get("/catalog/models/Qwen%2FQwen3-8B")).status_code


async def test_a_law_says_its_formula_inputs_units_and_source(client: httpx.AsyncClient) -> None:
    law = await listed(client, "/catalog/laws/laws.weights.blocks")

    assert ("weights", "bytes") == (law["topic"], law["unit"])
    assert "gguf" in law["source"]
    assert {"elements", "block_elements", "block_bytes"} == {entry["name"] for entry in law["inputs"]}


async def test_every_law_has_words_and_a_source(client: httpx.AsyncClient) -> None:
    for law in (await listed(client, "/catalog/laws?limit=500"))["items"]:
        assert law["summary"], law["id"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "sort=colour",
        "cursor=!!",
        "cursor=AAAA",
        "colour=red",
        "limit=1&limit=2",
        "min_tdp_watts=x",
    ],
)  # fmt: skip
async def test_a_wrong_parameter_is_a_422(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"/catalog/gpus?{query}")

    assert (422, "application/problem+json") == (answer.status_code, answer.headers["content-type"])


async def test_a_cursor_of_another_list_is_harmless(client: httpx.AsyncClient) -> None:
    cursor = (await listed(client, "/catalog/gpus?sort=memory_usable_bytes&limit=2"))["next"].partition("cursor=")[2]

    assert 422 == (await client.get(f"/catalog/models?sort=family&cursor={cursor}")).status_code


@pytest.mark.parametrize(
    "path", ["/catalog/gpus/h100-sxn", "/catalog/models/nobody/nothing", "/catalog/laws/x", "/catalog/colours"]
)
async def test_what_is_not_there_is_a_404(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(f"/catalog/{path}")

    assert (404, "application/problem+json") == (answer.status_code, answer.headers["content-type"])


async def test_a_near_name_is_offered(client: httpx.AsyncClient) -> None:
    problem = (await client.get("/catalog/gpus/h100-sxn")).json()

    assert "h100-sxm" in problem["errors"][0]["did_you_mean"]


@pytest.mark.parametrize(
    "path", ["/catalog", "/catalog/gpus", "/catalog/gpus/h100-sxm", "/openapi.json", "/docs", "/estimate?parameters=1"]
)
async def test_who_has_the_answer_gets_a_304(client: httpx.AsyncClient, path: str) -> None:
    first = await client.get(path)
    tag = first.headers["etag"]
    for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = await client.get(path, headers={"if-none-match": sent})
        assert (304, b"", tag) == (again.status_code, again.content, again.headers["etag"])
    assert 200 == (await client.get(path, headers={"if-none-match": '"other"'})).status_code


async def test_a_tag_does_not_turn_a_404_into_a_304(client: httpx.AsyncClient) -> None:
    assert 404 == (await client.get("/catalog/gpus/none", headers={"if-none-match": "*"})).status_code


async def test_each_media_type_has_its_own_tag(client: httpx.AsyncClient) -> None:
    kinds = ["application/json", "application/vnd.msgpack", "text/csv"]
    tags = {(await client.get("/catalog/gpus", headers={"accept": kind})).headers["etag"] for kind in kinds}

    assert 3 == len(tags)


async def test_a_list_can_be_had_as_csv_and_messagepack(client: httpx.AsyncClient) -> None:
    page = await listed(client, "/catalog/gpus?limit=5")
    table = await client.get("/catalog/gpus?limit=5", headers={"accept": "text/csv"})
    packed = await client.get("/catalog/gpus?limit=5", headers={"accept": "application/vnd.msgpack"})
    rows = list(csv.DictReader(io.StringIO(table.text)))

    assert [row["id"] for row in page["items"]] == [row["id"] for row in rows]
    assert page == msgspec.msgpack.decode(packed.content)
    assert "text/csv; charset=utf-8" == table.headers["content-type"]


async def test_an_entry_cannot_be_had_as_csv(client: httpx.AsyncClient) -> None:
    assert 406 == (await client.get("/catalog/gpus/h100-sxm", headers={"accept": "text/csv"})).status_code
