"""One requirement judged: its status, and how to say why. The words are made for candidates that are shown."""

from collections.abc import Callable

from msgspec import Struct

from tonnage.spec.fit import RequirementName
from tonnage.spec.report import Verdict

MET, CONFIRM, EXCLUDED = 0, 1, 2


VERDICTS: tuple[Verdict, ...] = ("met", "needs_confirmation", "excluded")


class Judged(Struct, frozen=True, gc=False):
    """One requirement, its status as a number (worst is largest), and how to say why."""

    name: RequirementName
    status: int
    say: Callable[[], str]
    evidence: str = ""
