"""What the Hub's documents say, read strictly where it matters and not at all where it does not."""

from typing import Any

import msgspec
from msgspec import Struct

from tonnage.errors import MissingFact, SourceUnavailable
from tonnage.spec.hub import HubModel

INLINE = 'pass its config.json as {"model": {"config": {...}}}'

_HALF_BYTES = {
    "F64": 16, "I64": 16, "U64": 16, "F32": 8, "I32": 8, "U32": 8, "BF16": 4, "F16": 4, "I16": 4, "U16": 4,
    "F8_E4M3": 2, "F8_E5M2": 2, "F8_E8M0": 2, "I8": 2, "U8": 2, "BOOL": 2, "F4": 1,
}  # fmt: skip
"""Size of an element by safetensors dtype. [half bytes]"""


class Safetensors(Struct, frozen=True):
    """Elements of a repository's tensors by dtype, as the Hub counts them."""

    parameters: dict[str, int] = {}
    total: int | None = None


class CardData(Struct, frozen=True):
    """Of a model card: its licence."""

    license: str | list[str] | None = None


class Listing(Struct, frozen=True, rename={"card_data": "cardData"}):
    """Description of a repository."""

    sha: str | None = None
    safetensors: Safetensors | None = None
    card_data: CardData | None = None


class IndexMetadata(Struct, frozen=True):
    """Head of a safetensors index."""

    total_size: int | float | None = None
    total_parameters: int | float | None = None


class Index(Struct, frozen=True):
    """A safetensors index without its map."""

    metadata: IndexMetadata = IndexMetadata()


def decoded_config(name: str, body: bytes) -> dict[str, Any]:
    """
    A config.json.

    Args:
        name: Whose, for messages.
        body: As received.

    Returns:
        Its keys.

    Raises:
        SourceUnavailable: Not JSON at all: something else than a Hub answers.
        MissingFact: JSON, but not an object.
    """
    try:
        config = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SourceUnavailable(f"config.json of {name} is not JSON; {INLINE}") from error
    if not isinstance(config, dict):
        raise MissingFact(f"config.json of {name} is not an object; {INLINE}")
    return config


def decoded_index(body: bytes | None) -> IndexMetadata:
    """Head of a safetensors index; empty where there is none that can be read."""
    try:
        return msgspec.json.decode(body, type=Index).metadata if body else IndexMetadata()
    except (msgspec.DecodeError, RecursionError):
        return IndexMetadata()


def hub_model(
    *, name: str, revision: str, config: dict[str, Any], listing: Listing | None, index: IndexMetadata, endpoint: str
) -> HubModel:
    """Facts of a repository from its documents; sizes from the description, else from the index."""
    tensors = listing.safetensors if listing else None
    by_dtype = tensors.parameters if tensors else {}
    listed = _tensor_bytes(by_dtype)
    card = listing.card_data if listing else None
    return HubModel(
        id=name,
        revision=revision,
        config=config,
        parameters=_count(tensors.total if tensors else index.total_parameters) or sum(by_dtype.values()) or None,
        weight_bytes=listed if listed is not None else _count(index.total_size),
        licence=card.license if card and isinstance(card.license, str) else None,
        source=f"{endpoint}/{name} config.json at {revision}",
    )


def _tensor_bytes(elements: dict[str, int]) -> int | None:
    if not elements or any(dtype not in _HALF_BYTES or count < 0 for dtype, count in elements.items()):
        return None
    return -(-sum(_HALF_BYTES[dtype] * count for dtype, count in elements.items()) // 2)


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and value > 0 else None
