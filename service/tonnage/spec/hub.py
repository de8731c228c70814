"""What the Hub tells of one repository, and who may be asked for it."""

from typing import Any, Protocol

from msgspec import Struct


class HubModel(Struct, frozen=True, kw_only=True):
    """One repository at one revision."""

    id: str
    revision: str
    """Commit the facts were read at, or the revision asked for where the Hub did not say."""
    config: dict[str, Any]
    parameters: int | None = None
    """Elements of the safetensors files. [unitless]"""
    weight_bytes: int | None = None
    """Bytes of the safetensors tensors. [bytes]"""
    licence: str | None = None
    source: str = "Hub"


class Fetch(Protocol):
    """Whoever has, or gets, a repository's facts."""

    def __call__(self, id: str, revision: str | None) -> HubModel:
        """Facts of a repository, or SourceUnavailable or UnknownName."""
        ...
