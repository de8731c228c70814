"""An estimate with the derivation of each of its items."""

import math
from collections.abc import Iterator
from typing import cast

from msgspec.structs import replace

from tonnage import evidence
from tonnage.catalog import Catalog, resolve
from tonnage.explain.derivation import derivation
from tonnage.explain.formula import step
from tonnage.explain.notation import joined, name, number
from tonnage.explain.second import estimated
from tonnage.explain.traced import Traced
from tonnage.spec.card import SizingCard
from tonnage.spec.hub import Fetch
from tonnage.spec.report import Derivation, Estimate, MemoryItem, Step
from tonnage.spec.workload import Workload


def explained(catalog: Catalog, card: SizingCard, *, fetch: Fetch | None = None) -> Estimate:
    """
    Estimate a card and show how each item follows.

    Args:
        catalog: The facts to resolve names against.
        card: The question.
        fetch: Who to ask for models that the catalogue does not hold; None: nobody.

    Returns:
        The answer of /estimate with `derivations`.

    Raises:
        SizingError: A name is unknown, the card contradicts itself, or no law covers it.
    """
    answer = evidence.estimate(catalog, card, fetch=fetch)
    workload = resolve(catalog, card, fetch=fetch)
    needed = _needed(answer, workload)
    items = tuple(_items(estimated(workload)))
    for item in items:
        _name(item)
    found = map(derivation, items)
    return replace(
        answer, derivations=tuple(_after(one, needed) if one.component == "kv_cache" else one for one in found)
    )


def _name(item: MemoryItem) -> None:
    """Where another item is computed from this one, its name says enough."""
    size = cast("Traced | int", item.bytes.expected)
    if isinstance(size, Traced) and not size.known_as:
        size.known_as = item.component.replace("_", " ")


def _after(found: Derivation, first: tuple[Step, ...]) -> Derivation:
    return replace(found, steps=(*first, *found.steps))


def _needed(answer: Estimate, workload: Workload) -> tuple[Step, ...]:
    """What the requests of the card need of a pool that is there whatever they need, where it is so much for each token."""
    cache, serving = answer.kv_cache, workload.serving
    requests = serving.concurrency if serving is not None else None
    if answer.claimed_bytes is None or cache is None or not requests or not cache.max_model_len:
        return ()
    worst = next(phase for phase in answer.phases if phase.phase == answer.peak.phase)
    pool = sum(item.bytes.expected for item in worst.items if item.component == "kv_cache")
    needed = answer.required.expected - answer.reserve_bytes - answer.peak.device.expected + pool
    factors = {"requests": requests, "tokens of each": cache.max_model_len, "one token": cache.bytes_per_token}
    if math.prod(factors.values()) != needed:
        return ()
    numbers = joined("×", tuple(map(number, factors.values())))
    return (step("needed by the requests", joined("×", tuple(map(name, factors))), numbers, needed),)


def _items(answer: Estimate) -> Iterator[MemoryItem]:
    seen: set[tuple[str, str, int, str]] = set()
    for item in (item for gpu in answer.gpus for phase in gpu.phases for item in phase.items):
        key = (item.component, item.law, item.bytes.expected, item.detail)
        if key not in seen:
            seen.add(key)
            yield item
