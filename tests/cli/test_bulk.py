"""`tonnage bulk`: the bytes of a batch over HTTP, or tables with the figures one orders by."""

import csv
import fcntl
import importlib.util
import json
import os
import pty
import re
import subprocess
import sys

import httpx
import pytest

from tonnage.api.app import create_app
from tonnage.api.settings import Settings
from tonnage.cli.progress import Progress

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
CARDS = [
    {"model": LLAMA, "serving": {"engine": "vllm", "max_model_len": length}, "placement": {"gpu": gpu}}
    for length in (2048, 8192)
    for gpu in ("l40s", "h100-sxm", "t4")
]
COUNTED = re.compile(rb"cards \[#*\.*\] ([\d,]+) of 8,000 \(\d+ %\), ")


@pytest.fixture
def cards(tmp_path):
    lines = [json.dumps(card) for card in CARDS]
    lines[2:2] = ['{"model": "nobody/nothing"}', "", "{", '{"modle": "x"}']
    (tmp_path / "cards.ndjson").write_text("\n".join(lines) + "\n")
    return tmp_path / "cards.ndjson"


async def over_http(path, body, **query):
    app = create_app(Settings(access_log=False, deadline_seconds=600))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://tonnage.test") as client:
        headers = {"content-type": "application/x-ndjson", "accept": "application/x-ndjson"}
        return (await client.post(path, content=body, params=query, headers=headers)).content


async def test_lines_are_those_of_a_batch_over_http(tonnage, cards, tmp_path):
    ended = tonnage("bulk", cards, tmp_path / "out.ndjson")

    assert (1, "tonnage: 3 cards are not answered; their places say why\n") == (ended.code, ended.err)
    assert await over_http("/estimate", cards.read_bytes()) == (tmp_path / "out.ndjson").read_bytes()


async def test_chosen_fields_and_fits_too(tonnage, tmp_path):
    question = {"model": {"parameters": 7_000_000_000}, "reserve": "6 GiB", "offer": {"gpus": ["rtx-4090"]}}
    (tmp_path / "cards.ndjson").write_text(json.dumps(question) + "\n")

    ended = tonnage(
        "bulk", tmp_path / "cards.ndjson", tmp_path / "out.ndjson", "--fit", "--fields", "considered,digest"
    )

    assert 0 == ended.code
    body = (tmp_path / "cards.ndjson").read_bytes()
    assert await over_http("/fit", body, fields="considered,digest") == (tmp_path / "out.ndjson").read_bytes()


def test_processes_change_nothing(tonnage, tmp_path):
    (tmp_path / "cards.ndjson").write_text("\n".join(json.dumps(card) for card in CARDS * 200))

    tonnage("bulk", tmp_path / "cards.ndjson", tmp_path / "one.ndjson", "--fields", "digest")
    tonnage("bulk", tmp_path / "cards.ndjson", tmp_path / "two.ndjson", "--fields", "digest", "--workers", "2")

    assert (tmp_path / "one.ndjson").read_bytes() == (tmp_path / "two.ndjson").read_bytes()
    assert 1200 == len((tmp_path / "two.ndjson").read_text().splitlines())


