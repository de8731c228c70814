"""
Repositories that hold a copy of a known model: its name under another owner, or with the format it was packed in behind it.

The endings are facts of the formats; what a name stands for is said as an assumption and has to be confirmed.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tonnage.catalog.contents import Catalog
from tonnage.spec.facts import ModelFacts


class Copy(NamedTuple):
    """What the name of a repository says."""

    of: ModelFacts
    weight_format: str | None
    """Format that the name ends in; None: the model's own."""


def copy_of(catalog: Catalog, name: str) -> Copy | None:
    """
    The known model that a repository is a copy of by its name.

    Args:
        catalog: The facts.
        name: Repository id that no record has.

    Returns:
        Model and format; None when the name says nothing.
    """
    owner, slash, title = name.rpartition("/")
    bare, weight_format = _unpacked(catalog, title)
    if weight_format is None and not slash:
        return None
    for base in _spellings(bare):
        own = catalog.models.find(f"{owner}/{base}") if slash else None
        facts = own or catalog.models.find(base)
        if facts is not None:
            return Copy(facts, weight_format)
    return None


def _unpacked(catalog: Catalog, title: str) -> tuple[str, str | None]:
    """A name without the ending of a format, the longest that fits."""
    folded = title.lower()
    endings = [(e, form.id) for form in catalog.formats for e in form.endings if folded.endswith(e.lower())]
    if not endings:
        return title, None
    ending, weight_format = max(endings, key=lambda pair: len(pair[0]))
    return title[: -len(ending)], weight_format


def _spellings(base: str) -> Iterator[str]:
    """Names that copies leave a part of: Llama's first ones begin with Meta-, its older ones end in -hf."""
    yield base
    yield f"{base}-hf"
    yield f"Meta-{base}"
    if base.lower().startswith("meta-"):
        yield base[len("Meta-") :]
