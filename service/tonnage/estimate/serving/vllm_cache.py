"""vLLM's block pool for one model: classes of layers, their groups, what a block costs and what a request takes."""

from collections.abc import Iterator
from math import lcm
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tonnage.errors import Unsupported
from tonnage.estimate.caches import decoder_groups, layer_cache_bytes_per_token, layer_state_bytes
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.weights import StageWeights
from tonnage.laws import compressed_blocks, kv_blocks, kv_cache
from tonnage.spec.facts import KvFormat
from tonnage.spec.model import Layer, Model
from tonnage.units import round_up

Kind = Literal["full", "sliding", "chunked", "recurrent", "cross"]
_WITH_OWN_GROUPS: dict[str, frozenset[str]] = {
    "none": frozenset(),
    "sliding": frozenset({"sliding"}),
    "chunked": frozenset({"sliding", "chunked"}),
}
_SPARSE_FP8_ROW = 656
"""fp8_ds_mla: 512 fp8 elements, 4 fp32 scales, 64 bf16 rotary elements. [bytes/token]"""


class CacheClass(Struct, frozen=True, kw_only=True):
    """Layers with one cache specification."""

    kind: Kind
    token_bytes: int = 0
    """Of one layer on one rank; 0 for recurrent layers. [bytes/token]"""
    state_bytes: int = 0
    """Of one sequence in one layer on one rank. [bytes]"""
    window: int = 0
    """Window, chunk or encoder length. [tokens]"""
    block_size: int = 0
    every_state: bool = False
    """The prefix cache keeps a state for every block."""
    layers: tuple[int, ...] = ()

    @property
    def page(self) -> int:
        """One layer's part of a block. [bytes]"""
        if self.kind == "recurrent":
            return self.state_bytes
        return kv_blocks.page(block_size=self.block_size, bytes_per_token=self.token_bytes)

    @property
    def grows(self) -> bool:
        """Takes more blocks with every token."""
        return self.kind == "full" or self.every_state

    def request_blocks(self, tokens: int, in_flight: int, spare_states: int) -> int:
        """Blocks that one request takes in one group of the class. [blocks]"""
        if self.kind == "recurrent":
            kept = kv_blocks.full_attention_blocks(tokens=tokens, block_size=self.block_size) if self.every_state else 1
            return kept - 1 + kv_blocks.recurrent_blocks(spare_states=spare_states)
        size, window = self.block_size, self.window
        if self.kind == "sliding":
            return kv_blocks.sliding_window_blocks(
                tokens=tokens, window=window, in_flight_tokens=in_flight, block_size=size
            )
        if self.kind == "chunked":
            return kv_blocks.chunked_local_blocks(
                tokens=tokens, chunk=window, in_flight_tokens=in_flight, block_size=size
            )
        return kv_blocks.full_attention_blocks(tokens=window if self.kind == "cross" else tokens, block_size=size)


class Layout(Struct, frozen=True, kw_only=True):
    """How the pool is cut on every pipeline stage."""

    __hash__ = object.__hash__  # `layout` remembers them: what is made of them is found by identity

    classes: tuple[CacheClass, ...]
    groups: tuple[int, ...]
    """Groups of each class. [unitless]"""
    stage_pages: tuple[tuple[int, int], ...]
    """By stage: page and layers that share a block; the layers are 1 where unequal pages are summed. [bytes, layers]"""
    block_size: int
    """Smallest block of the groups, which the log counts in. [tokens]"""
    token_bytes: tuple[int, ...]
    """Cache of one token by stage, windows not full. [bytes/token]"""
    state_bytes: tuple[int, ...]
    """Recurrent state of one sequence by stage. [bytes]"""
    states_apart: bool = False
    """Recurrent states are kept beside the pool, for as many requests as may run."""
    printed_weights: tuple[int, ...] = ()
    """Bytes of each class by which the log weighs its blocks; none where it counts blocks. [bytes]"""

    @property
    def group_count(self) -> int:
        """Groups of all classes. [unitless]"""
        return sum(self.groups)

    @property
    def recurrent_groups(self) -> int:
        """Groups of recurrent layers. [unitless]"""
        if self.states_apart or not any(self.state_bytes):
            return 0
        return sum(n for c, n in zip(self.classes, self.groups, strict=True) if c.kind == "recurrent")

    def block_bytes(self, stage: int) -> int:
        """What a block costs on a stage. [bytes]"""
        page, layers = self.stage_pages[stage]
        return page * layers

    def blocks(self, pool: int, stage: int) -> int:
        """Blocks that a stage's pool holds. [blocks]"""
        page, layers = self.stage_pages[stage]
        return kv_blocks.blocks(pool=pool, page_bytes=page, group_size=layers) if layers else 1

    def request_blocks(self, tokens: int, in_flight: int, spare_states: int) -> int:
        """Blocks that one request of a length takes. [blocks]"""
        blocks = 0
        for cached, count in zip(self.classes, self.groups, strict=True):
            blocks += count * cached.request_blocks(tokens, in_flight, spare_states)
        return blocks

    def printed_request_blocks(self, tokens: int, in_flight: int, spare_states: int) -> int:
        """Blocks of one request by which the log divides. [blocks]"""
        if not self.printed_weights:
            return self.request_blocks(tokens, in_flight, spare_states)
        return compressed_blocks.weighted_blocks(
            class_blocks=[c.request_blocks(tokens, in_flight, spare_states) for c in self.classes],
            class_bytes=self.printed_weights,
        )


