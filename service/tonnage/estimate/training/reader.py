"""Fields of a training card, and what a framework takes where they are open."""

from typing import Any

from tonnage.spec.card import Training
from tonnage.spec.framework import Defaults
from tonnage.spec.report import Assumption


class Reader:
    """Reads a field of the card, or takes the framework's default and notes it."""

    def __init__(self, card: Training, defaults: Defaults, framework: str) -> None:
        self.card = card
        self.defaults = defaults
        self.why = f"default of {framework}"
        self.assumptions: list[Assumption] = []

    def __call__(self, name: str) -> Any:
        """What the card states, or the default."""
        stated = getattr(self.card, name)
        if stated is not None:
            return stated
        return self.assume(name, getattr(self.defaults, name), self.why)

    def assume(self, name: str, value: Any, why: str) -> Any:
        """Note a value the card left open."""
        self.assumptions.append(Assumption(f"training.{name}", value, why))
        return value
