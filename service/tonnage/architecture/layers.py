"""Layers of a stack: which kind stands where, one builder per mechanism, identical layers as one group."""

from collections.abc import Callable
from typing import Any

from tonnage.architecture import recurrent
from tonnage.architecture.attention import head_attention
from tonnage.architecture.compressed_attention import compressed_attention
from tonnage.architecture.feed_forward import dense, mixture
from tonnage.architecture.fields import Fields
from tonnage.architecture.latent_attention import latent_attention
from tonnage.architecture.tensors import from_rows, norm
from tonnage.errors import ContradictoryWorkload
from tonnage.spec.model import Component, Layer, LayerGroup, Tensor

MOST_LAYERS = 512
"""More layers than any model has; a config beyond it is refused before anything is built. [unitless]"""

MOST_KINDS = 96
"""More layers that differ from each other than any model has; work grows with them. [unitless]"""

_ATTENTION: dict[str, Callable[[Fields], tuple[Any, list[Tensor]]]] = {
    "full": head_attention, "sliding": head_attention, "chunked": head_attention, "cross": head_attention,
    "encoder": head_attention, "mla": latent_attention, "compressed": compressed_attention,
}  # fmt: skip
_RECURRENT: dict[str, Callable[[Fields], tuple[Any, list[Tensor]]]] = {
    "mamba1": recurrent.mamba1, "mamba2": recurrent.mamba2, "gated_delta": recurrent.gated_delta,
    "kda": recurrent.kda, "lightning": recurrent.lightning, "short_conv": recurrent.short_conv,
}  # fmt: skip
_WORDS = {
    "full_attention": "full", "attention": "full", "sliding_attention": "sliding",
    "chunked_attention": "chunked", "conv": "short_conv", "none": "none",
}  # fmt: skip


def layer_groups(fields: Fields) -> tuple[LayerGroup, ...]:
    """All layers of the stack that `fields` describe, identical ones together, by first index."""
    count = fields.integer("num_hidden_layers")
    if count > MOST_LAYERS:
        raise ContradictoryWorkload(
            f"{fields.key('num_hidden_layers')} = {count} is more than any model has ({MOST_LAYERS})",
            pointer=f"{fields.pointer}/{fields.key('num_hidden_layers')}",
        )
    kinds, feeds = _mixers(fields, count), _feeds(fields, count)
    built: dict[tuple[str, str, tuple[str, ...]], Layer] = {}
    places: dict[Layer, list[int]] = {}
    for index, (kind, feed) in enumerate(zip(kinds, feeds, strict=True)):
        own = (*(repr(fields.at(name, index)) for name in fields.table.per_layer), repr(fields.own_config(index)))
        layer = built.get((kind, feed, own))
        if layer is None:
            if len(built) >= MOST_KINDS:
                raise ContradictoryWorkload(
                    f"more than {MOST_KINDS} layers differ from each other, as in no model", pointer=fields.pointer
                )
            layer = built[kind, feed, own] = _layer(fields.in_layer(index, kind, feed), kind, feed)
        places.setdefault(layer, []).append(index)
    return tuple(LayerGroup(layer, tuple(indices)) for layer, indices in places.items())


def last_layer(fields: Fields) -> Layer:
    """The last layer of the stack, which a prediction layer repeats; `mtp_feed` names its feed-forward when other."""
    count = fields.integer("num_hidden_layers")
    kind, feed = _mixers(fields, count)[-1], fields["mtp_feed"] or _feeds(fields, count)[-1]
    return _layer(fields.in_layer(count - 1, kind, feed), kind, feed)


def _mixers(fields: Fields, count: int) -> list[str]:
    kinds = _stated_mixers(fields, count) or [str(fields.at("mixer", index)) for index in range(count)]
    last = fields["last_kind"]
    return [*kinds[:-1], last] if last else kinds


def _stated_mixers(fields: Fields, count: int) -> list[str] | None:
    if fields["layer_types"] is None:
        return None
    kinds = _WORDS | {"full_attention": fields["full_kind"], "attention": fields["full_kind"]} | fields.table.words
    return [_kind(fields, kinds, word) for word in per_layer_list(fields, "layer_types", count)]


def _kind(fields: Fields, kinds: dict[str, str], word: object) -> str:
    if not isinstance(word, str) or word not in kinds:
        known = ", ".join(sorted(kinds))
        raise ContradictoryWorkload(
            f"layer_types holds {word!r}, which this model type has no law for; known: {known}",
            pointer=f"{fields.pointer}/layer_types",
        )
    return kinds[word]


def _feeds(fields: Fields, count: int) -> list[str]:
    if fields["mlp_layer_types"] is None:
        return [str(fields.at("ffn", index)) for index in range(count)]
    words = per_layer_list(fields, "mlp_layer_types", count)
    return ["moe" if word in ("sparse", "moe", "hash_moe") else "dense" for word in words]


def per_layer_list(fields: Fields, name: str, count: int) -> list[Any]:
    """A field that lists one value per layer; a list that ends early is refused."""
    values = fields[name]
    if not isinstance(values, list) or len(values) < count:
        length = len(values) if isinstance(values, list) else "no"
        raise ContradictoryWorkload(
            f"{name} has {length} entries for {count} layers", pointer=f"{fields.pointer}/{fields.key(name)}"
        )
    return values[:count]


def _layer(fields: Fields, kind: str, feed: str) -> Layer:
    tensors: list[Tensor] = []
    parts: dict[str, Any] = {}
    for mixer in kind.split("+"):
        _add_mixer(fields, mixer, parts, tensors)
    if feed in ("dense", "dense+moe"):
        parts["mlp"], own = dense(fields)
        tensors += own
    if feed in ("moe", "dense+moe"):
        parts["moe"], own = mixture(fields)
        tensors += own
    norms = _norm_names(fields)
    for name, component in norms:
        tensors += norm(fields, name, fields.integer("hidden_size"), component=component)
    tensors += from_rows(fields, fields.table.layer_tensors)
    return Layer(
        norms=len(norms),
        norm_kind=fields["norm_kind"],
        post_norm=fields.flag("post_norm"),
        parallel=fields.flag("parallel"),
        role="encoder" if fields.flag("encoder") else "decoder",
        tensors=tuple(tensors),
        **parts,
    )


def _add_mixer(fields: Fields, kind: str, parts: dict[str, Any], tensors: list[Tensor]) -> None:
    if kind in _RECURRENT:
        parts["recurrent"], own = _RECURRENT[kind](fields.of_kind(kind))
    elif kind in _ATTENTION:
        parts["attention"], own = _ATTENTION[kind](fields.of_kind(kind))
        if fields.flag("cross_attends"):
            parts["cross_attention"], cross = head_attention(fields.of_kind("cross"))
            own = own + cross
    elif kind == "none":
        return
    else:
        raise ContradictoryWorkload(f"no law for a layer of kind {kind!r}", pointer=fields.pointer)
    tensors += own


def _norm_names(fields: Fields) -> list[tuple[str, Component]]:
    names: list[tuple[str, Component]] = []
    for row in fields.table.norms:
        named, _, condition = row.partition(" if ")
        if not condition or fields.evaluate(condition):
            name, _, other = named.partition(" as ")
            names.append((name, "other" if other else "norm"))
    return names
