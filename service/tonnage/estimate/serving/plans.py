"""The part of an account that traffic does not change, worked out once for each set of settings."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from tonnage.kept import Kept
from tonnage.spec.workload import Workload

P = TypeVar("P")

_TRAFFIC = frozenset({"concurrency", "input_tokens", "output_tokens", "shared_prefix_tokens"})
_NESTED = frozenset({"lora", "speculative", "multimodal", "cudagraph_capture_sizes", "kv_cache_dtype"})
_PLACEMENT = attrgetter(
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "expert_parallel_size",
    "context_parallel_size",
)
_MOST = 4096


class Plans(Generic[P]):
    """
    Plans of one engine, by the settings they were made for.

    Args:
        build: Works a plan out; looks at nothing of a workload but facts, placement and settings, and at what is given.
        settings: The engine's card type.
        apart: Fields that the plan knows by what is given only.
    """

    def __init__(
        self, build: Callable[..., P], settings: type[msgspec.Struct], apart: frozenset[str] = frozenset()
    ) -> None:
        self._build = build
        names = [n for n in settings.__struct_fields__ if n not in _TRAFFIC | apart]
        self._plain = attrgetter(*(n for n in names if n not in _NESTED))
        self._nested = attrgetter(*(n for n in names if n in _NESTED))
        self._families: Kept[tuple[Any, ...], tuple[Workload, object]] = Kept(_MOST)
        self._kept: Kept[tuple[Any, ...], tuple[Workload, P]] = Kept(_MOST)

    def of(self, workload: Workload, *given: object) -> P:
        """
        The plan of a workload; workloads with the same settings share one.

        Args:
            workload: Resolved card for the engine.
            given: What the plan is built from beside the workload.

        Returns:
            Plan.
        """
        return self.of_family(self.family(workload), workload, *given)

    def family(self, workload: Workload) -> object:
        """What stands for all workloads that differ from one in GPU, placement and traffic only."""
        key = self._key(workload)
        kept = self._families.get(key)
        if kept is None:
            kept = self._families.keep(key, (workload, object()))
        return kept[1]

    def of_family(self, family: object, workload: Workload, *given: object) -> P:
        """The plan of a workload whose family is known."""
        key = (family, id(workload.gpu), _PLACEMENT(workload.placement), *given)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept.keep(key, (workload, self._build(workload, *given)))
        return kept[1]

    def _key(self, workload: Workload) -> tuple[Any, ...]:
        """Facts by identity (the workload kept beside the plan keeps them alive), settings by value."""
        nested = self._nested(workload.serving)
        plain = all(part is None or isinstance(part, str) for part in nested)
        return (
            id(workload.model),
            id(workload.weight_format),
            workload.weight_bytes,
            id(workload.profile),
            id(workload.draft),
            *(map(id, workload.kv_formats) if workload.kv_formats is not None else ()),
            self._plain(workload.serving),
            nested if plain else msgspec.json.encode(nested),
        )


__all__ = ["Plans"]
