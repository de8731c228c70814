"""The Hub is asked carefully: one host, bounded bodies and time, and what failed is remembered."""

import asyncio
import json
import logging

import msgspec
import pytest
from tests.adapters.hub_server import COMMIT, CONFIG, running_hub
from tests.waiting import SECONDS, until

from tonnage.adapters.hub import Hub, HubSettings, checked_endpoint
from tonnage.adapters.hub_shared import RedisHubCache
from tonnage.adapters.redis_link import LinkSettings, RedisLink
from tonnage.errors import MissingFact, SourceUnavailable, UnknownName
from tonnage.spec.hub import HubModel

NAME = "org/tiny"
PATIENT = {"connect_seconds": SECONDS, "total_seconds": SECONDS}
CONFIG_PATH = f"/{NAME}/resolve/main/config.json"
INDEX_PATH = f"/{NAME}/resolve/main/model.safetensors.index.json"


class Clock:
    """Time that passes when the test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def server():
    async with running_hub() as hub:
        yield hub


@pytest.fixture
async def hub_of(server):
    made = []

    def make(**settings):
        shared, clock = settings.pop("shared", None), settings.pop("clock", Clock())
        made.append(Hub(HubSettings(endpoint=server.endpoint, **PATIENT | settings), shared=shared, clock=clock))
        return made[-1]

    yield make
    for hub in made:
        await hub.close()


async def test_config_sizes_commit_and_licence_are_read(server, hub_of):
    server.add_repository(NAME, elements=1000)
    model = await hub_of().model(NAME)
    assert CONFIG == model.config
    assert (COMMIT, 1000, 2000, "mit") == (model.revision, model.parameters, model.weight_bytes, model.licence)
    assert INDEX_PATH not in server.paths


async def test_without_a_description_the_index_gives_the_bytes(server, hub_of):
    server.serve(CONFIG_PATH, json.dumps(CONFIG).encode())
    server.serve(INDEX_PATH, b'{"metadata": {"total_size": 123456}, "weight_map": {"a": "b"}}')
    model = await hub_of().model(NAME)
    assert (None, 123456, "main") == (model.parameters, model.weight_bytes, model.revision)


async def test_a_config_alone_is_enough(server, hub_of):
    server.serve(CONFIG_PATH, json.dumps(CONFIG).encode())
    assert (await hub_of().model(NAME)).weight_bytes is None


async def test_packed_dtypes_count_their_own_bytes(server, hub_of):
    server.add_repository(NAME)
    listing = {"safetensors": {"parameters": {"I32": 10, "F16": 4, "F8_E4M3": 3, "F4": 3}}}
    path = next(path for path in server.routes if path.startswith("/api"))
    server.serve(path, json.dumps(listing).encode())
    assert 40 + 8 + 3 + 2 == (await hub_of().model(NAME)).weight_bytes


async def test_a_revision_is_asked_for_as_one_path_segment(server, hub_of):
    server.add_repository(NAME, revision="refs%2Fpr%2F1")
    assert COMMIT == (await hub_of().model(NAME, "refs/pr/1")).revision


async def test_answers_are_kept_until_they_are_stale(server, hub_of):
    clock = Clock()
    hub = hub_of(clock=clock, fresh_seconds=60)
    server.add_repository(NAME)
    await hub.model(NAME)
    await hub.model(NAME)
    assert 1 == server.paths.count(CONFIG_PATH)
    clock.now += 61
    await hub.model(NAME)
    assert 2 == server.paths.count(CONFIG_PATH)


async def test_a_commit_never_goes_stale(server, hub_of):
    clock = Clock()
    hub = hub_of(clock=clock)
    server.add_repository(NAME, revision=COMMIT)
    await hub.model(NAME, COMMIT)
    clock.now += 1e9
    await hub.model(NAME, COMMIT)
    assert 2 == len(server.requests)


async def test_many_callers_make_one_request(server, hub_of):
    server.add_repository(NAME)
    server.delay = 0.05
    hub = hub_of()
    models = await asyncio.gather(*(hub.model(NAME) for _ in range(20)))
    assert 20 == len(models)
    assert 1 == server.paths.count(CONFIG_PATH)


async def test_a_caller_that_gives_up_leaves_the_request_to_the_others(server, hub_of):
    server.add_repository(NAME)
    server.delay = 0.1
    hub = hub_of()
    impatient = asyncio.create_task(hub.model(NAME))
    patient = asyncio.create_task(hub.model(NAME))
    await until(lambda: server.requests)
    impatient.cancel()
    assert CONFIG == (await patient).config


async def test_only_so_many_repositories_are_remembered(server, hub_of):
    hub = hub_of(kept=2)
    for number in range(4):
        server.add_repository(f"org/m{number}")
        await hub.model(f"org/m{number}")
    await hub.model("org/m3")
    await hub.model("org/m0")
    assert 1 == server.paths.count("/org/m3/resolve/main/config.json")
    assert 2 == server.paths.count("/org/m0/resolve/main/config.json")


async def test_a_repository_that_is_not_there_is_remembered_as_such(server, hub_of):
    clock = Clock()
    hub = hub_of(clock=clock, refused_seconds=100)
    for _ in range(3):
        with pytest.raises(UnknownName, match=r"org/tiny is not on the Hub; pass its config\.json"):
            await hub.model(NAME)
    assert 1 == len(server.requests)
    clock.now += 101
    server.add_repository(NAME)
    assert CONFIG == (await hub.model(NAME)).config


@pytest.mark.parametrize(
    ("code", "message"), [("RevisionNotFound", "has no such revision"), ("EntryNotFound", "has no config.json")]
)
async def test_what_is_missing_is_named(server, hub_of, code, message):
    server.serve(CONFIG_PATH, b"", {"x-error-code": code}, status=404)
    with pytest.raises(UnknownName, match=message):
        await hub_of().model(NAME)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_gated_repository_is_a_missing_fact(server, hub_of, status):
    server.serve(CONFIG_PATH, b"gated", status=status)
    with pytest.raises(MissingFact, match="private or gated"):
        await hub_of().model(NAME)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_failing_hub_is_unavailable_and_not_asked_again_at_once(server, hub_of, status):
    clock = Clock()
    hub = hub_of(clock=clock, failed_seconds=5)
    server.serve(CONFIG_PATH, b"", status=status)
    for _ in range(3):
        with pytest.raises(SourceUnavailable, match=str(status)):
            await hub.model(NAME)
    assert 1 == len(server.requests)
    clock.now += 6
    server.add_repository(NAME)
    assert CONFIG == (await hub.model(NAME)).config


async def test_a_redirect_within_the_host_is_followed(server, hub_of):
    server.add_repository(NAME)
    server.serve(CONFIG_PATH, b"", {"location": "/api/resolve-cache/config.json"}, status=307)
    server.serve("/api/resolve-cache/config.json", json.dumps(CONFIG).encode())
    assert CONFIG == (await hub_of().model(NAME)).config


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.2:80/config.json", "https://elsewhere.example/config.json", "//elsewhere.example/config.json",
        "http://localhost:1/", "ftp://127.0.0.1/x", "file:///etc/passwd", "http://169.254.169.254/latest/meta-data",
    ],
)  # fmt: skip
async def test_a_redirect_to_another_host_is_refused(server, hub_of, location):
    server.serve(CONFIG_PATH, b"", {"location": location}, status=302)
    with pytest.raises(SourceUnavailable, match="redirects to another host"):
        await hub_of(token="secret-token").model(NAME)
    assert 1 == len(server.requests)


async def test_redirects_in_circles_end(server, hub_of):
    server.serve(CONFIG_PATH, b"", {"location": CONFIG_PATH}, status=302)
    with pytest.raises(SourceUnavailable, match="in circles"):
        await hub_of(redirects=3).model(NAME)
    assert 4 == len(server.requests)


@pytest.mark.parametrize("stated", [True, False])
async def test_an_oversized_body_is_refused_whether_its_length_is_stated_or_not(server, hub_of, stated):
    body = b'{"model_type": "' + b"x" * 5000 + b'"}'
    headers = {} if stated else {"content-length": None, "connection": "close"}
    server.serve(CONFIG_PATH, body, headers)
    with pytest.raises(MissingFact, match="larger than 1000 bytes"):
        await hub_of(config_bytes=1000).model(NAME)


async def test_a_compressed_body_is_not_unpacked(server, hub_of):
    server.serve(CONFIG_PATH, b"\x1f\x8b...", {"content-encoding": "gzip"})
    with pytest.raises(SourceUnavailable, match="encoding"):
        await hub_of().model(NAME)


async def test_a_slow_hub_is_given_up(server, hub_of):
    server.add_repository(NAME)
    server.delay = 10 * SECONDS
    with pytest.raises(SourceUnavailable, match="in time"):
        await hub_of(total_seconds=0.2).model(NAME)


async def test_a_hub_that_is_not_there_is_unavailable(hub_of):
    hub = Hub(HubSettings(endpoint="http://127.0.0.1:9", **PATIENT))
    with pytest.raises(SourceUnavailable, match="does not answer"):
        await hub.model(NAME)
    await hub.close()


@pytest.mark.parametrize("body", [b"<html>login</html>", b"", b"{", b"\xff\xfe", b"[" * 100_000])
async def test_garbage_is_not_a_config(server, hub_of, body):
    server.serve(CONFIG_PATH, body)
    with pytest.raises(SourceUnavailable, match="not JSON"):
        await hub_of().model(NAME)


@pytest.mark.parametrize("body", [b"[]", b"null", b"3", b'"x"'])
async def test_json_that_is_no_object_is_no_config(server, hub_of, body):
    server.serve(CONFIG_PATH, body)
    with pytest.raises(MissingFact, match="not an object"):
        await hub_of().model(NAME)


@pytest.mark.parametrize(
    "name",
    ["../etc/passwd", "org/../x", "org/name/extra", "org//name", "org/na--me", ".org/name", "org/name?x=1", "org/na me",
     "org/name#f", "a" * 97 + "/b", "org/name\n", "", "org/%2e%2e"],
)  # fmt: skip
async def test_a_malformed_id_never_leaves_the_process(server, hub_of, name):
    with pytest.raises(UnknownName):
        await hub_of().model(name)
    assert [] == server.requests


@pytest.mark.parametrize("revision", ["../main", "a b", "x?y", "refs//x", "-x", "main\n"])
async def test_a_malformed_revision_never_leaves_the_process(server, hub_of, revision):
    with pytest.raises(UnknownName):
        await hub_of().model(NAME, revision)
    assert [] == server.requests


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://hub.example",
        "ftp://hub.example",
        "hub.example",
        "https://user:pw@hub.example",
        "https://hub.example?x=1",
        "",
    ],
)
def test_an_endpoint_is_https_or_this_machine(endpoint):
    with pytest.raises(ValueError, match="endpoint"):
        checked_endpoint(endpoint)


async def test_the_token_goes_into_the_header_and_nowhere_else(server, hub_of, caplog):
    caplog.set_level(logging.DEBUG)
    server.add_repository(NAME)
    hub = hub_of(token="secret-token")
    model = await hub.model(NAME)
    with pytest.raises(UnknownName) as error:
        await hub.model("org/other")
    assert {"Bearer secret-token"} == {headers["authorization"] for _, headers in server.requests}
    assert "secret-token" not in caplog.text + str(model) + str(error.value) + repr(hub)


class Shared:
    """A second level that a test can fill, watch and break."""

    def __init__(self):
        self.held = {}
        self.broken = False

    async def load(self, key):
        if self.broken:
            raise TimeoutError
        return self.held.get(key)

    async def store(self, key, value, seconds):
        if self.broken:
            raise OSError
        self.held[key] = value


async def test_processes_share_what_one_of_them_read(server, hub_of):
    shared = Shared()
    server.add_repository(NAME)
    first = await hub_of(shared=shared).model(NAME)
    second = await hub_of(shared=shared).model(NAME)
    assert first == second
    assert 1 == server.paths.count(CONFIG_PATH)


@pytest.mark.parametrize("stored", [b"garbage", b"", msgspec.msgpack.encode({"id": 3})])
async def test_garbage_in_the_shared_level_is_a_miss(server, hub_of, stored):
    shared = Shared()
    shared.held[f"tonnage:hub:{NAME}@main"] = stored
    server.add_repository(NAME)
    assert CONFIG == (await hub_of(shared=shared).model(NAME)).config


async def test_a_broken_shared_level_changes_nothing(server, hub_of):
    shared = Shared()
    shared.broken = True
    server.add_repository(NAME)
    assert CONFIG == (await hub_of(shared=shared).model(NAME)).config


async def test_what_cannot_be_fetched_is_raised_when_it_is_asked_for(server, hub_of):
    server.add_repository(NAME)
    fetch = await hub_of().fetched([(NAME, None), ("org/other", None)])
    assert CONFIG == fetch(NAME, None).config
    with pytest.raises(UnknownName, match="org/other is not on the Hub") as error:
        fetch("org/other", None)
    assert "org/other" == error.value.name


async def test_what_was_fetched_answers_resolve(server, hub_of):
    server.add_repository(NAME)
    fetch = await hub_of().fetched([(NAME, None)])
    assert CONFIG == fetch(NAME, None).config


@pytest.fixture
def redis_server(start_server):
    return start_server()


@pytest.fixture
async def link(redis_server):
    made = RedisLink(LinkSettings(url=redis_server.url, timeout_seconds=SECONDS))
    made.start()
    await until(lambda: made.usable)
    yield made
    await made.close()


async def test_redis_shares_what_was_read(server, hub_of, link):
    server.add_repository(NAME)
    first = await hub_of(shared=RedisHubCache(link)).model(NAME)
    second = await hub_of(shared=RedisHubCache(link)).model(NAME)
    assert first == second
    assert 1 == server.paths.count(CONFIG_PATH)


async def test_what_others_put_into_redis_is_not_believed(server, hub_of, link, redis_server):
    redis_server.client().set(
        f"tonnage:hub:{NAME}@main", msgspec.msgpack.encode(HubModel(id="evil", revision="x", config={}))
    )
    server.add_repository(NAME)
    assert NAME == (await hub_of(shared=RedisHubCache(link)).model(NAME)).id


async def test_without_redis_the_hub_still_answers(server, hub_of):
    server.add_repository(NAME)
    dead = RedisLink(LinkSettings(url=""))
    assert CONFIG == (await hub_of(shared=RedisHubCache(dead)).model(NAME)).config