@remembered()
def layout(
    model: Model,
    k_format: KvFormat,
    v_format: KvFormat,
    stages: tuple[StageWeights, ...],
    *,
    tensor_parallel_size: int,
    block_size: int,
    hybrid: str,
    element_bytes: int,
    align: int,
    every_state: bool = False,
    mla_row_multiple: int = 1,
    mla_head_width: int | None = None,
    states_apart: bool = False,
    draft_layers: int = 0,
    draft_token_bytes: int = 0,
) -> Layout:
    """
    The pool's layout for a model on a placement.

    Args:
        model: Architecture.
        k_format: Cache type of keys.
        v_format: Cache type of values.
        stages: Pipeline stages with their layers.
        tensor_parallel_size: Ranks. [unitless]
        block_size: Tokens of a block where nothing enlarges it. [tokens]
        hybrid: Which layers get groups of their own: none, sliding, chunked.
        element_bytes: dtype of the model. [bytes]
        align: Block alignment of the attention kernel beside recurrent layers. [tokens]
        every_state: The prefix cache keeps a recurrent state for every block.
        mla_row_multiple: A token's latent is padded to a multiple of this. [bytes]
        mla_head_width: Width of every head's key and value where latents are not cached; 0: that of keys. [elements]
        states_apart: Recurrent states have a place of their own, beside the pool.
        draft_layers: Layers of a draft, cached beside the model's on the last stage. [layers]
        draft_token_bytes: Cache of one token in one of them. [bytes/token]

    Returns:
        Classes, groups and costs.
    """
    found: dict[CacheClass, list[int]] = {}
    for group, _ in decoder_groups(model):
        for cached in _classes_of(
            model, group.layer, (k_format, v_format), tensor_parallel_size, element_bytes, mla_head_width=mla_head_width
        ):
            found.setdefault(_padded(cached, mla_row_multiple), []).extend(group.indices)
    apart = _without_states(found) if states_apart else {}
    drafted = tuple(range(model.num_hidden_layers, model.num_hidden_layers + draft_layers))
    if drafted and draft_token_bytes:
        found.setdefault(CacheClass(kind="full", token_bytes=draft_token_bytes), []).extend(drafted)
    merged = _merged(found, _WITH_OWN_GROUPS[hybrid])
    if every_state:
        align = lcm(align, _state_chunk(model))
    classes = _with_blocks(
        [
            replace(c, layers=tuple(sorted(layers)), every_state=every_state and c.kind == "recurrent")
            for c, layers in merged.items()
        ],
        block_size,
        align,
    )
    held = (*(stage.layers for stage in stages[:-1]), stages[-1].layers + drafted)
    groups, stage_pages = _shared(classes, held)
    beside = apart or found
    states = [replace(c, layers=tuple(layers)) for c, layers in beside.items() if c.kind == "recurrent"]
    return Layout(
        classes=classes,
        groups=groups,
        stage_pages=stage_pages,
        block_size=min((c.block_size for c in classes if c.kind != "recurrent"), default=block_size),
        token_bytes=tuple(sum(c.token_bytes * _held(c, layers) for c in classes) for layers in held),
        state_bytes=tuple(sum(c.state_bytes * _held(c, layers) for c in states) for layers in held),
        states_apart=bool(apart),
    )


def _without_states(found: dict[CacheClass, list[int]]) -> dict[CacheClass, list[int]]:
    """Takes recurrent classes out of those that share the pool; returns them."""
    return {cached: found.pop(cached) for cached in [c for c in found if c.kind == "recurrent"]}


def _classes_of(
    model: Model,
    layer: Layer,
    formats: tuple[KvFormat, KvFormat],
    ranks: int,
    element_bytes: int,
    *,
    mla_head_width: int | None,
) -> Iterator[CacheClass]:
    per_token = layer_cache_bytes_per_token(layer, *formats, ranks)
    attention = layer.attention
    if per_token and attention is not None:
        if attention.kind == "mla" and mla_head_width is not None:
            width = max(mla_head_width, attention.head_dim)
            per_token = kv_cache.full_attention(
                num_key_value_heads=attention.num_attention_heads,
                key_bytes=formats[0].row_bytes(width),
                value_bytes=formats[1].row_bytes(width),
                tensor_parallel_size=ranks,
            )
        elif attention.kind == "mla" and attention.index_head_dim and formats[0].row_bytes(2) == 2:
            per_token = kv_cache.mla(
                latent_bytes=_SPARSE_FP8_ROW,
                index_key_bytes=kv_cache.index_key(index_head_dim=attention.index_head_dim),
            )
        kind: Kind = attention.kind if attention.kind in ("sliding", "chunked") else "full"
        yield CacheClass(kind=kind, token_bytes=per_token, window=attention.window or 0)
    if layer.cross_attention is not None and model.max_source_positions:
        cross = layer.cross_attention
        rows = formats[0].row_bytes(cross.head_dim), formats[1].row_bytes(cross.v_head_dim)
        size = kv_cache.full_attention(
            num_key_value_heads=cross.num_key_value_heads,
            key_bytes=rows[0],
            value_bytes=rows[1],
            tensor_parallel_size=ranks,
        )
        yield CacheClass(kind="cross", token_bytes=size, window=model.max_source_positions)
    if layer.recurrent is not None:
        state = layer_state_bytes(
            layer.recurrent,
            conv_bytes=element_bytes,
            state_bytes=state_element_bytes(model, layer.recurrent.kind, element_bytes),
            tensor_parallel_size=ranks,
        )
        yield CacheClass(kind="recurrent", state_bytes=state)


