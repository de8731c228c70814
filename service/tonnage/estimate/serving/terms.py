"""The terms of an engine's account: component, law, source and counter once, amounts card by card."""

from typing import NamedTuple

from tonnage.spec.report import Amount, Basis, Counter, MemoryItem


class Term(NamedTuple):
    """What stays the same about an item whatever the card."""

    component: str
    basis: Basis
    law: str
    source: str
    counter: Counter = "allocated"
    inside_budget: bool = True

    def item(self, amount: Amount, detail: str = "") -> MemoryItem:
        """The item with its amount."""
        return MemoryItem(
            component=self.component,
            bytes=amount,
            basis=self.basis,
            law=self.law,
            source=self.source,
            detail=detail,
            counter=self.counter,
            inside_budget=self.inside_budget,
        )
