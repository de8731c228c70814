"""
Answers beside what engines printed: the same terms, read out of an answer as JSON has it.

Used by the tests of this folder and by benchmarks/accuracy.py; needs nothing but the standard library and
an answer, so that it works on answers of the library and of the HTTP service alike.
"""

import json
import statistics
import tomllib
from collections.abc import Callable, Iterable, Iterator
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent

Answer = dict[str, Any]
Band = tuple[int, int, int]


class Row(NamedTuple):
    """One measured number beside ours."""

    engine: str
    case: str
    term: str
    measured: float
    low: float
    expected: float
    high: float
    weight: float
    total: float
    """Size of the run, which a band's width is judged by: the peak of the answer."""

    @property
    def error(self) -> float:
        """Signed error. [fraction of measured]"""
        return (self.expected - self.measured) / self.measured

    @property
    def inside(self) -> bool:
        """Whether the band holds it; printed figures are rounded to a hundredth of a GiB."""
        slack = 0.005 * 2**30 if self.term.endswith("_bytes") and self.measured > 2**20 else 0.02 * self.measured
        return self.low - slack <= self.measured <= self.high + slack


def cases(engine: str | None = None, *, kind: str = "serving") -> Iterator[tuple[str, dict[str, Any]]]:
    """Measured cases of an engine, or of all that have a file."""
    for path in sorted(HERE.glob(f"{kind}_*.json")):
        name = path.stem.removeprefix(f"{kind}_")
        if engine is None or engine == name:
            for case in json.loads(path.read_text()):
                yield name, case


def training_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Measured fine-tuning runs by framework, in the form of `cases`: one peak each, by the counter that was printed."""
    for case in json.loads((HERE / "training.json").read_text()):
        measured = case["measured"]
        peak = {f"{measured['counter']}_peak_bytes": measured["peak_bytes"]}
        yield case["request"]["training"]["framework"], case | {"measured": peak}


def heldout_training_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Training runs collected after the laws were written, in the form of `training_cases`."""
    for case in json.loads((HERE / "heldout_training.json").read_text()):
        measured = case["measured"]
        peak = {f"{measured['counter']}_peak_bytes": measured["peak_bytes"]}
        yield case["request"]["training"]["framework"], case | {"measured": peak}


def heldout_training_decisions() -> list[dict[str, Any]]:
    """Reports of fine-tuning runs that fitted or ran out of memory, collected after the laws were written."""
    found: list[dict[str, Any]] = json.loads((HERE / "heldout_training_decisions.json").read_text())["reports"]
    return found


def heldout_training_first_verdicts() -> dict[str, str]:
    """Verdict of the first version that saw each of those reports."""
    return {name: verdict for batch in _first_training_batches() for name, verdict in batch["verdicts"].items()}


def _first_training_batches() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((HERE / "heldout_training_first_score.json").read_text())["batches"]
    return found


def training_batch(name: str) -> frozenset[str]:
    """Runs and reports of a later batch, such as "held out 2": scored before anything was mended by them."""
    return _batch(_first_training_batches(), name)


def serving_batch(name: str) -> frozenset[str]:
    """Start-up logs and reports of a later batch, such as "held out 2": scored before anything was mended by them."""
    return _batch(_first_batches(), name)


def _batch(batches: list[dict[str, Any]], name: str) -> frozenset[str]:
    named = [batch for batch in batches if batch.get("name") == name]
    return frozenset(name for batch in named for name in (*batch["answers"], *batch["verdicts"]))


def heldout_training_limits() -> dict[str, Any]:
    """Errors of held-out training runs that may not grow, by group, and the runs known to lie outside their band."""
    found: dict[str, Any] = tomllib.loads((HERE / "heldout_training_limits.toml").read_text())
    return found


def heldout_training_first_score() -> Iterator[tuple[dict[str, Any], "Row"]]:
    """Held-out training runs with the answer of the first version that saw them: not what today's answer is."""
    answers = {name: band for batch in _first_training_batches() for name, band in batch["answers"].items()}
    for framework, case in heldout_training_cases():
        ((term, measured),) = case["measured"].items()
        low, expected, high, peak = answers[case["id"]]
        yield case, Row(framework, case["id"], term, measured, low, expected, high, case["weight"], peak)


