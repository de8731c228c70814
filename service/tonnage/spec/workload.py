"""A card with every name resolved: what `tonnage.estimate` works on. It holds values, never the catalogue."""

from typing import Any

from msgspec import Struct

from tonnage.spec.card import Failure, Measurement, Placement, Serving, SizingCard, Training
from tonnage.spec.engine import Profile
from tonnage.spec.facts import Gpu, KvFormat, Optimizer, WeightFormat
from tonnage.spec.model import Model
from tonnage.spec.report import Assumption, Finding


class Workload(Struct, frozen=True, kw_only=True):
    """One resolved card. Made by `catalog.resolve`; `fit` derives others with msgspec.structs.replace."""

    card: SizingCard
    model: Model
    weight_format: WeightFormat
    weight_bytes: int | None = None
    """Size of a known weights file; overrides the computed total. [bytes]"""
    serving: Serving | None = None
    training: Training | None = None
    profile: Any = None
    """Engine or framework facts of the version at hand: a spec.engine or spec.framework record."""
    tool: Profile | None = None
    """The engine or framework itself: what it runs on, its images; None: neither is stated."""
    profile_certain: bool = True
    """False when the version is newer than any profile: the newest is used and confirmation is needed."""
    kv_formats: tuple[KvFormat, KvFormat] | None = None
    """Cache formats of keys and values; None for "auto" (the model's dtype)."""
    optimizer: Optimizer | None = None
    draft: Model | None = None
    placement: Placement
    gpu: Gpu | None = None
    namesakes: tuple[Gpu, ...] = ()
    """Boards of another memory that the name of the GPU stands for as well."""
    reserve_bytes: int = 0
    reserve_fraction: float = 0.0
    measurements: tuple[Measurement, ...] = ()
    failure: Failure | None = None
    assumptions: tuple[Assumption, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What resolving already found in need of confirmation: recalled or generically read architectures, unknown drafts."""
    unknowns: tuple[str, ...] = ()
    """What the card names and nobody knows; left out of the account and listed."""
    catalog_version: str = ""
    formats: dict[str, WeightFormat] = {}
    """Formats a file-mix refers to by id (GGUF tensor types), and bf16/fp16/fp32 for what stays plain."""
