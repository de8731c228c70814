"""Models as engines with one qkv matrix hold them: keys and values of every layer, stored or not."""

from collections.abc import Iterator

from msgspec import structs

from tonnage.estimate.identity_cache import remembered
from tonnage.spec.model import Attention, LayerGroup, Model, Tensor


@remembered()
def with_whole_projections(model: Model) -> Model:
    """
    A model whose layers all have keys and values of their own.

    Checkpoints leave them out where a layer reads an earlier layer's cache, or where the values are the keys. vLLM and
    SGLang make one qkv matrix for every layer all the same (vllm@0.20.0 and sglang@0.5.12 models/gemma4.py and
    gemma4_causal.py Gemma4Attention; gemma3n.py).

    Args:
        model: Architecture as its checkpoint has it.

    Returns:
        The same object where nothing is missing.
    """
    layers = tuple(_whole(group) for group in model.layers)
    return model if layers == model.layers else structs.replace(model, layers=layers)


def _whole(group: LayerGroup) -> LayerGroup:
    layer, attention = group.layer, group.layer.attention
    if attention is None or attention.kind == "mla" or not (attention.kv_shared or attention.k_eq_v):
        return group
    missing = tuple(_missing(layer.tensors, attention))
    return (
        structs.replace(group, layer=structs.replace(layer, tensors=(*layer.tensors, *missing))) if missing else group
    )


def _missing(tensors: tuple[Tensor, ...], attention: Attention) -> Iterator[Tensor]:
    query = next((tensor for tensor in tensors if tensor.role == "q" and tensor.in_features > 1), None)
    held = {tensor.role for tensor in tensors}
    if query is None:
        return
    for role, width in (("k", attention.head_dim), ("v", attention.v_head_dim)):
        if role not in held:
            yield structs.replace(
                query,
                name=query.name.replace("q_proj", f"{role}_proj"),
                out_features=attention.num_key_value_heads * width,
                shard="kv",
                heads=attention.num_key_value_heads,
                role=role,
            )
