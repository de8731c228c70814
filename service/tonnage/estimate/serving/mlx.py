"""mlx-lm on Apple silicon: weights, a growing cache and one prefill step inside the GPU's working set."""

from tonnage.estimate import caches
from tonnage.estimate.caches import DTYPE_BYTES, plain_kv_format
from tonnage.estimate.serving.demand import Demand, demand
from tonnage.estimate.serving.pooled import feed_forward_width
from tonnage.estimate.serving.process import device_context, host_memory, version_findings
from tonnage.estimate.serving.terms import Term
from tonnage.estimate.weights import WeightRules, disk_bytes, stage_weights
from tonnage.laws import mlx as law
from tonnage.laws.generate import prompt_logits
from tonnage.spec import card
from tonnage.spec.engines.mlx import Mlx as Release
from tonnage.spec.facts import KvFormat
from tonnage.spec.model import Layer, Model
from tonnage.spec.report import Account, Amount, Assumption, Finding, GpuLoad, KvCache, PhaseItems, exactly, within
from tonnage.spec.workload import Workload
from tonnage.units import GiB

_UNKNOWN_LENGTH = 4096
_RULES = WeightRules()
_LM = "ml-explore/mlx-lm@d78bf58e mlx_lm/"
_WEIGHTS = Term("weights", "derived", "laws.weights.blocks", _LM + "utils.py load_model", inside_budget=False)
_CACHE = Term("kv_cache", "derived", "laws.mlx.cache_tokens", _LM + "models/cache.py KVCache", inside_budget=False)
_STATE = Term("recurrent_state", "derived", "laws.recurrent_state", _LM + "models/cache.py", inside_budget=False)
_STEP = Term("activations", "derived", "laws.mlx.prefill_step", _LM + "generate.py generate_step", inside_budget=False)
_SCORES = Term(
    "activations", "derived", "laws.mlx.unfused_scores", "ml-explore/mlx@846d17622 fast.cpp", inside_budget=False
)
_COPY = Term("fragmentation", "derived", "laws.mlx.growth_copy", _LM + "models/cache.py", inside_budget=False)
_LOGITS = Term("logits", "derived", "laws.generate.prompt_logits", _LM + "generate.py", inside_budget=False)
_UNKNOWNS = ("images, adapters and draft models of mlx-lm",)
_INVALIDATED_BY = (
    "iogpu.wired_limit_mb: it moves the working set both ways",
    "other programs: memory is shared with the system",
)


def account(workload: Workload) -> Account:
    """
    What mlx-lm allocates of the unified memory.

    Args:
        workload: Resolved card for mlx-lm.

    Returns:
        One load; nothing is claimed in advance.
    """
    serving, release, model = workload.serving, workload.profile, workload.model
    assert isinstance(serving, card.Mlx)  # noqa: S101  (dispatch is by this type)
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    notes: list[Assumption] = []
    step = serving.prefill_step_size
    if step is None:
        step = release.prefill_step_size
        notes.append(Assumption("serving.prefill_step_size", step, f"default from {release.since}"))
    length = serving.max_model_len
    if length is None:
        length = model.max_position_embeddings or _UNKNOWN_LENGTH
        notes.append(Assumption("serving.max_model_len", length, "the model's longest"))
    wanted = demand(serving, workload.placement, length)
    requests = serving.batch_size or wanted.requests
    own = plain_kv_format(model.dtype)
    k, v = workload.kv_formats or (own, own)
    weights = workload.weight_bytes
    if weights is None:
        stages = stage_weights(model, workload.weight_format, workload.formats, rules=_RULES)
        weights = sum(stage.total for stage in stages)
    return Account(
        loads=(_load(workload, weights, Demand(requests, wanted.tokens, 0, wanted.stated), step, (k, v)),),
        kv_cache=_report(model, k, v, length),
        host=host_memory(expected=GiB, spread=2 * GiB, disk_bytes=_disk(workload)),
        assumptions=tuple(notes),
        unknowns=_UNKNOWNS,
        invalidated_by=_INVALIDATED_BY,
        findings=(*_findings(workload, release, weights), *version_findings(workload)),
    )