@pytest.fixture
def table(tmp_path):
    rows = [["team", "model", "engine", "max_model_len", "gpu"]]
    rows += [
        ["a", LLAMA, "vllm", 8192, "l40s"],
        ["b", LLAMA, "vllm", 8192, "t4"],
        ["c", "nobody/nothing", "", "", "l40s"],
    ]
    with (tmp_path / "cards.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return tmp_path / "cards.csv"


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_has_one_column_a_field(tonnage, table, tmp_path):
    ended = tonnage("bulk", table, tmp_path / "out.csv", "--keep", "team", "--fields", "kv_cache")
    rows = rows_of(tmp_path / "out.csv")

    assert 1 == ended.code
    assert ["met", "excluded", ""] == [row["verdict"] for row in rows]
    assert ["a", "b", "c"] == [row["team"] for row in rows]
    assert "unknown model" in rows[2]["problem"]
    assert 131_072 == json.loads(rows[0]["answer"])["kv_cache"]["bytes_per_token"]
    assert int(rows[0]["usable_bytes"]) - int(rows[0]["required_expected_bytes"]) == int(
        rows[0]["headroom_expected_bytes"]
    )


def test_the_digest_of_a_row_is_that_of_its_card(tonnage, table, tmp_path):
    tonnage("bulk", table, tmp_path / "out.csv", "--keep", "team")
    alone = tonnage("estimate", LLAMA, "engine=vllm", "max_model_len=8192", "gpu=l40s", "--format", "json").out

    assert json.loads(alone)["digest"] == rows_of(tmp_path / "out.csv")[0]["digest"]


def test_lines_can_become_a_table_and_a_table_lines(tonnage, cards, table, tmp_path):
    tonnage("bulk", cards, tmp_path / "out.csv")
    tonnage("bulk", table, tmp_path / "out.ndjson", "--keep", "team")

    assert [str(n) for n in (1, 2, 3, 5, 6, 7, 8, 9, 10)] == [row["line"] for row in rows_of(tmp_path / "out.csv")]
    assert 3 == len((tmp_path / "out.ndjson").read_text().splitlines())


def test_a_column_may_hold_whole_cards(tonnage, tmp_path):
    with (tmp_path / "cards.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["name", "card"], ["one", json.dumps(CARDS[0])]])

    tonnage("bulk", tmp_path / "cards.csv", tmp_path / "out.csv", "--keep", "name")

    assert [("one", "met")] == [(row["name"], row["verdict"]) for row in rows_of(tmp_path / "out.csv")]


def test_a_fit_gives_what_to_order(tonnage, tmp_path):
    (tmp_path / "cards.csv").write_text(
        "model.parameters,reserve,duration,providers\n7000000000,6 GiB,3 days,iteragpu\n"
    )

    tonnage("bulk", tmp_path / "cards.csv", tmp_path / "out.csv", "--fit")
    (row,) = rows_of(tmp_path / "out.csv")

    assert ("needs_confirmation", "iteragpu:rtx-4090:1x:3d", "47.14") == (
        row["status"], row["first_sku"], row["price_for_duration"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cards.csv", "out.csv"), "column 'team' is no field; --keep team"),
        (("cards.csv", "out.csv", "--keep", "team,group"), "no column 'group'"),
        (("cards.csv", "out.xlsx", "--keep", "team"), "out.xlsx is none of"),
        (("cards.txt", "out.csv"), "cards.txt is none of"),
        (("nowhere.csv", "out.csv"), "nowhere.csv"),
        (("cards.csv", "out.csv", "--fields", "nothing"), "the answer has no field 'nothing'"),
    ],
)
def test_refusals_come_before_any_work(tonnage, table, tmp_path, words, said):
    ended = tonnage("bulk", tmp_path / words[0], tmp_path / words[1], *words[2:])

    assert 1 == ended.code
    assert said in ended.err
    assert not (tmp_path / "out.csv").exists()


def test_parquet_keeps_its_types(tonnage, tmp_path):
    if importlib.util.find_spec("pyarrow") is None:
        pytest.skip("not run: pyarrow is not installed (extra tonnage[parquet])")
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    columns = {"model": [LLAMA, None], "engine": ["vllm", None], "max_model_len": [8192, None], "team": [7, 8]}
    parquet.write_table(arrow.table({**columns, "card": [None, json.dumps(CARDS[0])]}), tmp_path / "cards.parquet")

    ended = tonnage("bulk", tmp_path / "cards.parquet", tmp_path / "out.parquet", "--keep", "team")
    out = parquet.read_table(tmp_path / "out.parquet")

    assert 0 == ended.code, ended.err
    assert ["int64", "int64"] == [str(out.schema.field(name).type) for name in ("team", "required_low_bytes")]
    assert [None, "met"] == out["verdict"].to_pylist()
    assert [7, 8] == out["team"].to_pylist()


def test_without_pyarrow_parquet_names_the_extra(tonnage, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "cards.parquet").write_bytes(b"")

    assert "tonnage[parquet]" in tonnage("bulk", tmp_path / "cards.parquet", tmp_path / "out.csv").err


def test_ray_gives_the_same_bytes(process, cards, tmp_path):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("not run: ray is not installed (extra tonnage[ray])")
    process("bulk", cards, tmp_path / "one.ndjson")

    ended = process("bulk", cards, tmp_path / "two.ndjson", "--ray")

    assert 1 == ended.code, ended.err
    assert (tmp_path / "one.ndjson").read_bytes() == (tmp_path / "two.ndjson").read_bytes()


@pytest.mark.timeout(900)
def test_ray_gives_the_same_bytes_of_a_hundred_thousand_cards(process, tmp_path):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("not run: ray is not installed (extra tonnage[ray])")
    models = ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-8B-Instruct"]
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    numbers = range(100_000)
    columns = {
        "model": [models[number % 4] for number in numbers],
        "engine": ["vllm"] * len(numbers),
        "gpu": ["h100-sxm"] * len(numbers),
        "max_model_len": [2048 + number % 1000 for number in numbers],
        "concurrency": [1 + number % 7 for number in numbers],
    }
    parquet.write_table(arrow.table(columns), tmp_path / "cards.parquet")
    process("bulk", tmp_path / "cards.parquet", tmp_path / "one.parquet")

    ended = process("bulk", tmp_path / "cards.parquet", tmp_path / "two.parquet", "--ray")

    assert 0 == ended.code, ended.err
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    assert [100_000, 0] == [parquet.read_metadata(tmp_path / "one.parquet").num_rows, null_verdicts(tmp_path)]


def null_verdicts(folder):
    import pyarrow.parquet as parquet

    return parquet.read_table(folder / "one.parquet", columns=["verdict"])["verdict"].null_count


def test_progress_tells_count_share_and_speed():
    progress = Progress("cards", 200)
    assert "cards 3 s" == progress.line(3)
    progress.advance(50)
    assert "cards [#####...............] 50 of 200 (25 %), 25 a second, 6 s left" == progress.line(2)


def test_where_the_number_is_not_known_progress_tells_what_it_knows():
    progress = Progress("cards")
    progress.advance(50)
    assert "cards 50, 25 a second" == progress.line(2)


def test_a_terminal_is_told_what_takes_longer_than_a_second(tmp_path):
    """A terminal of one's own, and what stands on it: nobody takes the answers from the pipe before the line is there."""
    card = json.dumps(CARDS[0])
    lines = [card.replace("2048", str(2048 + number)) for number in range(8000)]
    (tmp_path / "cards.ndjson").write_text("\n".join(lines))
    os.mkfifo(tmp_path / "out.ndjson")
    files = [str(tmp_path / "cards.ndjson"), str(tmp_path / "out.ndjson")]
    command = [sys.executable, "-m", "tonnage", "bulk", *files, "--fields", "verdict"]
    terminal, end = pty.openpty()
    with subprocess.Popen(command, stderr=end, stdout=subprocess.DEVNULL) as process:
        os.close(end)
        with (tmp_path / "out.ndjson").open("rb") as answers:
            fcntl.fcntl(answers, fcntl.F_SETPIPE_SZ, 65_536)  # some kernels' pipes hold all of it
            shown = b""
            while not COUNTED.search(shown) and (part := read_or_end(terminal)):
                shown += part
            received = answers.read()
        while part := read_or_end(terminal):
            shown += part
    os.close(terminal)
    counts = [int(count.replace(b",", b"")) for count in COUNTED.findall(shown)]

    assert 0 == process.returncode
    assert counts
    assert sorted(counts) == counts
    assert 0 < counts[0] < 8000
    assert shown.endswith(b"\r\x1b[K")
    assert 8000 == received.count(b"\n")


def read_or_end(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux: the other end is closed
        return b""


def test_nothing_is_shown_where_nobody_looks(process, cards, tmp_path):
    ended = process("bulk", cards, tmp_path / "out.ndjson")

    assert "" == ended.out
    assert 1 == ended.err.count("\n")
