"""Caches and compute buffers of the layers that one llama.cpp device holds."""

from typing import Any, NamedTuple

from msgspec import Struct

from tonnage.estimate import caches
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.llama_cpp_moments import (
    Kinds,
    Manner,
    Moment,
    attention_widths,
    expert_width,
    widest_moments,
)
from tonnage.laws import llama_cpp_cache, llama_cpp_graph
from tonnage.spec.facts import KvFormat
from tonnage.spec.model import Attention, LayerGroup, Model

_F32 = 4
_INDICES = 36
"""Positions, row numbers and output ids of one token. [bytes]"""
_OFFLOADED_BATCH = 32
"""Smallest batch that the CUDA backend fetches host tensors for (ggml-cuda.cu, offload_op min_batch_size). [tokens]"""
_INDEX_KEY_BYTES = 2
"""Keys of the sparse-attention indexer are f16. [bytes]"""


class Shape(Struct, frozen=True, kw_only=True):
    """What buffers depend on beside the layers; equal shapes are one object, made by `shape_of`."""

    __hash__ = object.__hash__  # what is remembered of a shape is found by identity

    context_tokens: int
    slots: int
    unified: bool
    micro_batch: int
    flash_attention: bool
    swa_full: bool
    draft_tokens: int
    padding: int
    latent_cache: bool
    sliding_cache: bool
    separate_f32_mask: bool
    value_indices: bool
    every_token: bool
    reserves_dequantized: bool = False
    raw_input: bool = False
    cells: int
    """Cells of one stream of a full layer. [cells]"""
    streams: int
    """Streams of the cache. [unitless]"""
    tokens: int
    """Tokens of one micro-batch. [tokens]"""

    def window_cells(self, window: int) -> int:
        """Cells of one stream of a sliding layer. [cells]"""
        return llama_cpp_cache.sliding_cells(
            stream_cells=self.cells,
            window=window,
            sequences=self.slots,
            unified=self.unified,
            micro_batch_tokens=self.micro_batch,
            padding=self.padding,
        )


@remembered(2048)
def shape_of(*, context_tokens: int, slots: int, unified: bool, padding: int, micro_batch: int, **others: Any) -> Shape:
    """The one shape with these fields, its cells, streams and tokens counted."""
    context = llama_cpp_cache.context_cells(context_tokens=context_tokens, padding=padding)
    cells = llama_cpp_cache.stream_cells(context_cells=context, sequences=slots, unified=unified, padding=padding)
    streams = 1 if unified else slots
    return Shape(
        context_tokens=context_tokens,
        slots=slots,
        unified=unified,
        padding=padding,
        micro_batch=micro_batch,
        cells=cells,
        streams=streams,
        tokens=min(micro_batch, cells * streams),
        **others,
    )


class Cache(Struct, frozen=True):
    """Caches of a device. [bytes]"""

    keys_and_values: int
    recurrent: int
    staging: int
    """f16 copy of the largest layer's cache while a quantized one is read."""


class Graph(Struct, frozen=True):
    """Compute buffer of a device. [bytes]"""

    activations: int
    logits: int
    inputs: int
    """Masks and indices of the micro-batch."""
    law: str
    plain: bool
    """Dense or expert layers with plain attention, whose buffers dry runs match."""
    hidden: int
    """Two rows of the stream for the micro-batch: what old builds may add."""

    @property
    def total(self) -> int:
        """[bytes]"""
        return self.activations + self.logits


@remembered()
def was_cached_expanded(model: Model) -> bool:
    """Whether a build or file without a latent cache exists: sparse attention came after it."""
    attentions = [group.layer.attention for group in model.layers if group.layer.attention is not None]
    return not any(attention.index_head_dim for attention in attentions)


@remembered()
def held(model: Model, layers: tuple[int, int]) -> tuple[tuple[LayerGroup, int], ...]:
    """Groups of decoder layers that a range holds, with how many."""
    first, last = layers
    if last - first == model.num_hidden_layers:
        return tuple(caches.decoder_groups(model))
    return tuple(caches.decoder_groups(model, range(first, last))) if last > first else ()


