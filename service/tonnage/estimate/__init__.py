"""One card on one placement: how much memory, where, in which phase, how sure."""

from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from tonnage.estimate.assemble import WITHOUT_ITEMS, account_of, assemble, without_items
from tonnage.estimate.boards import of_every_board
from tonnage.estimate.support import support_findings
from tonnage.spec.report import Account, Estimate
from tonnage.spec.workload import Workload

__all__ = ["estimate", "fields_of"]


def estimate(workload: Workload) -> Estimate:
    """
    Estimate one resolved card.

    Args:
        workload: Card with every name resolved, from `tonnage.catalog.resolve`.

    Returns:
        Phases, peak, requirement and verdict; a card that does not fit is a result, not an error.

    Raises:
        SizingError: The card contradicts itself, or no law covers it.
    """
    answer = _on_its_gpu(workload)
    return of_every_board(workload, answer, _on_its_gpu) if workload.namesakes else answer


def fields_of(workload: Workload, fields: Collection[str]) -> dict[str, Any]:
    """
    Some fields of the estimate alone, which costs less where they need no items.

    Args:
        workload: Card with every name resolved.
        fields: Their names.

    Returns:
        What `estimate` gives them.

    Raises:
        SizingError: As `estimate`.
    """
    if workload.namesakes or not WITHOUT_ITEMS.issuperset(fields):
        answer = estimate(workload)
        return {name: getattr(answer, name) for name in fields}
    return without_items(workload, _account(workload), fields)


def _on_its_gpu(workload: Workload) -> Estimate:
    return assemble(workload, _account(workload))


def _account(workload: Workload) -> Account:
    found = support_findings(workload)
    account = account_of(workload)
    return replace(account, findings=account.findings + found) if found else account
