"""Items of a generate() call: what is resident, what the prefill and a decode step add, what stays behind."""

from msgspec import structs

from tonnage.estimate import caches
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.process import device_context
from tonnage.estimate.serving.transformers_caches import Held
from tonnage.estimate.serving.transformers_resident import Resident
from tonnage.estimate.serving.transformers_settings import Settings
from tonnage.estimate.serving.transformers_widths import Width, width
from tonnage.laws import allocator, fused_awq, generate, serving_activations
from tonnage.laws.reserved import unavoidable
from tonnage.spec.facts import Gpu, WeightFormat
from tonnage.spec.model import Model
from tonnage.spec.report import Amount, Basis, Counter, MemoryItem, exactly, within
from tonnage.spec.workload import Workload
from tonnage.units import MiB

_SMALL_BLOCKS = MiB
"""Ids, masks and counters that generate() leaves behind, in the small pool. [bytes]"""
_KERNEL_SWITCH = 128
"""Tokens from which the 8-bit GPTQ fallback multiplies in fp16. [tokens]"""
_MAKES_HEAD = frozenset({"awq"})
"""Families of formats whose loader makes a head before it is tied."""
_TABLE = "measured: tests/measured/serving_transformers.json"
_ALLOCATOR = "pytorch/pytorch@2.6 c10/cuda/CUDACachingAllocator.cpp"


def fixed(workload: Workload, chosen: Settings, part: Resident, cache: Held, devices: int) -> tuple[MemoryItem, ...]:
    """Items that live from load to the end: weights first, device context last."""
    unstated = workload.serving is not None and workload.serving.engine_version is None
    base = _unchanging(
        part,
        workload.model,
        workload.weight_format,
        workload.gpu,
        workspace=chosen.workspace_bytes,
        unstated=unstated,
        known=workload.weight_bytes is not None,
        devices=devices,
    )
    if workload.weight_format.family != "awq":
        return base
    return (*base[:-1], _fused(workload.model, chosen, part, cache), base[-1])


@remembered()
def _unchanging(
    part: Resident,
    model: Model,
    form: WeightFormat,
    gpu: Gpu | None,
    *,
    workspace: int,
    unstated: bool,
    known: bool,
    devices: int,
) -> tuple[MemoryItem, ...]:
    """What does not depend on the traffic."""
    items = [_weights(part, model, form, known=known, movable=devices > 1 and unstated), _workspace(workspace)]
    if form.family == "gptq" and form.block_elements > 1 and part.largest_matrix:
        size = generate.exllama_workspace(largest_matrix_elements=part.largest_matrix)
        items.append(
            _item("quantization_workspace", exactly(size), "derived", "exllama_workspace", "AutoGPTQ@0.7.1; " + _TABLE)
        )
    slack = max(0, part.reserved - part.counted)
    amount = Amount(0, slack, slack + 40 * MiB + (part.tied_head if unstated else 0))
    detail = "segments that the weights do not fill"
    law = "laws.allocator.placed"
    items.append(_item("fragmentation", amount, "derived", law, _ALLOCATOR, detail=detail, counter="reserved"))
    items.append(device_context(gpu))
    return tuple(items)


def _weights(part: Resident, model: Model, form: WeightFormat, *, known: bool, movable: bool) -> MemoryItem:
    """Weights as the allocator counts them; releases before 5.0 place a layer or two of a device map differently."""
    moved = part.exact // max(1, len(part.layers)) if movable else 0
    scatter = _scatter(part.exact) + moved
    low, high = min(part.exact, part.counted) - scatter, part.counted + scatter
    basis: Basis = "user" if known else "derived"
    detail = f"{form.id}: {part.exact} bytes of tensors as the caching allocator counts them"
    amount = Amount(max(0, low), part.counted, high)
    law = "laws.allocator.placed"
    return _item("weights", amount, basis, law, f"{_ALLOCATOR}; {model.source}", detail=detail)


