"""What an engine, a framework or neither makes of a card; a card asked again answers from memory."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from tonnage.estimate.contradictions import refuse_experts
from tonnage.estimate.identity_cache import results_of_this_thread
from tonnage.kept import Kept, weigh
from tonnage.spec.report import Account
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
    watched = results_of_this_thread() is not None
    kept = None if watched else _kept.get(key)
    if kept is None:
        weigh(_HELD_PER_BYTE * max(0, len(key[3]) - _SHORT))
        kept = _account(workload), workload.formats  # whose identity is in the key
        if not watched:
            _kept.keep(key, kept)
    account = kept[0]
    if not workload.findings and not workload.unknowns:
        return account
    return replace(
        account, findings=account.findings + workload.findings, unknowns=account.unknowns + workload.unknowns
    )


def deciding_of(workload: Workload) -> Account:
    """The same for comparing many layouts: what decides is enough, and is not kept."""
    if workload.serving is None or workload.gpu is None:
        return account_of(workload)
    from tonnage.estimate.serving import deciding  # noqa: PLC0415  (as in `_account`)

    refuse_experts(workload)
    account = deciding(workload)
    if account is None:
        return account_of(workload)
    return replace(account, findings=account.findings + workload.findings) if workload.findings else account


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
