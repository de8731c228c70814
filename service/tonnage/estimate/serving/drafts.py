"""Draft models and prediction layers of speculative decoding: their weights and their layers of cache."""

from collections.abc import Mapping

from msgspec import Struct

from tonnage.estimate.caches import decoder_groups, layer_cache_bytes_per_token
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.quantization import plain_format
from tonnage.estimate.shards import PLAIN_RULES, Cut, tensor_bytes
from tonnage.estimate.weights import stage_weights
from tonnage.spec.facts import KvFormat, WeightFormat
from tonnage.spec.model import Model
from tonnage.spec.workload import Workload


class Draft(Struct, frozen=True, kw_only=True):
    """What one rank holds of a draft."""

    weights: int
    """[bytes]"""
    layers: int
    """Layers with a cache of their own. [layers]"""
    layer_token_bytes: int
    """Cache of one token in one of them. [bytes/token]"""


NO_DRAFT = Draft(weights=0, layers=0, layer_token_bytes=0)


def draft(workload: Workload, kv_formats: tuple[KvFormat, KvFormat], dtype: str) -> Draft:
    """
    The draft that a card's speculative decoding adds.

    Args:
        workload: Resolved card for serving.
        kv_formats: Cache types of keys and values.
        dtype: Plain dtype the model runs in.

    Returns:
        Shares of one rank; nothing for prompt lookup and for drafts that no source knows.
    """
    speculative = workload.serving.speculative if workload.serving is not None else None
    if speculative is None:
        return NO_DRAFT
    ranks = workload.placement.tensor_parallel_size
    if workload.draft is not None and workload.draft.known:
        return _separate(workload.draft, *kv_formats, dtype, ranks)
    if workload.model.mtp_layers and "mtp" in speculative.method.lower():
        return _prediction(workload.model, workload.weight_format, *kv_formats, dtype=dtype, ranks=ranks)
    if speculative.method.lower().startswith("eagle"):
        return _eagle(workload.model, *kv_formats, dtype=dtype, ranks=ranks)
    return NO_DRAFT


@remembered()
def _eagle(model: Model, k_format: KvFormat, v_format: KvFormat, *, dtype: str, ranks: int) -> Draft:
    """A head whose checkpoint is not stated: one dense layer as the model's last, fed by two hidden states."""
    last = max((group for group, _ in decoder_groups(model)), key=lambda group: max(group.indices), default=None)
    if last is None or last.layer.attention is None or last.layer.mlp is None:
        return NO_DRAFT
    cut, plain = Cut(ranks, 1, ranks, PLAIN_RULES), plain_format(dtype)
    joined = 2 * model.hidden_size * model.hidden_size * plain.block_bytes // plain.block_elements
    return Draft(
        weights=joined // ranks + sum(tensor_bytes(t, plain, cut) for t in last.layer.tensors),
        layers=1,
        layer_token_bytes=layer_cache_bytes_per_token(last.layer, k_format, v_format, ranks),
    )


@remembered()
def _separate(model: Model, k_format: KvFormat, v_format: KvFormat, dtype: str, ranks: int) -> Draft:
    found = stage_weights(model, plain_format(dtype), tensor_parallel_size=ranks, dtype=dtype)
    groups = decoder_groups(model)
    layers = sum(count for _, count in groups)
    total = sum(count * layer_cache_bytes_per_token(g.layer, k_format, v_format, ranks) for g, count in groups)
    return Draft(
        weights=sum(stage.total for stage in found),
        layers=layers,
        layer_token_bytes=-(-total // layers) if layers else 0,
    )


@remembered()
def _prediction(
    model: Model, weight_format: WeightFormat, k_format: KvFormat, v_format: KvFormat, *, dtype: str, ranks: int
) -> Draft:
    """Layers that repeat the last one; embedding and head are the target's."""
    cut = Cut(ranks, 1, ranks, PLAIN_RULES)
    plain = plain_format(dtype)
    chosen: Mapping[bool, WeightFormat] = {True: weight_format, False: plain}
    weights = sum(tensor_bytes(t, chosen[t.linear], cut) for t in model.extra_checkpoint if t.component == "mtp")
    last = max(
        (group for group, _ in decoder_groups(model) if group.layer.attention is not None),
        key=lambda group: max(group.indices),
    )
    return Draft(
        weights=weights,
        layers=model.mtp_layers,
        layer_token_bytes=layer_cache_bytes_per_token(last.layer, k_format, v_format, ranks),
    )
