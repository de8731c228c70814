"""
What the caches of a model cost: bytes per token, bytes per sequence, by layer, stage and rank.

Pages, blocks and groups are the engines' business (`estimate/serving/`); here is what the layers need.
"""

from collections.abc import Iterable

from tonnage.estimate.identity_cache import remembered
from tonnage.laws import kv_cache, recurrent_state
from tonnage.spec.facts import KvFormat
from tonnage.spec.model import Attention, Layer, LayerGroup, Model, Recurrent
from tonnage.units import ceil_div

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
"""Bytes of an element of the plain dtypes. [bytes]"""

_PLAIN_KV = {
    dtype: KvFormat(id=f"kv-{dtype}", block_bytes=size, source="definition") for dtype, size in DTYPE_BYTES.items()
}


def plain_kv_format(dtype: str) -> KvFormat:
    """Cache type "auto": the model's own dtype."""
    return _PLAIN_KV[dtype]


def layer_cache_bytes_per_token(
    layer: Layer,
    k_format: KvFormat,
    v_format: KvFormat,
    tensor_parallel_size: int = 1,
    *,
    compressed_latent: bool = True,
) -> int:
    """
    Cache of one decoder token in one layer on one rank.

    Args:
        layer: Layer.
        k_format: Cache type of keys.
        v_format: Cache type of values.
        tensor_parallel_size: Ranks. [unitless]
        compressed_latent: Latent attention caches its latent (every engine now); False: expanded keys and values.

    Returns:
        Bytes per token while the window, if any, is not full; 0 for layers without a cache of their own. [bytes/token]
    """
    attention = layer.attention
    if attention is None or attention.kv_shared or attention.kind in ("encoder", "cross"):
        return 0
    if attention.kind == "mla" and compressed_latent:
        return _latent(attention, k_format)
    return kv_cache.full_attention(
        num_key_value_heads=attention.num_key_value_heads,
        key_bytes=k_format.row_bytes(attention.head_dim),
        value_bytes=v_format.row_bytes(attention.v_head_dim),
        tensor_parallel_size=tensor_parallel_size,
    )


def _latent(attention: Attention, k_format: KvFormat) -> int:
    """Latent of one token; with compression the share of an entry, which is what a long sequence grows by."""
    index = attention.index_head_dim
    entry = kv_cache.mla(
        latent_bytes=k_format.row_bytes(_latent_width(attention)),
        index_key_bytes=kv_cache.index_key(index_head_dim=index) if index else 0,
    )
    return ceil_div(entry, attention.compress_ratio) if attention.compress_ratio > 1 else entry


def _latent_width(attention: Attention) -> int:
    return (attention.kv_lora_rank or 0) + (attention.qk_rope_head_dim or 0)


def _windowed_latents(attention: Attention, tokens: int, k_format: KvFormat) -> int:
    """Latents of the window, and entries of what lies before it (DeepSeek-V4)."""
    latent = k_format.row_bytes(_latent_width(attention))
    window = latent * kv_cache.sliding_window_tokens(tokens=tokens, window=attention.window or tokens)
    if attention.compress_ratio <= 1:
        return window
    index = attention.index_head_dim
    entry = latent + (kv_cache.index_key(index_head_dim=index) if index else 0)
    return window + entry * kv_cache.compressed_tokens(tokens=tokens, compress_ratio=attention.compress_ratio)


def layer_compressor_state_bytes(layer: Layer) -> int:
    """What the compressors of a layer keep of one sequence, 0 without them. [bytes]"""
    attention = layer.attention
    if attention is None or attention.compress_ratio <= 1:
        return 0
    overlap = 2 if attention.index_head_dim else 1
    widths = (_latent_width(attention), attention.index_head_dim or 0)
    return sum(
        kv_cache.compressor_state(width=width, compress_ratio=attention.compress_ratio, overlap=overlap)
        for width in widths
    )


def cached_tokens(layer: Layer, tokens: int) -> int:
    """Tokens a layer keeps of a sequence: all, or what its window or chunk holds. [tokens]"""
    attention = layer.attention
    if attention is None or attention.window is None:
        return tokens
    if attention.kind == "sliding":
        return kv_cache.sliding_window_tokens(tokens=tokens, window=attention.window)
    if attention.kind == "chunked":
        return kv_cache.chunked_local_tokens(tokens=tokens, chunk=attention.window)
    return tokens


