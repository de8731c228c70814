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
    from tonnage.estimate.assemble import assemble  # noqa: PLC0415  (parts of this package are used on their own)
    from tonnage.estimate.plain import account as plain  # noqa: PLC0415
    from tonnage.estimate.serving import account as serving  # noqa: PLC0415
    from tonnage.estimate.training import account as training  # noqa: PLC0415

    if workload.serving is not None:
        return assemble(workload, serving(workload))
    if workload.training is not None:
        return assemble(workload, training(workload))
    return assemble(workload, plain(workload))