def _scatter(exact: int) -> int:
    """Half-width of the resident part: half a percent, and no less than the tables behind the law scatter. [bytes]"""
    return max(exact // 200, min(exact // 50, 20 * MiB))


def _workspace(size: int) -> MemoryItem:
    source = "pytorch/pytorch@2.6 aten/src/ATen/cuda/CublasHandlePool.cpp"
    return _item(
        "workspace", Amount(0, size, size + 8 * MiB), "derived", "laws.device_context.cublas_workspace", source
    )


def _fused(model: Model, chosen: Settings, part: Resident, cache: Held) -> MemoryItem:
    """AutoAWQ loads attention either as it is or fused; the plain form is expected where nothing else is known."""
    most = tables = 0
    for group, count in caches.decoder_groups(model, part.layers or None):
        attention = group.layer.attention
        if attention is not None:
            most += count * fused_awq.fused_attention_cache(
                num_key_value_heads=attention.num_key_value_heads,
                head_dim=attention.head_dim,
                tokens=chosen.length + 1,
                batch_size=chosen.batch_size,
            )
            tables += count * fused_awq.fused_rotary_table(
                head_dim=attention.head_dim, prompt_tokens=chosen.prompt_tokens
            )
    expected = tables if model.model_type in chosen.release.fused_awq_models else 0
    amount = Amount(0, expected, max(expected, most - cache.final))
    detail = "only where AutoAWQ itself loads the model and fuses attention"
    return _item(
        "buffers",
        amount,
        "derived",
        "laws.fused_awq.fused_attention_cache",
        "casper-hansen/AutoAWQ@0.2.9",
        detail=detail,
    )


def loading(workload: Workload, part: Resident) -> tuple[MemoryItem, ...]:
    """What only loading holds: a head of its own until it is tied to the embedding."""
    if not part.extra_head or workload.weight_format.family not in _MAKES_HEAD:
        return ()
    amount = Amount(0, part.extra_head, part.extra_head)
    return (_item("framework", amount, "derived", "laws.weights.blocks", _TABLE, detail="head before it is tied"),)


def cache_items(size: int, cache: Held, chosen: Settings, part: Resident, *, grown: bool) -> tuple[MemoryItem, ...]:
    """Keys and values at a moment, recurrent states, and remainders counted with them."""
    items = []
    if size:
        tokens = chosen.length if grown else chosen.prompt_tokens
        detail = f"{chosen.cache} cache, batch {chosen.batch_size}, {tokens} tokens"
        source = "huggingface/transformers cache_utils.py"
        items.append(
            _item("kv_cache", within(size, 0.005), "derived", "laws.kv_cache.full_attention", source, detail=detail)
        )
        items += _remainders(size, cache, part, grown=grown)
    if cache.state:
        amount = within(cache.state, 0.5, 0.1)
        source = "huggingface/transformers@5.24 cache_utils.py LinearAttentionLayer"
        items.append(_item("recurrent_state", amount, "derived", "laws.recurrent_state", source))
    return tuple(items)


def _remainders(size: int, cache: Held, part: Resident, *, grown: bool) -> list[MemoryItem]:
    if not cache.tensors:
        return []
    request = size // cache.tensors
    kept = allocator.unsplit_remainders(free=part.gaps, request=request, count=cache.tensors)
    most = cache.tensors * MiB // 3 if grown or kept else 0
    if not most:
        return []
    # A growing cache moves through blocks of all sizes: what it keeps is not known, only that it is little.
    expected = 0 if grown else kept
    amount = Amount(0, expected, max(expected, most))
    detail = "remainders of cache blocks"
    return [_item("fragmentation", amount, "derived", "laws.allocator.unsplit_remainders", _ALLOCATOR, detail=detail)]


def prefill(
    workload: Workload, chosen: Settings, part: Resident, layers: tuple[int, ...] | None
) -> tuple[MemoryItem, ...]:
    """The widest moment of the prompt's pass: a layer, eager scores, a dequantized matrix, or logits of every position."""
    model, rows = workload.model, chosen.batch_size * chosen.prompt_tokens
    widest = width(model, chosen.execution, layers)
    layer = rows * widest.per_token + _mask(model, chosen)
    found: tuple[MemoryItem, ...] = (_layer_item(layer, widest),)
    leading = found[0].bytes.expected
    others = [_output(model, chosen, part)]
    if chosen.eager:
        others.append((_scores(model, chosen),))
    if workload.weight_format.family == "gptq":
        others.append((_torch_dequantization(workload, chosen, part),))
    if workload.weight_format.family == "bitsandbytes" and rows > 1:
        others.append(_dequantized(workload, chosen, part))
    for items in others:
        size = sum(item.bytes.expected for item in items)
        if size > leading:
            found, leading = items, size
    return found


def _mask(model: Model, chosen: Settings) -> int:
    """Mask of a prompt longer than a window. [bytes]"""
    window = _narrowest_window(model)
    tokens = chosen.prompt_tokens
    if window is None or chosen.eager or chosen.cache == "none":
        return 0
    if chosen.cache == "static":
        element, keys = chosen.execution.element_bytes, chosen.length
    elif chosen.release.sliding_cache == "window" and tokens > window:
        element, keys = 1, tokens
    else:
        return 0
    return generate.window_mask(batch_size=chosen.batch_size, tokens=tokens, keys=keys, element_bytes=element)


@remembered()
def _narrowest_window(model: Model) -> int | None:
    windows = [g.layer.attention.window for g in model.layers if g.layer.attention and g.layer.attention.window]
    return min(windows, default=None)


def _layer_item(size: int, widest: Width) -> MemoryItem:
    amount = within(size, widest.below, widest.above)
    return _item("activations", amount, "derived", widest.law, "traced with transformers 5.24; " + _TABLE)


def _scores(model: Model, chosen: Settings) -> MemoryItem:
    heads = max((g.layer.attention.num_attention_heads for g in model.layers if g.layer.attention), default=0)
    tokens, hidden = chosen.prompt_tokens, 3 * chosen.execution.element_bytes * model.hidden_size
    sizes = [
        generate.eager_scores(
            num_attention_heads=heads, tokens=tokens, keys=tokens, batch_size=chosen.batch_size, per_score_bytes=b
        )
        + chosen.batch_size * tokens * hidden
        for b in (6, 8, 10)
    ]
    return _item(
        "activations", Amount(*sizes), "derived", "eager_scores", "huggingface/transformers eager_attention_forward"
    )


def _torch_dequantization(workload: Workload, chosen: Settings, part: Resident) -> MemoryItem:
    form, model = workload.weight_format, workload.model
    rows = chosen.batch_size * chosen.prompt_tokens
    size = 0
    if form.family == "gptq" and form.block_elements == 1 and rows >= _KERNEL_SWITCH and part.largest_matrix:
        beside = generate.feed_forward(
            hidden_size=model.hidden_size,
            intermediate_size=_widest_feed_forward(model),
            products=1,
            element_bytes=chosen.execution.element_bytes,
        )
        size = rows * beside + generate.torch_dequantization(largest_matrix_elements=part.largest_matrix)
    return _item("activations", within(size, 0.05), "derived", "torch_dequantization", "AutoGPTQ@0.7.1; " + _TABLE)


def _dequantized(workload: Workload, chosen: Settings, part: Resident) -> tuple[MemoryItem, ...]:
    """A product that dequantizes its matrix, beside its input, its output and the hidden rows."""
    model, element = workload.model, chosen.execution.element_bytes
    if workload.weight_format.block_elements == 1:
        return ()
    beside = generate.feed_forward(
        hidden_size=model.hidden_size, intermediate_size=_widest_feed_forward(model), products=2, element_bytes=element
    )
    size = generate.dequantized_matrix(largest_matrix_elements=part.largest_matrix, element_bytes=element)
    source = "bitsandbytes-foundation/bitsandbytes@0.49 MatMul4Bit"
    rows = chosen.batch_size * chosen.prompt_tokens
    return (
        _item("activations", within(rows * beside, 0.1), "derived", "feed_forward", source),
        _item("dequantization", within(size, 0.1), "derived", "dequantized_matrix", source),
    )


@remembered()
def _widest_feed_forward(model: Model) -> int:
    return max((g.layer.mlp.intermediate_size for g in model.layers if g.layer.mlp), default=0)


def _output(model: Model, chosen: Settings, part: Resident) -> tuple[MemoryItem, ...]:
    if not part.head or not model.vocab_size or not model.num_hidden_layers:
        return ()
    last, rows = chosen.release.last_position_logits, chosen.batch_size * chosen.prompt_tokens
    logits = generate.prompt_logits(
        rows=chosen.batch_size if last else rows,
        vocab_size=model.vocab_size,
        element_bytes=chosen.execution.element_bytes,
        upcast=not last,
    )
    stream = serving_activations.normed_stream(
        rows=rows, hidden_size=model.hidden_size, element_bytes=chosen.execution.element_bytes
    )
    source = "huggingface/transformers models/llama LlamaForCausalLM.forward"
    return (
        _item("activations", within(stream, 0.1), "derived", "laws.serving_activations.normed_stream", source),
        _item("logits", exactly(logits), "derived", "prompt_logits", source),
    )


def left_behind(model: Model, chosen: Settings, part: Resident) -> tuple[MemoryItem, ...]:
    """What generate() still holds beside weights and caches when it returns."""
    vocabulary = model.vocab_size if part.head else 0
    return _left_behind(vocabulary, chosen.batch_size, chosen.execution.element_bytes)


@remembered(1024)
def _left_behind(vocab_size: int, batch_size: int, element_bytes: int) -> tuple[MemoryItem, ...]:
    small = _item(
        "framework", exactly(_SMALL_BLOCKS), "measured", "laws.allocator.segment", _TABLE, detail="ids and masks"
    )
    if not vocab_size:
        return (small,)
    size = generate.next_token_logits(batch_size=batch_size, vocab_size=vocab_size, element_bytes=element_bytes)
    source = "huggingface/transformers generation/utils.py _sample"
    return (small, _item("logits", exactly(size), "derived", "next_token_logits", source))


def decode(model: Model, chosen: Settings, cache: Held) -> MemoryItem:
    """What the last step needs for a moment."""
    if chosen.cache == "tuple":
        twice = generate.tuple_cache_step(cache_bytes=cache.final)
        return _item(
            "activations", within(twice, 0.05), "derived", "tuple_cache_step", "huggingface/transformers@v4.35.2"
        )
    size = generate.decode_step(
        key_bytes=0 if chosen.cache == "static" else cache.last_keys,
        value_bytes=cache.last_values,
        heads_per_kv_head=_queries_per_head(model),
        repeated=chosen.execution.repeats_kv_heads,
    )
    source = "huggingface/transformers cache_utils.py; " + _TABLE
    return _item("activations", within(size, 0.3), "derived", "decode_step", source)


@remembered()
def _queries_per_head(model: Model) -> int:
    """Query heads that share a KV head. [unitless]"""
    attention = next((g.layer.attention for g in model.layers if g.layer.attention), None)
    if attention is None or attention.kind == "mla":
        return 1
    return attention.num_attention_heads // max(1, attention.num_key_value_heads)


def outgrown(cache: Held, chosen: Settings) -> MemoryItem:
    """Blocks that growing caches leave behind; given back to the driver when something else needs them."""
    grown = 0 if chosen.cache == "static" else max(0, cache.final - cache.prompt)
    # Tuples hold everything twice already; their blocks fragment less on top.
    most = grown * 3 // 2 if chosen.cache == "tuple" else grown * 2
    amount = Amount(0, grown // 2, most)
    source = "measured: Qwen-7B and 1.8B runs of 2023 (about half the grown cache)"
    detail = (
        "cache blocks outgrown by concatenation; given back when the card is full,"
        " so `required` counts only what cannot be"
    )
    return _item(
        "fragmentation", amount, "measured", "laws.allocator.segment", source, detail=detail, counter="reserved"
    )


def stuck(blocks: MemoryItem) -> MemoryItem:
    """What remains of outgrown blocks when the allocator has given back every whole segment."""
    size = blocks.bytes.high
    amount = Amount(0, unavoidable(transient=size, percent=4), unavoidable(transient=size, percent=12))
    return structs.replace(blocks, bytes=amount)


def _item(
    component: str,
    amount: Amount,
    basis: Basis,
    law: str,
    source: str,
    *,
    detail: str = "",
    counter: Counter = "allocated",
) -> MemoryItem:
    return MemoryItem(
        component=component,
        bytes=amount,
        basis=basis,
        law=law if law.startswith("laws.") else "laws.generate." + law,
        source=source,
        detail=detail,
        counter=counter,
    )
