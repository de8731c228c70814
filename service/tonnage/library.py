"""
The questions for programs in Python: a card in, an answer out, nothing of HTTP.

`tonnage.laws` is public as well: plain functions of integers, usable alone.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from tonnage import evidence
from tonnage import fit as fitting
from tonnage.catalog import Catalog, load_catalog
from tonnage.spec.card import SizingCard
from tonnage.spec.fit import FitAnswer, FitRequest
from tonnage.spec.fit_models import ModelsAnswer, ModelsRequest
from tonnage.spec.report import Estimate

__all__ = [
    "Catalog",
    "Estimate",
    "FitAnswer",
    "FitRequest",
    "ModelsAnswer",
    "ModelsRequest",
    "SizingCard",
    "builtin",
    "estimate",
    "fit",
    "load_catalog",
    "models",
]

C = TypeVar("C", bound=msgspec.Struct)


@cache
def builtin() -> Catalog:
    """The catalogue of this version, loaded once."""
    return load_catalog()


def estimate(card: SizingCard | Mapping[str, Any], *, catalog: Catalog | None = None) -> Estimate:
    """
    Memory of one workload on one placement.

    Args:
        card: The question, as a Struct or as the JSON object of POST /estimate.
        catalog: Facts, such as `load_catalog(Path("overlay"))`; the built-in ones when omitted.

    Returns:
        The answer of /estimate.

    Raises:
        SizingError: A name is unknown, the card contradicts itself, or no law covers it.
        msgspec.ValidationError: The object is not a card.
    """
    return evidence.estimate(catalog or builtin(), _typed(card, SizingCard))


def fit(request: FitRequest | Mapping[str, Any], *, catalog: Catalog | None = None) -> FitAnswer:
    """
    Packages that serve a card, and why the others do not.

    Args:
        request: The question, as a Struct or as the JSON object of POST /fit.
        catalog: Facts; the built-in ones when omitted.

    Returns:
        The answer of /fit.

    Raises:
        SizingError: A name is unknown, the request contradicts itself, or no law covers it.
        msgspec.ValidationError: The object is not a request.
    """
    return fitting.fit(catalog or builtin(), _typed(request, FitRequest))


def models(request: ModelsRequest | Mapping[str, Any], *, catalog: Catalog | None = None) -> ModelsAnswer:
    """
    Models of the catalogue that a GPU serves.

    Args:
        request: Settings and a GPU, as a Struct or as the JSON object of POST /fit/models.
        catalog: Facts; the built-in ones when omitted.

    Returns:
        The answer of /fit/models.

    Raises:
        SizingError: A name is unknown, or the settings can be put to no model.
        msgspec.ValidationError: The object is not a request.
    """
    return fitting.models(catalog or builtin(), _typed(request, ModelsRequest))


def _typed(question: C | Mapping[str, Any], struct: type[C]) -> C:
    return question if isinstance(question, struct) else msgspec.convert(question, struct)
