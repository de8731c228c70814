"""
The domain as the handlers see it: one immutable catalogue at a time, and the two questions put to it.

`Sizing` is what a reload replaces as a whole, so that one request never sees two catalogues.
"""

import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tonnage import evidence
from tonnage import fit as fit_package
from tonnage.api.telemetry import Telemetry
from tonnage.catalog import Catalog
from tonnage.errors import Unsupported
from tonnage.spec.card import SizingCard
from tonnage.spec.report import Estimate


class Sizing(Struct, frozen=True, kw_only=True):
    """A catalogue and what can be asked of it."""

    catalog: Catalog
    estimate: Callable[[SizingCard], Estimate]
    fit: Callable[[Any], Any]

    @property
    def version(self) -> str:
        """Content hash of the catalogue."""
        return self.catalog.version


def sizing_of(catalog: Catalog) -> Sizing:
    """Questions bound to one catalogue."""

    def estimate(card: SizingCard) -> Estimate:
        return evidence.estimate(catalog, card)

    def fit(request: Any) -> Any:
        if not hasattr(fit_package, "fit"):
            raise Unsupported("this version does not choose packages yet", ["/estimate", "/catalog"])
        return fit_package.fit(catalog, request)

    return Sizing(catalog=catalog, estimate=estimate, fit=fit)


class Desk:
    """Holds the sizing in use and measures what it computes."""

    def __init__(self, sizing: Sizing, telemetry: Telemetry) -> None:
        self.sizing = sizing
        self._telemetry = telemetry
        self._estimate_seconds = telemetry.estimate_seconds.observe
        self._fit_seconds = telemetry.fit_seconds.observe

    def estimate(self, card: SizingCard) -> Estimate:
        """One estimate, timed and counted by verdict."""
        started = time.perf_counter()
        answer = self.sizing.estimate(card)
        self._estimate_seconds(time.perf_counter() - started)
        self._telemetry.verdict("estimate", answer.verdict or "none")
        return answer

    def fit(self, request: Any) -> Any:
        """One fit, timed and counted by what came out."""
        started = time.perf_counter()
        answer = self.sizing.fit(request)
        self._fit_seconds(time.perf_counter() - started)
        self._telemetry.verdict("fit", "met" if answer.selected is not None else "none")
        return answer
