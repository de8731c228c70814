"""What an engine, a framework or neither makes of a card; a card asked again answers from memory."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from tonnage.estimate.contradictions import refuse_experts
from tonnage.estimate.totals import device_peak, load_needs
from tonnage.kept import Kept, weigh
from tonnage.spec.report import Account, Amount, Deciding
from tonnage.spec.workload import Workload

KEPT = 1024
"""Accounts kept in process; the oldest goes first. [unitless]"""
_SHORT, _HELD_PER_BYTE = 1024, 16
"""Settings beyond this length hold lists of the caller's, which all caches hold again. [bytes, bytes per byte]"""
_kept: Kept[tuple[Any, ...], tuple[Account, object]] = Kept(KEPT)
_wire = msgspec.msgpack.Encoder().encode


def account_of(workload: Workload) -> Account:
    """What the engine, the framework or neither makes of a resolved card, with what resolving it already found."""
    key = key_of(workload)
    kept = _kept.get(key)
    if kept is None:
        weigh(_HELD_PER_BYTE * max(0, len(key[3]) - _SHORT))
        kept = _kept.keep(key, (_account(workload), workload.formats))  # whose identity is in the key
    account = kept[0]
    if not workload.findings and not workload.unknowns:
        return account
    return replace(
        account, findings=account.findings + workload.findings, unknowns=account.unknowns + workload.unknowns
    )


def comparing(workload: Workload) -> Callable[[Workload], Deciding]:
    """
    How layouts of one card are compared.

    Args:
        workload: Resolved card.

    Returns:
        What of the account decides, of the same card on any GPU and placement. An engine that tells it apart works out only
        that, and nothing of it is kept; otherwise it follows from the account.
    """
    apart = _apart(workload)
    if apart is None:
        return lambda placed: decisive(account_of(placed))
    of_card = workload.findings

    def deciding(placed: Workload) -> Deciding:
        refuse_experts(placed)
        found = apart(placed)
        return replace(found, findings=found.findings + of_card) if of_card else found

    return deciding


def _apart(workload: Workload) -> Callable[[Workload], Deciding] | None:
    if workload.serving is not None:
        from tonnage.estimate.serving import comparing as comparison  # noqa: PLC0415  (as in `_account`)

        return comparison(workload)
    if workload.training is not None:
        from tonnage.estimate.training import deciding  # noqa: PLC0415  (as in `_account`)

        return deciding
    return None


def decisive(account: Account) -> Deciding:
    """
    What of an account decides.

    Args:
        account: Of an engine, a framework or neither.

    Returns:
        Its loads summed by the device counter, its claim, findings and host.

    Raises:
        ValueError: It has no loads.
    """
    if account.claimed_bytes is None:
        needs = [load.needed or device_peak(load.phases, False).device for load in account.loads]
        return Deciding(_most(needs), None, account.findings, account.host)
    peaks = [device_peak(load.phases, True) for load in account.loads]
    needs = [load_needs(load, peak, claimed=True) for load, peak in zip(account.loads, peaks, strict=True)]
    return Deciding(_most(needs), _most([peak.device for peak in peaks]), account.findings, account.host)


def highest(account: Account) -> Amount:
    """Largest device total of an account, up to the highest end of any phase. [bytes]"""
    claimed = account.claimed_bytes is not None
    return _most([device_peak(load.phases, claimed).highest for load in account.loads])


def _most(amounts: list[Amount]) -> Amount:
    return amounts[0] if len(amounts) == 1 else max(amounts, key=attrgetter("expected"))


def key_of(workload: Workload) -> tuple[Any, ...]:
    """Everything an account depends on: facts and the model by identity, what the card says by value."""
    return (
        workload.model,
        workload.weight_format,
        workload.weight_bytes,
        _wire((workload.serving, workload.training, workload.card.weights.bytes is None)),
        workload.profile,
        workload.profile_certain,
        workload.kv_formats,
        workload.optimizer,
        workload.draft,
        workload.placement,
        workload.gpu,
        workload.reserve_bytes,
        workload.reserve_fraction,
        id(workload.formats),
        _named(workload),
    )


def _named(workload: Workload) -> tuple[str | None, ...]:
    """Phases that a failure or a measurement names: an account of a training job has them beside its step."""
    if workload.training is None or (workload.failure is None and not workload.measurements):
        return ()
    failed = (workload.failure.phase,) if workload.failure is not None else ()
    return (*failed, *(m.phase for m in workload.measurements))


def _account(workload: Workload) -> Account:
    refuse_experts(workload)
    accounting: Callable[[Workload], Account]
    # each imported when first asked for: a server that only serves never loads the training laws
    if workload.serving is not None:
        from tonnage.estimate.serving import account as accounting  # noqa: PLC0415
    elif workload.training is not None:
        from tonnage.estimate.training import account as accounting  # noqa: PLC0415
    else:
        from tonnage.estimate.plain import account as accounting  # noqa: PLC0415
    return accounting(workload)
