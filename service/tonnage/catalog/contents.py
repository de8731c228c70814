"""What exists, as one immutable value: every fact of the data files by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tonnage.catalog.lookup import Index
from tonnage.kept import Kept
from tonnage.spec.engine import Profile
from tonnage.spec.facts import Gpu, KvFormat, ModelFacts, Optimizer, Package, WeightFormat

KEPT = 4096
"""Resolved parts of cards kept in process. [unitless]"""


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """The facts of one load. Nothing in it changes; a reload makes another one."""

    version: str
    """Hash of the data files' content: same facts, same version."""
    gpus: Index[Gpu]
    packages: Index[Package]
    formats: Index[WeightFormat]
    kv_formats: Index[KvFormat]
    optimizers: Index[Optimizer]
    models: Index[ModelFacts]
    engines: Index[Profile]
    frameworks: Index[Profile]
    gpu_defaults: Mapping[str, Gpu]
    """Loose names of several boards, folded, and the board each is taken for."""
    instances: Mapping[str, Package]
    """Instance types as providers call them, folded: what a GPU may be named by."""
    resolved: Kept[Any, Any] = field(default_factory=lambda: Kept(KEPT), repr=False)
    """What `resolve` has worked out from these facts, by the part of the card it came from."""
    named: Kept[Any, Any] = field(default_factory=lambda: Kept(KEPT), repr=False)
    """Workloads of cards that name the same things; apart from `resolved`, so that many cards push out no model."""

    def remember(self, key: Any, value: Any) -> Any:
        """
        Keeps what a key stands for.

        Args:
            key: Part of a card.
            value: What it resolves to.

        Returns:
            The value.
        """
        return self.resolved.keep(key, value)