def _load(workload: Workload, weights: int, wanted: Demand, step: int, kv: tuple[KvFormat, KvFormat]) -> GpuLoad:
    model = workload.model
    element = DTYPE_BYTES[model.dtype]
    cache, largest, state = _caches(model, wanted, step, kv)
    resident = [_WEIGHTS.item(within(weights, 0.005, 0.01)), device_context(workload.gpu, torch=False)]
    tokens = min(step, wanted.tokens) * wanted.requests
    activations = law.prefill_step(
        tokens=tokens,
        hidden_size=model.hidden_size,
        intermediate_size=feed_forward_width(model),
        element_bytes=element,
    )
    held = [_CACHE.item(within(cache, 0.005, 0.02), f"{wanted.requests} requests of {wanted.tokens} tokens")]
    if state:
        held.append(_STATE.item(within(state, 0.1)))
    running = [
        _STEP.item(within(activations, 0.3, 0.5), f"{tokens} tokens of one prompt step"),
        _COPY.item(Amount(0, law.growth_copy(layer_bytes=largest), largest * 2), "one layer's cache while it grows"),
        _LOGITS.item(
            exactly(
                prompt_logits(rows=wanted.requests, vocab_size=model.vocab_size, element_bytes=element, upcast=True)
            )
        ),
    ]
    scores = wanted.requests * _scores(workload, min(step, wanted.tokens), wanted.tokens, element)
    if scores:
        running.append(_SCORES.item(within(scores, 0.1, 0.25), "heads without a fused kernel"))
    return GpuLoad(
        ranks=(0,),
        stage=0,
        phases=(
            PhaseItems("load", tuple(resident)),
            PhaseItems("prefill", (*resident, *held, *running)),
            PhaseItems("idle", (*resident, *held)),
        ),
    )


def _scores(workload: Workload, tokens: int, length: int, element: int) -> int:
    """Largest scores that one layer writes out. [bytes]"""
    release = workload.profile
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    largest = 0
    for group, _ in caches.decoder_groups(workload.model):
        attention = group.layer.attention
        latent = attention is not None and attention.kind == "mla"
        if attention is None or (attention.head_dim in release.fused_head_dims and not latent):
            continue
        context = length if attention.window is None else min(length, attention.window + tokens)
        scores = law.unfused_scores(
            tokens=tokens,
            context_tokens=context,
            heads=attention.num_attention_heads,
            element_bytes=element,
            latent=latent,
        )
        largest = max(largest, scores)
    return largest


def _caches(model: Model, wanted: Demand, step: int, kv: tuple[KvFormat, KvFormat]) -> tuple[int, int, int]:
    """Caches of all requests, the largest layer's, and recurrent states. [bytes]"""
    total = largest = 0
    for group, count in caches.decoder_groups(model):
        size = wanted.requests * _layer(group.layer, wanted.tokens, step, kv)
        total += count * size
        largest = max(largest, size)
    return total, largest, wanted.requests * caches.state_bytes_per_sequence(model, state_bytes=4)


def _layer(layer: Layer, tokens: int, step: int, kv: tuple[KvFormat, KvFormat]) -> int:
    attention = layer.attention
    per_token = caches.layer_cache_bytes_per_token(layer, *kv)
    if attention is None or attention.window is None:
        return per_token * law.cache_tokens(tokens=tokens)
    return per_token * law.rotating_cache_tokens(tokens=tokens, window=attention.window, prefill_step=step)


def _report(model: Model, k: KvFormat, v: KvFormat, length: int) -> KvCache | None:
    per_token = caches.token_bytes(model, k, v)
    if not per_token:
        return None
    return KvCache(
        bytes_per_token=per_token,
        state_bytes_per_sequence=caches.state_bytes_per_sequence(model, state_bytes=4),
        max_model_len=length,
        detail="no pool: caches grow by 256 tokens",
    )


def _findings(workload: Workload, release: Release, weights: int) -> tuple[Finding, ...]:
    gpu = workload.gpu
    if gpu is None:
        return ()
    found = []
    if gpu.vendor not in ("apple", "nvidia"):
        reason = f"mlx runs on Apple silicon (and, newly, CUDA), not on {gpu.vendor} cards"
        found.append(Finding(status="excluded", reason=reason, field="/placement/gpu"))
    if weights > release.warns_above * gpu.memory_usable_bytes:
        reason = "weights above nine tenths of the working set: mlx-lm warns that it will be slow"
        found.append(Finding(status="needs_confirmation", reason=reason, field="/weights/format"))
    return tuple(found)


def _disk(workload: Workload) -> int:
    return workload.weight_bytes or disk_bytes(workload.model, workload.weight_format, workload.formats)
