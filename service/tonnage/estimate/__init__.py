"""One card on one placement: how much memory, where, in which phase, how sure."""

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
    from tonnage.estimate.assemble import account_of, assemble  # noqa: PLC0415  (parts of this package are used on their own)

    return assemble(workload, account_of(workload))
