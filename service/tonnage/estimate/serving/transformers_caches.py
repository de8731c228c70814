"""Caches of one generate() call on one GPU: after the prefill, and at the last step."""

from typing import NamedTuple

from msgspec import Struct

from tonnage.estimate import caches
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.transformers_settings import CacheKind
from tonnage.spec.facts import KvFormat
from tonnage.spec.model import Layer, Model

STATE_BYTES = 4
"""Recurrent matrices are kept in fp32. [bytes]"""


class Held(Struct, frozen=True):
    """Caches of one GPU's layers for the whole batch. [bytes]"""

    prompt: int
    """After the prefill."""
    final: int
    """At the last step."""
    state: int
    """Recurrent states."""
    last_keys: int
    """One layer's keys at the last step."""
    last_values: int
    tensors: int
    """Key and value tensors. [unitless]"""


EMPTY = Held(0, 0, 0, 0, 0, 0)


@remembered(8192)
def held(
    model: Model,
    *,
    k: KvFormat,
    v: KvFormat,
    batch_size: int,
    prompt: int,
    length: int,
    kind: CacheKind,
    cuts_windows: bool,
    latent: bool,
    layers: tuple[int, ...] | None,
) -> Held:
    """
    Caches of the layers of one GPU.

    Args:
        model: Architecture.
        k: Cache type of keys.
        v: Cache type of values.
        batch_size: Sequences. [sequences]
        prompt: Prompt length. [tokens]
        length: Tokens cached at the last step. [tokens]
        kind: Grown by concatenation, or allocated at once.
        cuts_windows: Sliding layers keep their window only, once decoding.
        latent: Latent attention caches its latent.
        layers: Decoder layers of the GPU; None: all.

    Returns:
        Sizes for the whole batch.
    """
    if kind == "none":
        return EMPTY
    first = last = state = keys = values = tensors = 0
    for row in _rows(model, k, v, latent, layers):
        after, final = _tokens(row.layer, prompt, length, kind, cuts_windows)
        cross = caches.cross_cache_bytes(row.layer, model.max_source_positions or prompt, k, v)
        first += row.layers * batch_size * (row.per_token * after + cross)
        last += row.layers * batch_size * (row.per_token * final + cross)
        state += row.layers * batch_size * row.state
        if row.per_token:
            tensors += 2 * row.layers
            one = batch_size * row.per_token * final
            share = int(one * row.key_share)
            keys, values = max(keys, share), max(values, one - share)
    return Held(first, last, state, keys, values, tensors)


class _Row(NamedTuple):
    """What layers of one kind cache of one sequence."""

    layer: Layer
    layers: int
    per_token: int
    """Keys and values. [bytes]"""
    state: int
    """Recurrent state. [bytes]"""
    key_share: float
    """Part of keys and values that are keys. [fraction]"""


@remembered()
def _rows(model: Model, k: KvFormat, v: KvFormat, latent: bool, layers: tuple[int, ...] | None) -> tuple[_Row, ...]:
    found = []
    for group, count in caches.decoder_groups(model, layers):
        layer, state = group.layer, 0
        per_token = caches.layer_cache_bytes_per_token(layer, k, v, compressed_latent=latent)
        if layer.recurrent is not None:
            state = caches.layer_state_bytes(layer.recurrent, state_bytes=STATE_BYTES)
        found.append(_Row(layer, count, per_token, state, _key_share(layer)))
    return tuple(found)


def _tokens(layer: Layer, prompt: int, length: int, kind: CacheKind, cuts_windows: bool) -> tuple[int, int]:
    windowed = caches.cached_tokens(layer, length)
    if kind == "static":
        return windowed, windowed
    return prompt, windowed if cuts_windows else length


def _key_share(layer: Layer) -> float:
    attention = layer.attention
    if attention is None:
        return 0.5
    return attention.head_dim / ((attention.head_dim + attention.v_head_dim) or 1)
