"""Facts that change under a running service; broken ones change nothing."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.conftest import Server
from tests.api.conftest import in_process
from tests.waiting import SECONDS, until

from tonnage.adapters.shared_catalog import SnapshotError, files_of, publish, withdraw, write_files
from tonnage.api.access import new_key
from tonnage.api.app import Application, create_app
from tonnage.api.reload import Watch
from tonnage.api.settings import Settings

GOOD = """
[[gpu]]
id = "example-gpu"
name = "Example"
vendor = "nvidia"
memory_nominal_bytes = 1000000000
memory_usable_bytes = 900000000
source = "test"
"""


def application(**settings: Any) -> Application:
    return create_app(Settings(access_log=False, **settings))


async def knows(app: Application, gpu: str) -> bool:
    async with in_process(app) as client:
        return (await client.get(f"/catalog/gpus/{gpu}")).status_code == 200


async def metric(app: Application, name: str) -> float:
    async with in_process(app) as client:
        text = (await client.get("/metrics")).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def touched(path: Path, text: str) -> None:
    path.write_text(text)
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000_000))


async def test_a_new_overlay_is_taken_over(tmp_path: Path) -> None:
    app = application(catalog_dir=str(tmp_path))
    watch = Watch(app.runtime)
    before = app.runtime.desk.sizing.version
    assert not await knows(app, "example-gpu")
    touched(tmp_path / "gpus.toml", GOOD)
    await watch.look()

    assert await knows(app, "example-gpu")
    assert before != app.runtime.desk.sizing.version


@pytest.mark.parametrize("broken", ["nonsense", GOOD + "colour = 'red'\n", GOOD.replace("900000000", "'many'"), "\x00"])
async def test_a_broken_overlay_leaves_the_old_catalogue(tmp_path: Path, broken: str) -> None:
    touched(tmp_path / "gpus.toml", GOOD)
    app = application(catalog_dir=str(tmp_path))
    watch = Watch(app.runtime)
    touched(tmp_path / "gpus.toml", broken)
    await watch.look()
    await watch.look()

    assert await knows(app, "example-gpu")
    assert 1 == await metric(app, "tonnage_catalog_reload_errors_total")


async def test_a_mended_overlay_is_taken_over_after_a_broken_one(tmp_path: Path) -> None:
    app = application(catalog_dir=str(tmp_path))
    watch = Watch(app.runtime)
    for text in ("nonsense", GOOD):
        touched(tmp_path / "gpus.toml", text)
        await watch.look()

    assert await knows(app, "example-gpu")


async def test_the_tag_of_a_list_changes_with_the_catalogue(tmp_path: Path) -> None:
    app = application(catalog_dir=str(tmp_path))
    watch = Watch(app.runtime)
    async with in_process(app) as client:
        tag = (await client.get("/catalog/gpus")).headers["etag"]
        touched(tmp_path / "gpus.toml", GOOD)
        await watch.look()

        assert 200 == (await client.get("/catalog/gpus", headers={"if-none-match": tag})).status_code


async def test_new_keys_are_taken_over_and_broken_ones_are_not(tmp_path: Path) -> None:
    old, old_line = new_key("old", "read")
    new, new_line = new_key("new", "read")
    file = tmp_path / "keys"
    file.write_text(old_line)
    app = application(api_keys_file=str(file))
    watch = Watch(app.runtime)

    async def statuses() -> list[int]:
        async with in_process(app) as client:
            return [
                (await client.get("/catalog", headers={"authorization": f"Bearer {key}"})).status_code
                for key in (old, new)
            ]

    assert [200, 401] == await statuses()
    touched(file, f"{old_line}\n{new_line}")
    await watch.look()
    assert [200, 200] == await statuses()
    touched(file, new_line + "\n#")
    await watch.look()
    assert [401, 200] == await statuses()
    touched(file, "nonsense")
    await watch.look()
    assert [401, 200] == await statuses()


async def test_a_published_overlay_reaches_every_replica_and_can_be_withdrawn(
    start_server: Any, tmp_path: Path
) -> None:
    server: Server = start_server()
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay" / "gpus.toml").write_text(GOOD)
    replicas = [application(redis_url=server.url, redis_timeout_seconds=SECONDS) for _ in range(2)]
    watches = [Watch(app.runtime) for app in replicas]
    for app in replicas:
        app.runtime.link.start()
    await until(lambda: all(app.runtime.link.usable for app in replicas))
    client = replicas[0].runtime.link._client

    await publish(client, files_of(tmp_path / "overlay"))
    for watch in watches:
        await watch.look()
    assert [True, True] == [await knows(app, "example-gpu") for app in replicas]

    server.client().flushall()
    for watch in watches:
        await watch.look()
    assert [True, True] == [await knows(app, "example-gpu") for app in replicas]

    await withdraw(client)
    for watch in watches:
        await watch.look()
    assert [False, False] == [await knows(app, "example-gpu") for app in replicas]
    for app in replicas:
        await app.runtime.link.close()


@pytest.mark.parametrize("garbage", ["snapshot", "facts", "type"])
async def test_a_broken_published_overlay_changes_nothing(start_server: Any, tmp_path: Path, garbage: str) -> None:
    server: Server = start_server()
    app = application(redis_url=server.url, redis_timeout_seconds=SECONDS)
    watch = Watch(app.runtime)
    app.runtime.link.start()
    await until(lambda: app.runtime.link.usable)
    before = app.runtime.desk.sizing.version
    revision = await publish(
        app.runtime.link._client, {"gpus.toml": b"nonsense" if garbage == "facts" else GOOD.encode()}
    )
    if garbage == "snapshot":
        server.client().set(f"tonnage:catalog:snapshot:{revision}", b"\xff" * 100)
    if garbage == "type":
        server.client().delete("tonnage:catalog:revision")
        server.client().lpush("tonnage:catalog:revision", "x")
    await watch.look()

    assert before == app.runtime.desk.sizing.version
    assert 1 == await metric(app, "tonnage_catalog_reload_errors_total")
    await app.runtime.link.close()


@pytest.mark.parametrize("lost", ["snapshot", "disk"])
async def test_a_published_overlay_that_could_not_be_read_is_read_once_it_can(
    start_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    server: Server = start_server()
    app = application(redis_url=server.url, redis_timeout_seconds=SECONDS)
    watch = Watch(app.runtime)
    app.runtime.link.start()
    await until(lambda: app.runtime.link.usable)
    revision = await publish(app.runtime.link._client, {"gpus.toml": GOOD.encode()})
    name = f"tonnage:catalog:snapshot:{revision}"
    with monkeypatch.context() as patch:
        if lost == "snapshot":
            server.client().rename(name, "elsewhere")
        else:
            patch.setattr("tonnage.api.reload.write_files", full_disk)
        await watch.look()
    assert not await knows(app, "example-gpu")
    assert 1 == await metric(app, "tonnage_catalog_reload_errors_total")

    if lost == "snapshot":
        server.client().rename("elsewhere", name)
    await watch.look()

    assert await knows(app, "example-gpu")
    await app.runtime.link.close()


def full_disk(files: object, folder: Path) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_refused_overlay_does_not_count_as_current(start_server: Any) -> None:
    server: Server = start_server()
    app = application(redis_url=server.url, redis_timeout_seconds=SECONDS)
    watch = Watch(app.runtime)
    app.runtime.link.start()
    await until(lambda: app.runtime.link.usable)
    await publish(app.runtime.link._client, {"gpus.toml": b"nonsense"})
    found = watch._found_current
    for _ in range(3):
        await watch.look()

    assert found == watch._found_current
    assert 1 == await metric(app, "tonnage_catalog_reload_errors_total")
    await app.runtime.link.close()


@pytest.mark.parametrize("name", ["../evil.toml", "/etc/evil.toml", "a/../../evil.toml", "evil.py"])
def test_a_snapshot_writes_nothing_outside_its_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(SnapshotError):
        write_files({name: b""}, tmp_path)


class Mounted:
    """A directory as the kubelet mounts a ConfigMap or a Secret: new content comes by one exchange of a link."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.count = folder, name, 0
        folder.mkdir()

    def holds(self, text: str) -> Path:
        self.count += 1
        version = self.folder / f"..2026_11_30_{self.count}"
        version.mkdir()
        (version / self.name).write_text(text)
        before = self.folder / "..data"
        (self.folder / "..data_tmp").symlink_to(version.name)
        old = before.resolve() if before.is_symlink() else None
        (self.folder / "..data_tmp").rename(before)
        if old is None:
            (self.folder / self.name).symlink_to(f"..data/{self.name}")
        else:
            (old / self.name).unlink()
            old.rmdir()
        return self.folder / self.name


async def test_a_mounted_config_map_and_secret_are_taken_over_when_they_change(tmp_path: Path) -> None:
    overlay, secret = Mounted(tmp_path / "catalog", "gpus.toml"), Mounted(tmp_path / "auth", "keys")
    (first, first_line), (second, second_line) = new_key("one", "read"), new_key("two", "read")
    overlay.holds(GOOD)
    keys = secret.holds(first_line)
    app = application(catalog_dir=str(tmp_path / "catalog"), api_keys_file=str(keys))
    watch = Watch(app.runtime)

    async def status(token: str, gpu: str) -> int:
        async with in_process(app) as client:
            return (await client.get(f"/catalog/gpus/{gpu}", headers={"authorization": f"Bearer {token}"})).status_code

    assert [200, 401] == [await status(first, "example-gpu"), await status(second, "example-gpu")]
    overlay.holds(GOOD.replace("example-gpu", "another-gpu"))
    secret.holds(second_line)
    await watch.look()

    assert [401, 200] == [await status(first, "another-gpu"), await status(second, "another-gpu")]
    assert 404 == await status(second, "example-gpu")
