"""A loose name of a GPU stands for boards of several memories: the verdict holds if it is that of each of them."""

from collections.abc import Callable

from msgspec.structs import replace

from tonnage.errors import SizingError
from tonnage.spec.facts import Gpu
from tonnage.spec.report import Estimate, Finding, Verdict
from tonnage.spec.workload import Workload


def of_every_board(workload: Workload, answer: Estimate, on_its_gpu: Callable[[Workload], Estimate]) -> Estimate:
    """
    The answer for the board that was taken, to be confirmed where another one changes the verdict.

    Args:
        workload: Resolved card with the other boards of that name.
        answer: For the board that was taken.
        on_its_gpu: Estimate of one board.

    Returns:
        The same amounts; what excludes one board only needs confirmation.
    """
    verdicts = {gpu.name: _verdict(workload, gpu, on_its_gpu) for gpu in workload.namesakes}
    if workload.gpu is None or set(verdicts.values()) <= {answer.verdict}:
        return answer
    told = ", ".join(f"{name}: {verdict}" for name, verdict in verdicts.items())
    taken = f"{workload.gpu.name} is taken: {answer.verdict}"
    words = f"{workload.card.placement.gpu!r} names boards of several memories: {taken}; {told}"
    doubt = Finding(status="needs_confirmation", reason=words, field="/placement/gpu")
    return replace(answer, verdict="needs_confirmation", reasons=(*map(_opened, answer.reasons), doubt))


def _verdict(workload: Workload, gpu: Gpu, on_its_gpu: Callable[[Workload], Estimate]) -> Verdict | None:
    """On another board; a card that it contradicts is excluded there."""
    try:
        return on_its_gpu(replace(workload, gpu=gpu)).verdict
    except SizingError:
        return "excluded"


def _opened(reason: Finding) -> Finding:
    return replace(reason, status="needs_confirmation") if reason.status == "excluded" else reason
