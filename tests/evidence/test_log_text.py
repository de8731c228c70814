"""Pasted engine texts give their numbers, and say what was not understood."""

import json
from pathlib import Path

import pytest

from tonnage.evidence import log_text

SAMPLES = json.loads((Path(__file__).parent / "log_samples.json").read_text())["samples"]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s["id"])
def test_every_published_layout_is_read_to_the_byte(sample):
    reading = log_text.read("\n".join(sample["text"]))
    found = reading.numbers | ({"phase": reading.phase} if reading.phase else {})

    assert sample["expected"] == {k: found.get(k) for k in sample["expected"]}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s["id"])
def test_nothing_is_read_that_is_not_there(sample):
    reading = log_text.read("\n".join(sample["text"]))

    assert set() == set(reading.numbers) - set(sample["expected"])
    assert () == reading.unread


def test_a_line_that_no_layout_knows_is_said_to_be_unread():
    reading = log_text.read("frobnicator: wants 12.5 GiB of scratch\nhello")

    assert {} == reading.numbers
    assert ("frobnicator: wants 12.5 GiB of scratch",) == reading.unread


def test_binary_amounts_are_binary_whatever_the_engine_calls_them():
    assert 16343424303 == round(log_text.amount("15.2210", "GB"))
    assert 21_300_000_000 == log_text.read("Memory used: 21.30 GB").numbers["peak_allocated_bytes"]


def test_the_largest_peak_of_several_lines_counts():
    lines = "\n".join(f"MA 1.0 GB Max_MA {n}.0 GB CA 2.0 GB Max_CA {n} GB" for n in (3, 9, 4))

    assert 9 * 2**30 == log_text.read(lines).numbers["peak_allocated_bytes"]


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("  loss.backward()\n  return self.forward(x)\nTried to allocate 2.00 GiB", "backward"),
        ("self.optimizer.step()\nTried to allocate 2.00 GiB", "optimizer_step"),
        ("model = AutoModel.from_pretrained(name)\nTried to allocate 2.00 GiB", "load"),
        ("nothing known", None),
    ],
)
def test_the_phase_comes_from_the_frame_that_gives_it_away(frame, expected):
    assert expected == log_text.read(frame).phase


@pytest.mark.parametrize(
    "text",
    [
        "Tried to allocate " + "9" * 19_000,
        "Memory profiling results " + "total_gpu_memory=1GiB" * 900,
        "memory_breakdown_print | - " + " " * 19_000,
        "llama model buffer size CUDA0 model buffer size = " + " " * 19_000,
        "Process 1 has 1 GiB memory in use. " * 560,
        "MiB / " * 3_000,
        "Load weight end. " + "TP1" * 6_000,
        "1" * 20_000 + "\x00",
        "\n" * 20_000,
    ],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_hostile_text_is_read_to_its_end(text):
    log_text.read(text)
