"""Steps whose layers are compiled, selectively checkpointed or made of fused kernels: closed forms instead of the tape."""

from tonnage.estimate.training.profile import Part, StepProfile
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.tape import ZERO, Form, gradient, per_logit_token, per_token, plus, scaled, times
from tonnage.estimate.training.usual import layer_groups
from tonnage.laws import activations
from tonnage.spec.model import Layer, Model


def fused_profile(model: Model, recipe: Recipe) -> StepProfile:
    """
    The step by closed forms.

    Args:
        model: Architecture.
        recipe: What decides which tensors there are.

    Returns:
        Parts as linear forms in the batch.
    """
    groups = [(g.layer, g.count) for g in layer_groups(model)]
    layers = [_layer(layer, model, recipe) for layer, _ in groups]
    width = _stream(model, recipe)
    tail_net, tail_top, tail_backward = _tail(model, recipe)
    embedding = gradient(model.vocab_size // recipe.tensor_parallel_size * model.hidden_size * recipe.weight_bytes)
    trains = recipe.trains
    return StepProfile(
        embedding=Part(per_token(width), (per_token(width),)),
        forward=tuple(Part(kept, (ZERO, plus(kept, per_token(width)))) for kept, _, _ in layers),
        tail=Part(tail_net, (tail_top,)),
        layer_leaving=tuple(Part(ZERO, (ZERO,)) for _ in layers),
        leaving=Part(ZERO, (ZERO,)),
        tail_backward=tail_backward,
        backward=tuple(_backward(layer, model, recipe) for layer, _ in groups),
        embedding_backward=Part(embedding if trains else ZERO, (embedding if trains else ZERO,)),
        counts=tuple(count for _, count in groups),
    )


def _stream(model: Model, recipe: Recipe) -> int:
    """The residual stream per token. [bytes]"""
    width = 2 * model.hidden_size
    return width // recipe.tensor_parallel_size if recipe.sequence_parallel else width


def _layer(layer: Layer, model: Model, recipe: Recipe) -> tuple[Form, Form, Form]:
    """What a layer keeps, the highest point of its backward pass above that, and its weights' gradients."""
    whole = whole_layer(layer, model, recipe)
    inner = _inner(layer) // recipe.tensor_parallel_size
    hidden = model.hidden_size if not recipe.sequence_parallel else model.hidden_size // recipe.tensor_parallel_size
    top = activations.recomputed_layer(kept=whole, hidden_size=hidden, intermediate_size=inner)
    grads = gradient(_gradient_bytes(layer, recipe))
    if recipe.checkpointing in ("full", "reentrant"):
        return per_token(_stream(model, recipe)), per_token(top), grads
    if recipe.checkpointing == "selective":
        kept = selective_layer(layer, model, recipe)
        return per_token(kept), per_token(max(0, top - kept)), grads
    return per_token(whole), per_token(top - whole), grads


def _backward(layer: Layer, model: Model, recipe: Recipe) -> Part:
    """
    Backward of one layer: highest when its feed-forward is differentiated and one gradient is there, or at its end, when
    all its gradients are and the input of its first norm remains.
    """
    kept, transient, grads = _layer(layer, model, recipe)
    down = gradient(
        min(grads[4], _inner(layer) // recipe.tensor_parallel_size * model.hidden_size * recipe.gradient_bytes)
    )
    last = plus(per_token(16 * _stream(model, recipe) // 2), grads)
    if recipe.checkpointing == "none":
        last = plus(last, times(kept, -1))
    return Part(plus(times(kept, -1), grads), (ZERO, plus(transient, down if recipe.trains else grads), last))


def _gradient_bytes(layer: Layer, recipe: Recipe) -> int:
    if recipe.trains:
        return layer.elements // recipe.tensor_parallel_size * recipe.gradient_bytes
    adapters = sum(
        recipe.rank * (t.in_features + t.out_features) for t in layer.tensors if t.linear and t.role in recipe.adapted
    )
    return adapters * recipe.adapter_bytes


def _dimensions(layer: Layer, model: Model, expands_keys: bool) -> dict[str, int]:
    attention = layer.attention
    heads = attention.num_attention_heads if attention is not None else 0
    head_dim = attention.head_dim if attention is not None else 0
    kv_heads = attention.num_key_value_heads if attention is not None else 0
    return {
        "hidden_size": model.hidden_size,
        "query_width": heads * head_dim,
        "key_value_width": (heads if expands_keys else kv_heads) * head_dim,
        "intermediate_size": _inner(layer),
        "num_attention_heads": heads,
    }


def _inner(layer: Layer) -> int:
    """Width of the feed-forward per token; routed experts count as often as a token visits them. [elements]"""
    if layer.moe is not None:
        moe = layer.moe
        return moe.num_experts_per_tok * moe.moe_intermediate_size + moe.shared_intermediate_size
    return layer.mlp.intermediate_size if layer.mlp is not None else 0


def whole_layer(layer: Layer, model: Model, recipe: Recipe) -> int:
    """What a layer keeps without checkpointing. [bytes per token]"""
    sizes = _dimensions(layer, model, recipe.expands_keys)
    if recipe.code == "megatron":
        kept = activations.transformer_engine_layer(
            **sizes,
            tensor_parallel_size=recipe.tensor_parallel_size,
            sequence_parallel=recipe.sequence_parallel,
            fp8=recipe.fp8,
        )
        return kept + _routing(layer, model, recipe)
    gated = layer.mlp.gated if layer.mlp is not None else True
    kept = activations.compiled_layer(**sizes, gated=gated) if recipe.compiled else eager_fused_layer(sizes)
    if layer.attention is not None and layer.attention.qk_norm != "none":
        kept += 2 * (sizes["query_width"] + sizes["key_value_width"])
    kept += _routing(layer, model, recipe)
    kept += _adapters(layer, recipe)
    return _divided(kept, sizes["hidden_size"], recipe)


def eager_fused_layer(sizes: dict[str, int]) -> int:
    """Eager operators with norms in one kernel. [bytes per token]"""
    return activations.eager_llama_layer(**sizes) - 8 * sizes["hidden_size"]


def _divided(kept: int, hidden: int, recipe: Recipe) -> int:
    """Tensor parallelism: without sequence parallelism norms and stream stay whole. [bytes per token]"""
    size = recipe.tensor_parallel_size
    if size == 1 or recipe.sequence_parallel:
        return kept // size
    return 8 * hidden + (kept - 8 * hidden) // size


def _adapters(layer: Layer, recipe: Recipe) -> int:
    """Inputs of adapted linears: distinct ones stay in the adapter's width. [bytes per token]"""
    if recipe.trains or not recipe.adapted:
        return 0
    inputs = {t.role: t.in_features for t in layer.tensors if t.linear and t.role in recipe.adapted}
    mask = 1 if recipe.dropout else 0
    return sum(width * mask for width in inputs.values())


def _routing(layer: Layer, model: Model, recipe: Recipe) -> int:
    moe = layer.moe
    if moe is None:
        return 0
    if recipe.code == "megatron":
        return 2 * moe.num_experts_per_tok * model.hidden_size + 9 * moe.num_experts
    return 4 * moe.num_experts_per_tok * model.hidden_size + 6 * moe.num_experts


def selective_layer(layer: Layer, model: Model, recipe: Recipe) -> int:
    """What selective checkpointing keeps of a layer. [bytes per token]"""
    sizes = _dimensions(layer, model, recipe.expands_keys)
    if recipe.code == "megatron":
        # core attention alone is recomputed, and a fused kernel keeps nothing of it but the softmax statistics
        return whole_layer(layer, model, recipe) - 4 * sizes["num_attention_heads"] // recipe.tensor_parallel_size
    kept = activations.selective_operators_layer(**sizes, every_second=recipe.every_second)
    return _divided(kept, sizes["hidden_size"], recipe)


def _tail(model: Model, recipe: Recipe) -> tuple[Form, Form, Part]:
    """Change and top of final norm, head and loss in forward; the loss and the head in backward."""
    forward, kept, backward, flowing = recipe.loss
    hidden = model.hidden_size
    stream = _stream(model, recipe)
    norm = per_token(2 * stream if recipe.compiled or recipe.norm == "fused" else 4 * stream)
    head_input = per_token(2 * hidden if recipe.sequence_parallel else 0)
    vocabulary = model.vocab_size // recipe.tensor_parallel_size
    logits = per_logit_token(vocabulary)
    head_trains = recipe.trains or "head" in recipe.saved_modules
    head = gradient(vocabulary * hidden * recipe.weight_bytes if head_trains else 0)
    net = plus(plus(norm, head_input), scaled(logits, kept))
    top = plus(plus(norm, head_input), scaled(logits, forward))
    casting = scaled(logits, flowing + 2 - kept if flowing > 2 else -kept)
    points = (
        scaled(logits, backward - kept),
        casting,
        plus(plus(scaled(logits, 2 - kept), per_token(2 * hidden)), head),
    )
    after = plus(plus(times(net, -1), per_token(stream)), head)
    return net, top, Part(after, points)