def layer_sequence_bytes(
    layer: Layer, tokens: int, k_format: KvFormat, v_format: KvFormat, tensor_parallel_size: int = 1
) -> int:
    """Cache of one sequence in one layer on one rank, window caps applied, recurrent state not included. [bytes]"""
    attention = layer.attention
    if attention is not None and attention.kind == "mla" and attention.window is not None:
        return _windowed_latents(attention, tokens, k_format)
    per_token = layer_cache_bytes_per_token(layer, k_format, v_format, tensor_parallel_size)
    return per_token * cached_tokens(layer, tokens)


def cross_cache_bytes(
    layer: Layer, encoder_tokens: int, k_format: KvFormat, v_format: KvFormat, tensor_parallel_size: int = 1
) -> int:
    """Cache of a layer's cross-attention for one sequence on one rank. [bytes]"""
    cross = layer.cross_attention
    if cross is None and layer.attention is not None and layer.attention.kind == "cross":
        cross = layer.attention
    if cross is None:
        return 0
    per_token = kv_cache.full_attention(
        num_key_value_heads=cross.num_key_value_heads,
        key_bytes=k_format.row_bytes(cross.head_dim),
        value_bytes=v_format.row_bytes(cross.v_head_dim),
        tensor_parallel_size=tensor_parallel_size,
    )
    return per_token * kv_cache.cross_attention_tokens(encoder_tokens=encoder_tokens)


def layer_state_bytes(
    recurrent: Recurrent, *, conv_bytes: int = 2, state_bytes: int = 2, tensor_parallel_size: int = 1
) -> int:
    """
    State of one sequence in one recurrent layer on one rank.

    Args:
        recurrent: The recurrent part of a layer.
        conv_bytes: dtype of the convolution state. [bytes]
        state_bytes: dtype of the recurrent state. [bytes]
        tensor_parallel_size: Ranks. [unitless]

    Returns:
        Size. [bytes]
    """
    return _STATES[recurrent.kind](recurrent, conv_bytes, state_bytes, tensor_parallel_size)


def _mamba1(recurrent: Recurrent, conv_bytes: int, state_bytes: int, tensor_parallel_size: int) -> int:
    return recurrent_state.mamba1(
        inner_size=recurrent.inner_size,
        state_size=recurrent.state_columns,
        conv_kernel=recurrent.conv_kernel,
        conv_bytes=conv_bytes,
        state_bytes=state_bytes,
        tensor_parallel_size=tensor_parallel_size,
    )


def _mamba2(recurrent: Recurrent, conv_bytes: int, state_bytes: int, tensor_parallel_size: int) -> int:
    return recurrent_state.mamba2(
        inner_size=recurrent.inner_size,
        heads=recurrent.state_heads,
        head_dim=recurrent.state_rows,
        state_size=recurrent.state_columns,
        n_groups=recurrent.n_groups,
        conv_kernel=recurrent.conv_kernel,
        conv_bytes=conv_bytes,
        state_bytes=state_bytes,
        tensor_parallel_size=tensor_parallel_size,
    )


def _gated_delta(recurrent: Recurrent, conv_bytes: int, state_bytes: int, tensor_parallel_size: int) -> int:
    return recurrent_state.gated_delta(
        num_key_heads=recurrent.num_key_heads,
        key_head_dim=recurrent.key_head_dim,
        num_value_heads=recurrent.num_value_heads,
        value_head_dim=recurrent.value_head_dim,
        conv_kernel=recurrent.conv_kernel,
        conv_bytes=conv_bytes,
        state_bytes=state_bytes,
        tensor_parallel_size=tensor_parallel_size,
    )


def _kda(recurrent: Recurrent, conv_bytes: int, state_bytes: int, tensor_parallel_size: int) -> int:
    return recurrent_state.kda(
        heads=recurrent.state_heads,
        head_dim=recurrent.state_rows,
        conv_kernel=recurrent.conv_kernel,
        conv_bytes=conv_bytes,
        state_bytes=state_bytes,
        tensor_parallel_size=tensor_parallel_size,
    )


def _lightning(recurrent: Recurrent, _: int, state_bytes: int, tensor_parallel_size: int) -> int:
    return recurrent_state.lightning(
        heads=recurrent.state_heads,
        head_dim=recurrent.state_rows,
        state_bytes=state_bytes,
        tensor_parallel_size=tensor_parallel_size,
    )


def _short_conv(recurrent: Recurrent, conv_bytes: int, _: int, tensor_parallel_size: int) -> int:
    return recurrent_state.short_conv(
        channels=recurrent.conv_channels,
        conv_kernel=recurrent.conv_kernel,
        conv_bytes=conv_bytes,
        tensor_parallel_size=tensor_parallel_size,
    )


