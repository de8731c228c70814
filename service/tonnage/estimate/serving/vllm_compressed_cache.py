"""vLLM's block pool for models whose layers keep a window and a compressed past (DeepSeek-V4)."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from tonnage.estimate.caches import decoder_groups
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.vllm_cache import CacheClass, Layout
from tonnage.estimate.weights import StageWeights
from tonnage.laws import compressed_blocks as law
from tonnage.spec.model import Attention, Model
from tonnage.units import ceil_div

Rule = Literal["tuples", "packed", "widest"]
BLOCK = 256
"""The one block size that the kernel reads. [tokens]"""


class _Part(Struct, frozen=True):
    """Layers of a class with one page."""

    page: int
    """Size. [bytes]"""
    layers: tuple[int, ...]


class _Class(Struct, frozen=True):
    """Layers with one cache specification but for the page."""

    cached: CacheClass
    parts: tuple[_Part, ...]

    @property
    def depth(self) -> int:
        """Layers of the commonest page. [layers]"""
        return max(len(part.layers) for part in self.parts)

    @property
    def repeats(self) -> bool:
        """As many layers of every page."""
        return len({len(part.layers) for part in self.parts}) == 1


@remembered()
def is_compressed(model: Model) -> bool:
    """
    Whether layers of a model compress their past.

    Args:
        model: Architecture.

    Returns:
        Its pool is cut by this module.
    """
    return any(True for _ in _attentions(model))


@remembered()
def compressed_layout(
    model: Model, stages: tuple[StageWeights, ...], *, rule: Rule, by_bytes: bool, block_size: int, draft_layers: int
) -> Layout:
    """
    The pool's layout.

    Args:
        model: Architecture.
        stages: Pipeline stages with their layers.
        rule: What a block costs: for as many layers as the deepest group has a page of every size; for each size as
            many as a group has; or the widest group.
        by_bytes: The log's concurrency weighs classes by their bytes.
        block_size: Tokens of a block of the compressed past. [tokens]
        draft_layers: Layers of a draft on the last stage, with a window each. [layers]

    Returns:
        Classes, groups and costs.
    """
    drafted = tuple(range(model.num_hidden_layers, model.num_hidden_layers + draft_layers))
    whole, *capped = _classes(model, block_size, drafted)
    if rule != "widest":
        capped = [_padded(c, whole) for c in capped]
    classes = (whole, *capped)
    size = _layers_per_group(classes, rule)
    groups = (1, *(ceil_div(c.depth, size) for c in capped))
    held = [frozenset(stage.layers) for stage in stages[:-1]] + [frozenset(stages[-1].layers + drafted)]
    return Layout(
        classes=tuple(c.cached for c in classes),
        groups=groups,
        stage_pages=tuple((_block_bytes(classes, groups, stage, rule), 1) for stage in held),
        block_size=block_size,
        token_bytes=tuple(
            ceil_div(sum(p.page * _held(p.layers, stage) for p in whole.parts), block_size) for stage in held
        ),
        state_bytes=(0,) * len(held),
        printed_weights=tuple(sum(p.page * len(p.layers) for p in c.parts) for c in classes) if by_bytes else (),
    )


def _attentions(model: Model) -> Iterator[tuple[Attention, tuple[int, ...]]]:
    for group, _ in decoder_groups(model):
        attention = group.layer.attention
        if attention is not None and attention.compress_ratio > 1:
            yield attention, tuple(group.indices)


def _classes(model: Model, block_size: int, drafted: tuple[int, ...]) -> list[_Class]:
    """The compressed past first, then windows and the compressors' open groups."""
    past: list[_Part] = []
    compressors: list[_Class] = []
    by_ratio: dict[int, tuple[Attention, tuple[int, ...]]] = {}
    for attention, layers in _attentions(model):
        ratio = attention.compress_ratio
        by_ratio[ratio] = attention, tuple(sorted(layers + by_ratio.get(ratio, (attention, ()))[1]))
    for ratio, (attention, layers) in by_ratio.items():
        rows, width, index = block_size // ratio, attention.head_dim, attention.index_head_dim
        past.append(_Part(law.row_page(rows=rows), layers))
        open_group = [_Part(law.state_page(compress_ratio=ratio, width=width), layers)]
        if index:
            past.append(_Part(law.index_page(rows=rows, index_head_dim=index), layers))
            open_group.append(_Part(law.state_page(compress_ratio=ratio, width=index), layers))
        cached = CacheClass(
            kind="sliding",
            window=law.overlap(compress_ratio=ratio) * ratio,
            block_size=law.state_block(compress_ratio=ratio),
            layers=layers,
        )
        compressors.append(_Class(cached, tuple(open_group)))
    everywhere = (*range(model.num_hidden_layers), *drafted)
    window = next((a.window for a, _ in by_ratio.values() if a.window), 0)
    windows = CacheClass(kind="sliding", window=window, block_size=law.WINDOW_BLOCK, layers=everywhere)
    return [
        _Class(
            CacheClass(kind="full", block_size=block_size, layers=tuple(sorted({n for p in past for n in p.layers}))),
            tuple(past),
        ),
        _Class(windows, (_Part(law.row_page(rows=law.WINDOW_BLOCK), everywhere),)),
        *compressors,
    ]


def _padded(small: _Class, whole: _Class) -> _Class:
    """A class whose pages are as large as the next of the compressed past."""
    sizes = sorted(part.page for part in whole.parts)
    return _Class(
        small.cached,
        tuple(_Part(next((s for s in sizes if s >= part.page), part.page), part.layers) for part in small.parts),
    )


def _layers_per_group(classes: tuple[_Class, ...], rule: Rule) -> int:
    counted = classes if rule != "widest" else tuple(c for c in classes if c.repeats)
    uncut = classes[:1] if rule != "widest" else tuple(c for c in counted if len(c.parts) > 1)
    return law.layers_per_group(
        class_layers=[c.depth for c in counted], at_least=max((c.depth for c in uncut), default=1)
    )


def _block_bytes(classes: tuple[_Class, ...], groups: tuple[int, ...], stage: frozenset[int], rule: Rule) -> int:
    """What a block costs on a stage. [bytes]"""
    widest, deepest = 0, dict.fromkeys((part.page for part in classes[0].parts), 0)
    for each, count in zip(classes, groups, strict=True):
        width = 0
        for part in each.parts:
            depth = max(_held(part.layers[i::count], stage) for i in range(count))
            width += part.page * depth
            deepest[part.page] = max(deepest.get(part.page, 0), depth)
        widest = max(widest, width)
    if rule == "widest":
        return widest
    if rule == "tuples":
        return sum(deepest) * max(deepest.values())
    return sum(page * depth for page, depth in deepest.items())


def _held(layers: tuple[int, ...], stage: frozenset[int]) -> int:
    return sum(layer in stage for layer in layers)