def heldout_serving_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Start-up logs collected after the laws were written, in the form of `cases`."""
    for case in json.loads((HERE / "heldout_serving.json").read_text()):
        yield case["request"]["serving"]["engine"], case


def heldout_decisions() -> list[dict[str, Any]]:
    """Reports of runs that fitted or ran out of memory, collected after the laws were written."""
    found: list[dict[str, Any]] = json.loads((HERE / "heldout_decisions.json").read_text())["reports"]
    return found


def heldout_serving_limits() -> dict[str, Any]:
    """Errors of held-out start-up logs that may not grow, and what is known to be off."""
    found: dict[str, Any] = tomllib.loads((HERE / "heldout_serving_limits.toml").read_text())
    return found


def heldout_serving_first_score() -> Iterator["Row"]:
    """Held-out figures with the answer of the first version that saw them: not what today's answer is."""
    answers = {name: terms for batch in _first_batches() for name, terms in batch["answers"].items()}
    for engine, case in heldout_serving_cases():
        for term, (low, expected, high, peak) in answers[case["id"]].items():
            measured = case["measured"][term]
            yield Row(engine, case["id"], term, measured, low, expected, high, case["weight"], peak)


def heldout_first_verdicts() -> dict[str, str]:
    """Verdict of the first version that saw each held-out report."""
    return {name: verdict for batch in _first_batches() for name, verdict in batch["verdicts"].items()}


def _first_batches() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((HERE / "heldout_serving_first_score.json").read_text())["batches"]
    return found


def training_groups(found: list[tuple[dict[str, Any], "Row"]]) -> dict[str, list["Row"]]:
    """Rows of all runs, then by framework, method, sharding, counter and whether samples have one length: `framework: trl`."""
    groups: dict[str, list[Row]] = {"all": [row for _, row in found]}
    for group, of in TRAINING_GROUPS.items():
        for name in sorted({of(case) for case, _ in found}):
            groups[f"{group}: {name}"] = [row for case, row in found if of(case) == name]
    return groups


TRAINING_GROUPS: dict[str, Callable[[dict[str, Any]], str]] = {
    "framework": lambda case: str(case["request"]["training"]["framework"]),
    "method": lambda case: str(case["request"]["training"]["method"]),
    "sharding": lambda case: str(case["request"]["training"].get("sharding", "none")),
    "counter": lambda case: next(iter(case["measured"])).removesuffix("_peak_bytes"),
    "lengths": lambda case: str(case["request"]["training"].get("sequence_lengths", "varying")),
}
"""What training errors are reported by."""


def _items(answer: Answer, phase: str, components: Iterable[str], *, gpus: int = 1) -> Band | None:
    wanted = frozenset(components)
    amounts = [
        item["bytes"]
        for load in answer["gpus"][:gpus]
        for found in load["phases"]
        if found["phase"] == phase
        for item in found["items"]
        if item["component"] in wanted
    ]
    return _sum(amounts) if any(p["phase"] == phase for p in answer["gpus"][0]["phases"]) else None


_EVERY_GPU = 1_000
"""llama.cpp's buffers are stated over all devices."""


def _sum(amounts: list[dict[str, int]]) -> Band:
    expected = sum(a["expected"] for a in amounts)
    below = isqrt(sum((a["expected"] - a["low"]) ** 2 for a in amounts))
    above = isqrt(sum((a["high"] - a["expected"]) ** 2 for a in amounts))
    return expected - below, expected, expected + above


def _amount(amount: dict[str, int] | None) -> Band | None:
    return None if amount is None else (amount["low"], amount["expected"], amount["high"])


def _cache(answer: Answer, field: str) -> Band | None:
    cache = answer["kv_cache"]
    if cache is None or cache.get("pool") is None:
        return None
    value = cache[field]
    if isinstance(value, dict):
        return _amount(value)
    tokens = cache["capacity_tokens"]
    if value is None or not tokens["expected"]:
        return None
    low, high = (value * tokens[side] / tokens["expected"] for side in ("low", "high"))
    return low, value, high