def _rwkv(recurrent: Recurrent, conv_bytes: int, state_bytes: int, tensor_parallel_size: int) -> int:
    matrix = recurrent_state.matrix(
        heads=recurrent.state_heads,
        rows=recurrent.state_rows,
        columns=recurrent.state_columns,
        element_bytes=state_bytes,
        tensor_parallel_size=tensor_parallel_size,
    )
    return matrix + recurrent.conv_channels * conv_bytes


_STATES = {
    "mamba1": _mamba1, "mamba2": _mamba2, "gated_delta": _gated_delta, "kda": _kda,
    "lightning": _lightning, "short_conv": _short_conv, "rwkv": _rwkv,
}  # fmt: skip
"""Law of each kind of recurrent layer."""


def decoder_groups(model: Model, layers: Iterable[int] | None = None) -> list[tuple[LayerGroup, int]]:
    """Decoder layer groups and how many of their layers a stage holds; None is the whole model."""
    groups = [group for group in model.layers if group.layer.role == "decoder"]
    if layers is None:
        return [(group, group.count) for group in groups]
    held = frozenset(layers)
    counted = ((group, sum(index in held for index in group.indices)) for group in groups)
    return [(group, count) for group, count in counted if count]


@remembered()
def token_bytes(
    model: Model,
    k_format: KvFormat,
    v_format: KvFormat,
    *,
    tensor_parallel_size: int = 1,
    layers: tuple[int, ...] | None = None,
) -> int:
    """
    Cache of one token over the layers of a stage on one rank, windows not yet full.

    Args:
        model: Architecture.
        k_format: Cache type of keys.
        v_format: Cache type of values.
        tensor_parallel_size: Ranks. [unitless]
        layers: Decoder layers of the stage; None is all of them.

    Returns:
        Size. [bytes/token]
    """
    return sum(
        layer_cache_bytes_per_token(group.layer, k_format, v_format, tensor_parallel_size) * count
        for group, count in decoder_groups(model, layers)
    )


@remembered()
def state_bytes_per_sequence(
    model: Model,
    *,
    conv_bytes: int | None = None,
    state_bytes: int | None = None,
    tensor_parallel_size: int = 1,
    layers: tuple[int, ...] | None = None,
) -> int:
    """
    Recurrent state (and open compressor groups) of one sequence over the layers of a stage on one rank.

    Args:
        model: Architecture.
        conv_bytes: dtype of convolution states; None is the model's own. [bytes]
        state_bytes: dtype of recurrent states; None is the model's own. [bytes]
        tensor_parallel_size: Ranks. [unitless]
        layers: Decoder layers of the stage; None is all of them.

    Returns:
        Size; 0 without recurrent layers. [bytes]
    """
    own = DTYPE_BYTES[model.dtype]
    total = 0
    for group, count in decoder_groups(model, layers):
        state = layer_compressor_state_bytes(group.layer)
        if group.layer.recurrent is not None:
            state += layer_state_bytes(
                group.layer.recurrent,
                conv_bytes=own if conv_bytes is None else conv_bytes,
                state_bytes=own if state_bytes is None else state_bytes,
                tensor_parallel_size=tensor_parallel_size,
            )
        total += state * count
    return total


@remembered(65536)
def sequence_bytes(
    model: Model,
    tokens: int,
    k_format: KvFormat,
    v_format: KvFormat,
    *,
    tensor_parallel_size: int = 1,
    layers: tuple[int, ...] | None = None,
    encoder_tokens: int | None = None,
) -> int:
    """
    Caches of one sequence over the layers of a stage on one rank, recurrent state not included.

    Args:
        model: Architecture.
        tokens: Length of the sequence. [tokens]
        k_format: Cache type of keys.
        v_format: Cache type of values.
        tensor_parallel_size: Ranks. [unitless]
        layers: Decoder layers of the stage; None is all of them.
        encoder_tokens: Length of the encoder's output; None is the longest the model takes. [tokens]

    Returns:
        Size with window caps and cross-attention. [bytes]
    """
    encoder = model.max_source_positions if encoder_tokens is None else encoder_tokens
    return sum(
        (
            layer_sequence_bytes(group.layer, tokens, k_format, v_format, tensor_parallel_size)
            + cross_cache_bytes(group.layer, encoder, k_format, v_format, tensor_parallel_size)
        )
        * count
        for group, count in decoder_groups(model, layers)
    )
