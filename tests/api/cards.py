"""Cards made of real names and any settings the wire types allow, for fuzzing below the decoder."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from tonnage.catalog import Catalog
from tonnage.spec.card import ModelCard

Strategy = st.SearchStrategy[Any]

_USUAL_INTEGERS = (1, 2, 3, 4, 7, 8, 16, 64, 128, 1000, 4096, 8192, 131_072)
_MAX_ITEMS = 3


class Cards:
    """Strategies for Structs; text fields draw from pools by field name."""

    def __init__(self, catalog: Catalog, models: Sequence[str]) -> None:
        dtypes = ["auto", "bf16", "fp16", "fp32", "bfloat16", "float16", "fp8", "fp8_e4m3", "q8_0", "f16", "int8"]
        modules = [
            "q_proj",
            "k_proj",
            "v_proj",
            "o_proj",
            "gate_proj",
            "up_proj",
            "down_proj",
            "all-linear",
            "lm_head",
            "nothing",
        ]
        self.pools: Mapping[str, Sequence[str]] = {
            "model": models,
            "id": models,
            "gpu": [gpu.id for gpu in catalog.gpus],
            "gpus": [gpu.id for gpu in catalog.gpus],
            "format": [fmt.id for fmt in catalog.formats],
            "weight_formats": [fmt.id for fmt in catalog.formats],
            "weights_format": [fmt.id for fmt in catalog.formats],
            "optimizer": [optimizer.id for optimizer in catalog.optimizers],
            "sku": [package.id for package in catalog.packages],
            "skus": [package.id for package in catalog.packages],
            "providers": sorted({package.provider for package in catalog.packages}),
            "regions": ["us-east-1", "global"],
            "target_modules": modules,
            "modules_to_save": modules,
            "engine_version": ["0.19.0", "0.8.5", "0.6.3", "b6000", "2025-04", "99.0", "1.0"],
            "framework_version": ["0.6.1", "2024-09", "4.46.0", "99.0"],
            "attn_implementation": ["eager", "sdpa", "flash_attention_2", "none"],
            "method": ["eagle", "ngram", "draft_model", "mtp", "medusa", "nothing"],
            "revision": ["main"],
            "price": ["1.5", "47.14"],
            "max_price": ["500 USD", "2 EUR"],
            "duration": ["3 days", "12 hours", "2 weeks", "1 month"],
            "min_bandwidth": ["2 TB/s"],
        }
        self.configs = [catalog.models.get(name).config for name in models]
        self.sizes = ["6 GiB", "24 GB", "512 MiB", "0 B"]
        self.names = [*dtypes, "x"]
        self.dates = ["2026-01-01", "2027-06-30"]

    def of(self, struct: type[msgspec.Struct], *, without: frozenset[str] = frozenset()) -> Strategy:
        """JSON documents of a Struct: required fields always, any few of the others."""
        return self._struct(inspect.type_info(struct), without)

    def _struct(self, kind: Any, without: frozenset[str] = frozenset()) -> Strategy:
        needed: dict[str, Strategy] = {}
        free: dict[str, Strategy] = {}
        if kind.tag_field is not None:
            needed[kind.tag_field] = st.just(kind.tag)
        for field in kind.fields:
            if field.encode_name not in without:
                (needed if field.required else free)[field.encode_name] = st.deferred(
                    lambda field=field: self._value(field.encode_name, field.type)
                )
        few = st.lists(st.sampled_from(sorted(free)), max_size=6, unique=True) if free else st.just([])
        return few.flatmap(lambda names: st.fixed_dictionaries(needed | {name: free[name] for name in names}))

    def _value(self, name: str, kind: Any) -> Strategy:
        match kind:
            case inspect.Metadata():
                return self._value(name, kind.type)
            case inspect.StructType() if kind.cls is ModelCard:
                return self._model()
            case inspect.StructType():
                return self._struct(kind)
            case inspect.UnionType():
                return st.one_of([self._value(name, part) for part in kind.types])
            case inspect.NoneType():
                return st.none()
            case inspect.BoolType():
                return st.booleans()
            case inspect.LiteralType():
                return st.sampled_from(kind.values)
            case inspect.IntType():
                return self._integer(kind)
            case inspect.FloatType():
                return self._number(kind)
            case inspect.ListType():
                return st.lists(self._value(name, kind.item_type), min_size=kind.min_length or 0, max_size=_MAX_ITEMS)
            case inspect.DictType():
                return st.just({})
            case inspect.DecimalType():
                return st.sampled_from(["1.5", "47.14", "0.000001"])
        return st.sampled_from(self._texts(name, kind))

    def _model(self) -> Strategy:
        """Objects with exactly one of their ways to name a model."""
        return st.one_of(
            st.fixed_dictionaries({"id": st.sampled_from(self.pools["model"])}),
            st.fixed_dictionaries({"parameters": st.integers(1, 10**12)}),
            st.fixed_dictionaries({"config": st.sampled_from(self.configs)}),
        )

    def _integer(self, kind: Any) -> Strategy:
        low, high = kind.ge or 0, kind.le or 10**15
        usual = [n for n in _USUAL_INTEGERS if low <= n <= high] or [low]
        return st.one_of(st.sampled_from(usual), st.sampled_from([low, high]), st.integers(low, high))

    def _number(self, kind: Any) -> Strategy:
        low = kind.ge if kind.ge is not None else (kind.gt if kind.gt is not None else -1e6)
        high = kind.le if kind.le is not None else (kind.lt if kind.lt is not None else 1e6)
        return st.floats(low, high, exclude_min=kind.gt is not None, exclude_max=kind.lt is not None)

    def _texts(self, name: str, kind: Any) -> Sequence[str]:
        pattern = getattr(kind, "pattern", None) or ""
        if name in self.pools:
            return self.pools[name]
        if "GiB" in pattern:
            return self.sizes
        if r"\d{4}-" in pattern:
            return self.dates
        return self.names