@remembered(8192)
def cache(model: Model, *, k: KvFormat, v: KvFormat, shape: Shape, layers: tuple[int, int]) -> Cache:
    """
    Caches of a range of layers.

    Args:
        model: Architecture.
        k: Cache type of keys.
        v: Cache type of values.
        shape: Context, slots and era.
        layers: First layer, and the one after the last.

    Returns:
        Keys and values, recurrent states, run-time staging.
    """
    total = recurrent = staging = 0
    copied = shape.flash_attention and (k.block_elements > 1 or v.block_elements > 1)
    for row in _cached_rows(model, k, v, shape.latent_cache, layers):
        if row.attention is not None:
            cells = layer_cells(row.attention, shape)
            total += row.layers * llama_cpp_cache.layer(
                cells=cells, streams=shape.streams, key_row_bytes=row.keys, value_row_bytes=row.values
            )
            if copied and row.keys:
                staging = max(staging, _staging(row.attention, cells * shape.streams))
        if row.state is not None:
            recurrent += row.layers * llama_cpp_cache.recurrent(
                state_bytes=row.state, sequences=shape.slots, draft_tokens=shape.draft_tokens
            )
    return Cache(total, recurrent, staging)


class _CachedRow(NamedTuple):
    """What layers of one kind cache."""

    layers: int
    attention: Attention | None
    keys: int
    """Of one token. [bytes]"""
    values: int
    """Of one token. [bytes]"""
    state: int | None
    """Of one sequence; None: not recurrent. [bytes]"""


@remembered()
def _cached_rows(
    model: Model, k: KvFormat, v: KvFormat, latent_cache: bool, layers: tuple[int, int]
) -> tuple[_CachedRow, ...]:
    found = []
    for group, count in held(model, layers):
        attention, recurrent = group.layer.attention, group.layer.recurrent
        keys, values = (0, 0) if attention is None else rows(attention, k, v, latent_cache)
        state = None if recurrent is None else caches.layer_state_bytes(recurrent, conv_bytes=_F32, state_bytes=_F32)
        found.append(_CachedRow(count, attention, keys, values, state))
    return tuple(found)


def layer_cells(attention: Attention, shape: Shape) -> int:
    """Cells of one stream of a layer. [cells]"""
    if attention.window is None or not _cuts_window(attention, shape):
        return shape.cells
    return shape.window_cells(attention.window)


def _cuts_window(attention: Attention, shape: Shape) -> bool:
    return attention.window is not None and shape.sliding_cache and not shape.swa_full


def rows(attention: Attention, k: KvFormat, v: KvFormat, latent_cache: bool) -> tuple[int, int]:
    """Keys and values of one token in one layer, all KV heads as one row. [bytes]"""
    if attention.kv_shared or attention.kind in ("encoder", "cross"):
        return 0, 0
    if attention.kind == "mla" and latent_cache:
        latent = k.row_bytes((attention.kv_lora_rank or 0) + (attention.qk_rope_head_dim or 0))
        return latent + _INDEX_KEY_BYTES * (attention.index_head_dim or 0), 0
    heads = attention.num_attention_heads if attention.kind == "mla" else attention.num_key_value_heads
    return k.row_bytes(heads * attention.head_dim), v.row_bytes(heads * attention.v_head_dim)


def _staging(attention: Attention, cells: int) -> int:
    if attention.kind == "mla":
        latent = (attention.kv_lora_rank or 0) + (attention.qk_rope_head_dim or 0)
        return llama_cpp_cache.dequantized_staging(
            cells=cells, num_key_value_heads=1, key_head_dim=latent, value_head_dim=0
        )
    return llama_cpp_cache.dequantized_staging(
        cells=cells,
        num_key_value_heads=attention.num_key_value_heads,
        key_head_dim=attention.head_dim,
        value_head_dim=attention.v_head_dim,
    )


@remembered(8192)
def graph(model: Model, *, shape: Shape, quantized_cache: bool, layers: tuple[int, int], with_output: bool) -> Graph:
    """
    Compute buffer of the device that holds a range of layers.

    Args:
        model: Architecture.
        shape: Context, slots and era.
        quantized_cache: Whether the cache is quantized.
        layers: First layer, and the one after the last.
        with_output: Whether the device makes the logits.

    Returns:
        The larger of the layer and the output stage.
    """
    kinds = _kinds(model, layers)
    inputs = _input_bytes(kinds, shape)
    manner = Manner(
        tokens=shape.tokens,
        slots=shape.slots,
        latent_cache=shape.latent_cache,
        reads_cache=shape.flash_attention and not quantized_cache,
        score_cells=() if shape.flash_attention else tuple([layer_cells(a, shape) for a in kinds.attentions]),
        raw_input=shape.raw_input,
        copies=quantized_cache and shape.flash_attention and shape.reserves_dequantized,
    )
    raw = llama_cpp_graph.raw_input(hidden_size=model.hidden_size) if shape.raw_input else 0
    moments = [_layer_stage(widest, shape, inputs + raw) for widest in widest_moments(kinds, manner)]
    moments += _copying(kinds, manner, shape, inputs + raw)
    stage, law = max(moments, default=(0, "layer_stage"))
    rows_of_output = llama_cpp_graph.output_rows(
        tokens=shape.tokens, slots=shape.slots, draft_tokens=shape.draft_tokens, every_token=shape.every_token
    )
    output = 0
    if with_output:
        output = llama_cpp_graph.output_stage(
            rows=rows_of_output,
            vocab_size=model.vocab_size,
            hidden_size=(2 if shape.raw_input else 1) * model.hidden_size,
        )
        output += shape.tokens * (inputs + raw) if shape.raw_input else 0
    hidden = 2 * _F32 * shape.tokens * model.hidden_size
    if output > stage:
        logits = _F32 * rows_of_output * model.vocab_size
        return Graph(output - logits, logits, shape.tokens * inputs, "output_stage", kinds.plain, hidden)
    return Graph(stage, 0, shape.tokens * inputs, law, kinds.plain, hidden)


