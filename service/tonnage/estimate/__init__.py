"""One card on one placement: how much memory, where, in which phase, how sure."""

from msgspec.structs import replace

from tonnage.estimate.assemble import account_of, assemble
from tonnage.estimate.boards import of_every_board
from tonnage.estimate.support import support_findings
from tonnage.spec.report import Estimate
from tonnage.spec.workload import Workload

__all__ = ["estimate"]


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


def _on_its_gpu(workload: Workload) -> Estimate:
    found = support_findings(workload)
    account = account_of(workload)
    if found:
        account = replace(account, findings=account.findings + found)
    return assemble(workload, account)