def _padded(cached: CacheClass, multiple: int) -> CacheClass:
    """A class whose rows are padded to a multiple of bytes."""
    return replace(cached, token_bytes=round_up(cached.token_bytes, multiple)) if multiple > 1 else cached


def _state_chunk(model: Model) -> int:
    """Chunk that the recurrent kernel computes at once, which blocks with a state each are multiples of. [tokens]"""
    chunks = [g.layer.recurrent.chunk_size for g in model.layers if g.layer.recurrent is not None]
    return next((chunk for chunk in chunks if chunk), 1)


def state_element_bytes(model: Model, kind: str, element_bytes: int) -> int:
    """Element width of recurrent states: what the config says, fp32 for KDA, else the model's own. [bytes]"""
    text = model.config.get("text_config") or model.config
    stated = text.get("mamba_ssm_dtype") or text.get("mamba_ssm_cache_dtype")
    if stated == "float32" or kind == "kda":
        return 4
    return element_bytes


def _merged(found: dict[CacheClass, list[int]], own: frozenset[str]) -> dict[CacheClass, list[int]]:
    """Classes that get no groups of their own beside full attention count as full."""
    if len({c.kind for c in found}) == 1:
        return found
    merged: dict[CacheClass, list[int]] = {}
    for cached, layers in found.items():
        keeps = cached.kind in ("full", "recurrent", "cross") or cached.kind in own
        key = cached if keeps else replace(cached, kind="full", window=0)
        merged.setdefault(key, []).extend(layers)
    return merged


def _with_blocks(classes: list[CacheClass], block_size: int, align: int) -> tuple[CacheClass, ...]:
    """Block sizes: grown beside recurrent layers, then until all pages are equal."""
    state = max((c.state_bytes for c in classes if c.kind == "recurrent"), default=0)
    attention = [c for c in classes if c.kind != "recurrent"]
    if state and attention:
        smallest = min(c.token_bytes for c in attention)
        grown = kv_blocks.hybrid_block_size(state_bytes=state, bytes_per_token=smallest, align=align)
        block_size = max(block_size, grown)
    sized = [replace(c, block_size=block_size) for c in classes]
    kinds = {(c.kind, c.window) for c in sized}
    if len(kinds) <= 1 and not state:
        return tuple(sized)
    page = max(c.page for c in sized)
    return tuple(_paged(c, page) for c in sized)


def _paged(cached: CacheClass, page: int) -> CacheClass:
    if cached.kind == "recurrent":
        return replace(cached, state_bytes=page)
    if page % cached.page:
        raise Unsupported(
            f"cache pages of {cached.page} and {page} bytes cannot be made equal",
            ("models whose cache pages divide one another",),
        )
    return replace(cached, block_size=cached.block_size * (page // cached.page))


def _shared(
    classes: tuple[CacheClass, ...], stages: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Groups of every class, and by stage the page and the layers that share a block."""
    if not classes:
        return (), ((0, 0),) * len(stages)
    if len({(c.kind, c.window) for c in classes}) == 1:
        if len(classes) == 1:
            return (1,), tuple((classes[0].page, _held(classes[0], stage)) for stage in stages)
        summed = tuple((sum(c.page * _held(c, stage) for c in classes), 1) for stage in stages)
        return (1, *(0,) * (len(classes) - 1)), summed
    size = kv_blocks.group_size(class_layers=[len(c.layers) for c in classes])
    groups = tuple(kv_blocks.group_count(layers=len(c.layers), group_size=size) for c in classes)
    largest = tuple(
        max(_largest_part(c, count, stage) for c, count in zip(classes, groups, strict=True)) for stage in stages
    )
    return groups, tuple((classes[0].page, layers) for layers in largest)


def _largest_part(cached: CacheClass, groups: int, stage: tuple[int, ...]) -> int:
    """Layers of the largest of a class's groups on a stage; groups take every n-th layer. [layers]"""
    held = frozenset(stage)
    return max(sum(layer in held for layer in cached.layers[i::groups]) for i in range(groups))


def _held(cached: CacheClass, stage: tuple[int, ...]) -> int:
    held = frozenset(stage)
    return sum(layer in held for layer in cached.layers)
