"""
What the first requests would pay for: modules of engines and frameworks, tables of architectures.

Loaded in a thread once the port is open; until then /readyz says 503, so that a load balancer waits and a start is quick.
"""

import contextlib
from collections.abc import Iterator
from typing import get_args

from tonnage.api.sizing import Sizing
from tonnage.errors import SizingError
from tonnage.kept import settle
from tonnage.spec.card import Serving, SizingCard, Training
from tonnage.spec.fit import FitRequest


def warm(sizing: Sizing) -> None:
    """
    Ask one question of every kind.

    Args:
        sizing: What answers; its answers are thrown away.
    """
    for card in _cards(sizing):
        with contextlib.suppress(SizingError):
            sizing.estimate(sizing.catalog, card)
    with contextlib.suppress(SizingError):
        sizing.fit(sizing.catalog, FitRequest(model=_model(sizing), limit=1))
    settle()


def _cards(sizing: Sizing) -> Iterator[SizingCard]:
    model = _model(sizing)
    for serving in get_args(Serving):
        yield SizingCard(model=model, serving=serving())
    yield SizingCard(model=model, training=Training())


def _model(sizing: Sizing) -> str:
    return next(iter(sizing.catalog.models)).id
