"""
The domain as the handlers see it: one immutable catalogue at a time, and the two questions put to it.

`Sizing` is what a reload replaces as a whole, so that one request never sees two catalogues.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from tonnage import evidence, explain, fit
from tonnage.api.telemetry import Telemetry
from tonnage.catalog import Catalog
from tonnage.catalog.models import wanted_from_hub
from tonnage.errors import ContradictoryWorkload
from tonnage.spec.card import SizingCard
from tonnage.spec.fit import FitAnswer, FitRequest
from tonnage.spec.fit_models import ModelsAnswer, ModelsRequest
from tonnage.spec.hub import Fetch
from tonnage.spec.report import Estimate

logger = logging.getLogger("tonnage")

_ODD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

_MANY_STAGES = 16
"""Stages of a pipeline, each of which is looked at. [unitless]"""

if TYPE_CHECKING:
    from tonnage.adapters.hub import Hub


class Estimating(Protocol):
    """`evidence.estimate`, or what a test puts in its place."""

    def __call__(self, catalog: Catalog, card: SizingCard, *, fetch: Fetch | None = None) -> Estimate:
        """The estimate of a card."""
        ...


class Sizing(Struct, frozen=True, kw_only=True):
    """A catalogue and what can be asked of it."""

    catalog: Catalog
    estimate: Estimating = evidence.estimate
    fields_of: Callable[..., dict[str, Any]] = evidence.fields_of
    fit: Callable[..., FitAnswer] = fit.fit
    explained: Estimating = explain.explained

    @property
    def version(self) -> str:
        """Content hash of the catalogue."""
        return self.catalog.version


class Desk:
    """Holds the sizing in use and measures what it computes."""

    def __init__(self, sizing: Sizing, telemetry: Telemetry, hub: "Hub | None" = None, fit_threads: int = 2) -> None:
        self.sizing = sizing
        self.hub = hub
        self._fitters = ThreadPoolExecutor(fit_threads, thread_name_prefix="fit")
        self._verdict = telemetry.verdict
        self._estimate_seconds = telemetry.estimate_seconds.observe
        self._fit_seconds = telemetry.fit_seconds.observe

    async def fetch_for(self, card: SizingCard) -> Fetch | None:
        """
        What a card needs of the Hub, got before any work.

        Args:
            card: The question.

        Returns:
            Who knows it; None when the catalogue answers alone or the Hub is switched off.

        Raises:
            SizingError: The Hub has no such repository, or does not answer.
        """
        if self.hub is None:
            return None
        wanted = wanted_from_hub(self.sizing.catalog, card)
        return await self.hub.fetched(wanted) if wanted else None

    def estimate(self, card: SizingCard, fetch: Fetch | None = None) -> Estimate:
        """One estimate, timed and counted by verdict."""
        sizing, started = self.sizing, time.perf_counter()
        try:
            answer = sizing.estimate(sizing.catalog, card, fetch=fetch)
        except _ODD as error:
            refuse_description(card, error)
            raise
        self._estimate_seconds(time.perf_counter() - started)
        self._verdict("estimate", answer.verdict or "none")
        return answer

    async def estimated(self, card: SizingCard, fetch: Fetch | None = None) -> Estimate:
        """One estimate; in a thread when it may take long, so that quick ones need not wait behind it."""
        if not may_take_long(card):
            return self.estimate(card, fetch)
        return await asyncio.get_running_loop().run_in_executor(self._fitters, self.estimate, card, fetch)

    def fields_of(self, card: SizingCard, fields: tuple[str, ...], fetch: Fetch | None = None) -> dict[str, Any]:
        """Some fields of an estimate, timed and counted as a whole one is."""
        sizing, started = self.sizing, time.perf_counter()
        try:
            found = sizing.fields_of(sizing.catalog, card, {*fields, "verdict"}, fetch=fetch)
        except _ODD as error:
            refuse_description(card, error)
            raise
        self._estimate_seconds(time.perf_counter() - started)
        self._verdict("estimate", found["verdict"] or "none")
        return {name: found[name] for name in fields}

    async def explained(self, card: SizingCard, fetch: Fetch | None = None) -> Estimate:
        """One estimate with its derivations; in a thread, because nothing of it comes from memory."""
        answer = await asyncio.get_running_loop().run_in_executor(self._fitters, self._explained, card, fetch)
        self._verdict("estimate", answer.verdict or "none")
        return answer

    def _explained(self, card: SizingCard, fetch: Fetch | None) -> Estimate:
        try:
            return self.sizing.explained(self.sizing.catalog, card, fetch=fetch)
        except _ODD as error:
            refuse_description(card, error)
            raise

    async def fit(self, request: FitRequest, fetch: Fetch | None = None) -> FitAnswer:
        """One fit, timed and counted by what came out; in a thread, because a whole catalogue takes its time."""
        answer, seconds = await asyncio.get_running_loop().run_in_executor(self._fitters, self._fit, request, fetch)
        self._fit_seconds(seconds)
        self._verdict("fit", "met" if answer.selected is not None else "none")
        return answer

    async def fitting_models(self, request: ModelsRequest) -> ModelsAnswer:
        """The other way round: which models a GPU serves; in a thread like the above, for it looks at the whole catalogue."""
        catalog, started = self.sizing.catalog, time.perf_counter()
        answer = await asyncio.get_running_loop().run_in_executor(self._fitters, fit.models, catalog, request)
        self._fit_seconds(time.perf_counter() - started)
        self._verdict("fit", "met" if answer.considered.met else "none")
        return answer

    def _fit(self, request: FitRequest, fetch: Fetch | None) -> tuple[FitAnswer, float]:
        sizing, started = self.sizing, time.perf_counter()
        try:
            return sizing.fit(sizing.catalog, request, fetch=fetch), time.perf_counter() - started
        except _ODD as error:
            refuse_description(request, error)
            raise


def may_take_long(card: SizingCard) -> bool:
    """Whether a card describes an architecture, asks what failed or has very many stages."""
    described = not isinstance(card.model, str) and (card.model.config is not None or card.model.gguf is not None)
    return described or card.failure is not None or card.placement.pipeline_parallel_size > _MANY_STAGES


def refuse_description(card: SizingCard, error: Exception) -> None:
    """
    Take an arithmetic or type error for the caller's when the caller described the architecture.

    Args:
        card: The question.
        error: Raised by a law or a reader; facts of the catalogue never lead to one.

    Raises:
        ContradictoryWorkload: The description holds values that no architecture has.
    """
    if isinstance(card.model, str) or (card.model.config is None and card.model.gguf is None):
        return
    logger.warning("a described architecture leads to %s", type(error).__name__, exc_info=error)
    detail = "the architecture as described holds values that cannot be together, or of a kind that no law reads"
    raise ContradictoryWorkload(f"{detail} ({type(error).__name__}: {error})"[:300], pointer="/model") from error
