"""One card on one placement: how much memory, where, in which phase, how sure."""

from tonnage.estimate.assemble import assemble
from tonnage.estimate.plain import account as plain_account
from tonnage.estimate.serving import account as serving_account
from tonnage.estimate.training import account as training_account
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
    if workload.serving is not None:
        account = serving_account(workload)
    elif workload.training is not None:
        account = training_account(workload)
    else:
        account = plain_account(workload)
    return assemble(workload, account)
