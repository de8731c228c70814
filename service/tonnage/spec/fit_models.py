"""
The question and the answer of /fit/models: settings and a GPU, and which models of the catalogue they serve.

The question is a sizing card without a model; the models to look at are narrowed by name, family and count.
"""

from typing import Annotated

from msgspec import Meta, Struct

from tonnage.spec.card import (
    Count,
    Name,
    Placement,
    ReserveFraction,
    Serving,
    Size,
    SizingCard,
    Training,
    WeightsCard,
)
from tonnage.spec.report import Amount, Assumption, Verdict, Versions


class ModelsRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which models this GPU serves under these settings."""

    weights: WeightsCard = WeightsCard()
    """Format asked of every model; omitted: each checkpoint's own."""
    serving: Serving | None = None
    training: Training | None = None
    placement: Placement
    """`gpu` is required; several GPUs as the card's layout."""
    reserve: Size | ReserveFraction = 0
    models: Annotated[list[Name], Meta(min_length=1, max_length=256)] | None = None
    """Ids or aliases to look at; None: the whole catalogue."""
    q: Name | None = None
    """Part of an id, alias or family, whatever its case."""
    min_parameters: Count | None = None
    max_parameters: Count | None = None
    include_excluded: bool = False
    """Whether models that do not fit are listed too, with the reason."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50

    def __post_init__(self) -> None:
        if self.serving is not None and self.training is not None:
            raise ValueError("a card is for serving or for training, not both")
        if self.placement.gpu is None:
            raise ValueError("placement.gpu is missing: say which GPU the models are to fit")

    def card(self, model: str) -> SizingCard:
        """The sizing card of one model."""
        return SizingCard(
            model=model,
            weights=self.weights,
            serving=self.serving,
            training=self.training,
            placement=self.placement,
            reserve=self.reserve,
        )


class FittingModel(Struct, frozen=True, kw_only=True):
    """One model under the card's settings on its GPU."""

    rank: int
    model: str
    parameters: int
    parameters_active: int | None
    weights_format: str
    required: Amount
    headroom: Amount
    verdict: Verdict
    reason: str
    max_concurrency: float | None = None
    """Requests of `max_model_len` at once, where the engine keeps a pool. [unitless]"""
    max_model_len: int | None = None
    """Context that the figures are for. [tokens]"""


class NotEstimated(Struct, frozen=True, kw_only=True):
    """Models the card cannot be put to, for one reason."""

    count: int
    example: str
    reason: str


class ModelsConsidered(Struct, frozen=True, kw_only=True):
    """How many models were looked at. [unitless]"""

    models: int
    met: int
    needs_confirmation: int
    excluded: int
    not_estimated: int


class ModelsAnswer(Struct, frozen=True, kw_only=True):
    """The answer of /fit/models: what fits, met ones first, largest first."""

    gpu: str
    gpu_count: int
    usable_bytes: int
    """Of each GPU."""
    models: tuple[FittingModel, ...]
    not_estimated: tuple[NotEstimated, ...]
    considered: ModelsConsidered
    assumptions: tuple[Assumption, ...]
    """Those of the first model listed."""
    versions: Versions
    digest: str
