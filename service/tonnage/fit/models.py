"""The question the other way round: which models of the catalogue a GPU serves."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from tonnage.catalog import Catalog, resolve
from tonnage.errors import SizingError
from tonnage.estimate.assemble import account_of, screen, verdict
from tonnage.spec.card import SizingCard
from tonnage.spec.report import VERDICT_ORDER, Amount, Verdict


class ModelFit(Struct, frozen=True, kw_only=True):
    """One model under the card's settings on its GPU."""

    model: str
    parameters: int
    required: Amount
    headroom_bytes: int
    """Expected bytes that stay free. [bytes]"""
    verdict: Verdict


def models(catalog: Catalog, card: SizingCard, *, among: Iterable[str] | None = None) -> tuple[ModelFit, ...]:
    """
    Models that a GPU serves under one card, largest first.

    Args:
        catalog: The facts.
        card: Settings and placement; its model is ignored.
        among: Ids to look at; None: every model of the catalogue.

    Returns:
        Models that are not excluded, met ones first; models the card cannot be resolved or estimated for are left out.
    """
    names = [m.id for m in catalog.models] if among is None else list(among)
    found = (_one(catalog, replace(card, model=name)) for name in names)
    fitting = [f for f in found if f is not None and f.verdict != "excluded"]
    return tuple(sorted(fitting, key=lambda f: (VERDICT_ORDER[f.verdict], -f.parameters, f.model)))


def _one(catalog: Catalog, card: SizingCard) -> ModelFit | None:
    try:
        workload = resolve(catalog, card)
        account = account_of(workload)
    except SizingError:
        return None
    if workload.gpu is None:
        return None
    screened, usable = screen(workload, account), workload.gpu.memory_usable_bytes
    return ModelFit(
        model=str(card.model),
        parameters=workload.model.parameters_total,
        required=screened.required,
        headroom_bytes=usable - screened.required.expected,
        verdict=verdict(screened, usable, account.findings),
    )
