"""The answer of /estimate: the estimate, what was measured beside it, and the diagnosis of a failure."""

from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from tonnage.catalog import Catalog, resolve
from tonnage.estimate import estimate as estimated
from tonnage.estimate import fields_of as estimated_fields
from tonnage.estimate.changes import Reestimate
from tonnage.estimate.diagnosis import diagnose
from tonnage.evidence.log_text import Reading, read
from tonnage.evidence.reconcile import read_parts, reconciled
from tonnage.spec.card import Failure, SizingCard
from tonnage.spec.hub import Fetch
from tonnage.spec.report import Estimate
from tonnage.spec.workload import Workload
from tonnage.units import parse_size

_NOTHING = Reading(engine=None, phase=None, numbers={}, unread=())


def estimate(catalog: Catalog, card: SizingCard, *, fetch: Fetch | None = None) -> Estimate:
    """
    Estimate a card as stated.

    Args:
        catalog: The facts to resolve names against.
        card: The question.
        fetch: Who to ask for models that the catalogue does not hold; None: nobody.

    Returns:
        The estimate with measurements reconciled and a failure diagnosed.

    Raises:
        SizingError: A name is unknown, the card contradicts itself, or no law covers it.
    """
    workload = resolve(catalog, card, fetch=fetch)
    answer = estimated(workload)
    if not card.measurements and card.failure is None:
        return answer
    return with_evidence(answer, workload, lambda other: estimated(resolve(catalog, other, fetch=fetch)))


def fields_of(
    catalog: Catalog, card: SizingCard, fields: Collection[str], *, fetch: Fetch | None = None
) -> dict[str, Any]:
    """
    Some fields of the same answer, for callers who ask them of very many cards.

    Args:
        catalog: The facts to resolve names against.
        card: The question.
        fields: Their names.
        fetch: As above.

    Returns:
        What `estimate` gives them.

    Raises:
        SizingError: As `estimate`.
    """
    if card.measurements or card.failure is not None:
        answer = estimate(catalog, card, fetch=fetch)
        return {name: getattr(answer, name) for name in fields}
    return estimated_fields(resolve(catalog, card, fetch=fetch), fields)


def with_evidence(answer: Estimate, workload: Workload, reestimate: Reestimate) -> Estimate:
    """
    An estimate after what the caller knows.

    Args:
        answer: The bare estimate.
        workload: What it was made from.
        reestimate: Bare estimate of another card.

    Returns:
        The same with `measured` and `diagnosis`.
    """
    card = workload.card
    gpu = workload.gpu.id if workload.gpu is not None else None
    answer = reconciled(answer, tuple(card.measurements), gpu=gpu)
    failure = card.failure
    if failure is None:
        return answer
    reading = _NOTHING if failure.message is None else read(failure.message)
    bare = replace(card, failure=None, measurements=[])
    diagnosis = diagnose(
        card=bare,
        model=workload.model,
        estimate=answer,
        phase=failure.phase or reading.phase,
        numbers=_numbers(failure, reading),
        unread=reading.unread,
        reestimate=reestimate,
    )
    return replace(answer, measured=answer.measured + read_parts(answer, reading.numbers), diagnosis=diagnosis)


def _numbers(failure: Failure, reading: Reading) -> dict[str, Any]:
    """What the text says, and above it what the caller states."""
    stated = {"requested_bytes": failure.requested_bytes, "free_bytes": failure.free_bytes}
    return reading.numbers | {name: parse_size(value) for name, value in stated.items() if value is not None}
