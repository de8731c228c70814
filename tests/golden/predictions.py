"""The kept answers: which figures of an answer are kept, how they are compared, how they are written anew."""

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.golden import orders

HERE = Path(__file__).resolve().parent
KEPT = HERE / "predictions.json"

Case = dict[str, Any]
Figures = dict[str, Any]
"""By path in words; a figure is a count, a verdict or a band [low, expected, high]."""


def cases() -> dict[str, Case]:
    """Requests by the name of their case."""
    read = tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))
    return {case["name"]: _request(case, read["configs"]) for case in read["case"]}


def _request(case: Case, configs: dict[str, Any]) -> Case:
    request = {key: value for key, value in case.items() if key not in ("name", "config")}
    return request | {"model": {"config": configs[case["config"]]}} if "config" in case else request


def figures(answer: Any) -> Figures:
    """What is kept of an answer: everything in bytes, by GPU, phase and component, and what follows from it."""
    found: Figures = {
        "parameters": answer.model.parameters.total,
        "trainable": answer.model.parameters.trainable,
        "required": _band(answer.required),
        "claimed": answer.claimed_bytes,
        "verdict": answer.verdict,
        "host memory": _band(answer.host.memory),
    }
    cache = answer.kv_cache
    if cache is not None:
        found["cache bytes per token"] = cache.bytes_per_token
        found["cache bytes per sequence"] = cache.state_bytes_per_sequence
        found["cache pool"] = None if cache.pool is None else _band(cache.pool)
        found["cache tokens"] = None if cache.capacity_tokens is None else cache.capacity_tokens.expected
        found["cache blocks"] = cache.blocks
        found["cache concurrency"] = None if cache.max_concurrency is None else round(cache.max_concurrency, 3)
    for load in answer.gpus:
        found |= dict(_of_load(load))
    return found


def _of_load(load: Any) -> Iterator[tuple[str, Any]]:
    gpu = f"gpu {load.ranks[0]}"
    yield f"{gpu} ranks", len(load.ranks)
    yield f"{gpu} peak phase", load.peak.phase
    for counter in ("allocated", "reserved", "device"):
        yield f"{gpu} peak {counter}", _band(getattr(load.peak, counter))
    for phase in load.phases:
        sums: dict[str, list[int]] = {}
        for item in phase.items:
            have = sums.setdefault(item.component, [0, 0, 0])
            sums[item.component] = [a + b for a, b in zip(have, _band(item.bytes), strict=True)]
        for component, band in sums.items():
            yield f"{gpu} {phase.phase} {component}", band


def _band(amount: Any) -> list[int]:
    return [amount.low, amount.expected, amount.high]


def moved(kept: Figures, now: Figures) -> list[str]:
    """
    Figures that differ, in words.

    Args:
        kept: As in predictions.json.
        now: As computed.

    Returns:
        One line each, with the old and the new figure; empty when nothing moved.
    """
    names = [*kept, *(name for name in now if name not in kept)]
    return [f"{name}: {_change(kept.get(name), now.get(name))}" for name in names if kept.get(name) != now.get(name)]


def _change(old: Any, new: Any) -> str:
    if isinstance(old, list) and isinstance(new, list):
        if old[1] == new[1]:
            return f"band {old[0]} .. {old[2]} is now {new[0]} .. {new[2]}, expected {new[1]} as before"
        share = f" ({(new[1] - old[1]) / old[1]:+.2%})" if old[1] else ""
        return f"{old[1]} is now {new[1]}{share}"
    return f"{old} is now {new}"


def kept() -> dict[str, Figures]:
    """The kept figures by case."""
    found: dict[str, Figures] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def main() -> int:
    """Write predictions.json anew and print what moved."""
    from tests.golden import drawn  # it takes `figures` from here

    from tonnage.library import estimate

    before = kept() if KEPT.exists() else {}
    after = {name: figures(estimate(request)) for name, request in cases().items()}
    for name, now in after.items():
        for line in moved(before.get(name, {}), now) if name in before else [f"new, {len(now)} figures"]:
            print(f"{name}: {line}")
    KEPT.write_text(_text(after), encoding="utf-8")
    orders.write()
    drawn.write()
    return 0


def _text(found: dict[str, Figures]) -> str:
    """JSON with one figure a line, so that a difference reads as one."""
    blocks = []
    for name, one in found.items():
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in one.items())
        blocks.append(f"{json.dumps(name)}: {{\n{lines}\n}}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