@remembered()
def _kinds(model: Model, layers: tuple[int, int]) -> Kinds:
    found = [group.layer for group, _ in held(model, layers)]
    if not model.num_hidden_layers:
        found = [group.layer for group in model.layers]
    attentions = [layer.attention for layer in found if layer.attention is not None]
    return Kinds(
        layers=tuple(found),
        hidden_size=model.hidden_size,
        attentions=tuple(attentions),
        windowed=tuple({a.window is not None: a for a in attentions}.values()),
        plain=all(layer.recurrent is None and _plain(layer.attention) for layer in found),
    )


@remembered()
def with_visitor(found: Graph, model: Model, *, shape: Shape, layers: tuple[int, int], tensor: int) -> Graph:
    """
    Compute buffer of a device whose experts are on the host: a batch brings one of their tensors over at a time.

    Args:
        found: Buffer without it.
        model: Architecture.
        shape: Context, slots and era.
        layers: First layer, and the one after the last.
        tensor: Largest expert tensor. [bytes]

    Returns:
        The larger of it and a layer of experts with its visitor; batches under 32 tokens bring none.
    """
    if shape.tokens < _OFFLOADED_BATCH:
        return found
    kinds = _kinds(model, layers)
    widths = [expert_width(layer, model.hidden_size) for layer in kinds.layers]
    raw = llama_cpp_graph.raw_input(hidden_size=model.hidden_size) if shape.raw_input else 0
    size = llama_cpp_graph.layer_stage(
        tokens=shape.tokens,
        input_bytes=_input_bytes(kinds, shape) + raw,
        elements=max(widths, default=0),
        state_bytes=tensor,
    )
    if size <= found.total:
        return found
    return Graph(size, 0, found.inputs, "layer_stage", found.plain, found.hidden)


def _layer_stage(widest: Moment, shape: Shape, inputs: int) -> tuple[int, str]:
    size = llama_cpp_graph.layer_stage(
        tokens=shape.tokens, input_bytes=inputs, elements=widest.elements, state_bytes=widest.state_bytes
    )
    return size, widest.law


def _copying(kinds: Kinds, manner: Manner, shape: Shape, inputs: int) -> list[tuple[int, str]]:
    """Stages in which a quantized cache stands as f16 beside its attention, where the buffer has room for that."""
    if not manner.copies:
        return []
    found = []
    for attention, elements in zip(kinds.attentions, attention_widths(kinds, manner), strict=True):
        size = _staging(attention, layer_cells(attention, shape) * shape.streams)
        found.append(_layer_stage(Moment(elements, size, "attention"), shape, inputs))
    return found


def _plain(attention: Attention | None) -> bool:
    return attention is None or attention.kind != "mla"


def _input_bytes(kinds: Kinds, shape: Shape) -> int:
    """Masks and indices of one token: one mask per kind of cache. [bytes/token]"""
    total = _INDICES
    for attention in kinds.windowed if shape.sliding_cache and not shape.swa_full else kinds.attentions[-1:]:
        total += llama_cpp_graph.mask(
            cells=layer_cells(attention, shape),
            flash_attention=shape.flash_attention,
            separate_f32=shape.separate_f32_mask,
        )
        if not shape.flash_attention and shape.value_indices and not (attention.kind == "mla" and shape.latent_cache):
            heads = attention.num_attention_heads if attention.kind == "mla" else attention.num_key_value_heads
            total += llama_cpp_graph.transposed_value_indices(
                num_key_value_heads=heads, value_head_dim=attention.v_head_dim
            )
    return total
