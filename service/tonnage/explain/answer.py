"""An estimate with the derivation of each of its items."""

from collections.abc import Iterator

from msgspec.structs import replace

from tonnage import evidence
from tonnage.catalog import Catalog, resolve
from tonnage.explain.counts import counts_of
from tonnage.explain.derivation import Scene, derivation
from tonnage.explain.watch import watched
from tonnage.spec.card import SizingCard
from tonnage.spec.hub import Fetch
from tonnage.spec.report import Estimate, MemoryItem


def explained(catalog: Catalog, card: SizingCard, *, fetch: Fetch | None = None) -> Estimate:
    """
    Estimate a card and show how each item follows.

    Args:
        catalog: The facts to resolve names against.
        card: The question.
        fetch: Who to ask for models that the catalogue does not hold; None: nobody.

    Returns:
        The answer of /estimate with `derivations`.

    Raises:
        SizingError: A name is unknown, the card contradicts itself, or no law covers it.
    """
    answer, applied = watched(lambda: evidence.estimate(catalog, card, fetch=fetch))
    scene = Scene(applied, counts_of(resolve(catalog, card, fetch=fetch), answer), answer)
    return replace(answer, derivations=tuple(derivation(item, scene) for item in _items(answer)))


def _items(answer: Estimate) -> Iterator[MemoryItem]:
    seen: set[tuple[str, str, int, str]] = set()
    for item in (item for gpu in answer.gpus for phase in gpu.phases for item in phase.items):
        key = (item.component, item.law, item.bytes.expected, item.detail)
        if key not in seen:
            seen.add(key)
            yield item