def _per_token(answer: Answer) -> Band | None:
    cache = answer["kv_cache"]
    return None if cache is None else (cache["bytes_per_token"],) * 3


def _idle(answer: Answer) -> Band | None:
    totals = [p["total"]["allocated"] for p in answer["gpus"][0]["phases"] if p["phase"] == "idle"]
    return _amount(totals[0]) if totals else None


TERMS: dict[str, Callable[[Answer], Band | None]] = {
    "weights_bytes": lambda a: _items(a, "load", ("weights", "buffers", "lora_adapters")),
    "activation_peak_bytes": lambda a: _items(
        a, "profile", ("activations", "logits", "sampler", "vision_encoder", "workspace")
    ),
    "non_torch_bytes": lambda a: _items(a, "profile", ("communication", "framework")),
    "cuda_graph_bytes": lambda a: _items(a, "cuda_graph", ("cuda_graphs",)),
    "kv_pool_bytes": lambda a: _cache(a, "pool"),
    "kv_tokens": lambda a: _cache(a, "capacity_tokens"),
    "num_gpu_blocks": lambda a: _cache(a, "blocks"),
    "max_concurrency": lambda a: _cache(a, "max_concurrency"),
    "kv_bytes_per_token": _per_token,
    "kv_buffer_bytes": lambda a: _items(a, "kv_allocation", ("kv_cache",), gpus=_EVERY_GPU),
    "compute_buffer_bytes": lambda a: _items(a, "prefill", ("activations", "logits", "workspace")),
    "allocated_peak_bytes": lambda a: _amount(a["peak"]["allocated"]),
    "reserved_peak_bytes": lambda a: _amount(a["peak"]["reserved"]),
    "device_peak_bytes": lambda a: _amount(a["peak"]["device"]),
    "unstated_peak_bytes": lambda a: _amount(a["peak"]["reserved"]),
    "allocated_end_bytes": _idle,
}
"""How each measured figure is read out of an answer; see the correspondence table of the contract in docs/method.md."""


def compare(engine: str, case: dict[str, Any], answer: Answer) -> Iterator[Row]:
    """Rows of one case, by its first GPU or the one that printed; a figure that needs a card which is not stated is left out."""
    peak = answer["peak"]["device"]["expected"]
    if "printed_by_gpu" in case:
        answer = answer | {"gpus": [load for load in answer["gpus"] if case["printed_by_gpu"] in load["ranks"]]}
    for term, measured in case["measured"].items():
        band = TERMS[term](answer) if measured and term in TERMS else None
        if band is not None:
            yield Row(engine, case["id"], term, measured, *band, case.get("weight", 1.0), peak)


class Summary(NamedTuple):
    """Errors of one term."""

    cases: int
    signed_median: float
    median: float
    p90: float
    coverage: float
    half_width: float
    """Median half-width of the band. [fraction of the run's peak]"""
    too_low: float = 0.0
    """Share whose measured figure is more than a twentieth above ours. [fraction]"""


def summary(rows: list[Row]) -> Summary:
    """
    What rows of one term come to.

    Args:
        rows: At least one.

    Returns:
        Count, signed median, median and 90th percentile of the absolute error, share inside the band, width.
    """
    errors = sorted(abs(row.error) for row in rows)
    return Summary(
        cases=len(rows),
        signed_median=statistics.median(row.error for row in rows),
        median=statistics.median(errors),
        p90=errors[min(len(errors) - 1, int(0.9 * len(errors)))],
        coverage=sum(row.inside for row in rows) / len(rows),
        half_width=statistics.median(_half_width(row) for row in rows),
        too_low=sum(row.error < -0.05 for row in rows) / len(rows),
    )


def _half_width(row: Row) -> float:
    base = row.total if row.term.endswith("_bytes") and row.term != "kv_bytes_per_token" else row.measured
    return (row.high - row.low) / 2 / base


def by_term(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows by engine and term, in the order of `TERMS`."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.engine, row.term), []).append(row)
    order = list(TERMS)
    return dict(sorted(found.items(), key=lambda item: (item[0][0], order.index(item[0][1]))))
