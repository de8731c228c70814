"""Text Generation Inference: nine tenths of the card, a warm-up prefill inside, the rest of it the cache."""

from msgspec import Struct

from tonnage.estimate import caches
from tonnage.estimate.caches import DTYPE_BYTES, plain_kv_format
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.demand import demand
from tonnage.estimate.serving.pooled import Pooling, Rank, experts_used, feed_forward_width, pooled_account
from tonnage.estimate.serving.process import counted_context
from tonnage.estimate.serving.terms import Term
from tonnage.estimate.weights import StageWeights, WeightRules, disk_bytes, stage_weights
from tonnage.laws import tensorrt_llm, tgi
from tonnage.laws.weights import part_of_file
from tonnage.spec import card
from tonnage.spec.engines.tgi import Tgi as Release
from tonnage.spec.facts import Gpu, KvFormat
from tonnage.spec.model import Model
from tonnage.spec.report import Account, Amount, Assumption, within
from tonnage.spec.workload import Workload
from tonnage.units import GiB, MiB, ceil_div

_UNKNOWN_LENGTH = 4096
_LAUNCHER_SHARE = 0.95
_RULES = WeightRules(layer_surplus="first")
_SERVER = "huggingface/text-generation-inference@db931fcf server/text_generation_server/models/flash_causal_lm.py"
_WEIGHTS = Term("weights", "derived", "laws.weights.blocks", _SERVER)
_PREFILL = Term("activations", "derived", "laws.tgi.prefill_activations", _SERVER)
_LOGITS = Term("logits", "derived", "laws.tgi.warm_up_logits", _SERVER)
_SCORED = Term(
    "logits", "calibrated", "laws.tgi.scored_prompts", "huggingface/text-generation-inference@v2.2.0 warm-up"
)
_GRAPHS = Term("cuda_graphs", "assumed", "laws.tgi.captured", _SERVER, inside_budget=False)
_NCCL = Term("communication", "assumed", "laws.tensorrt_llm.communicator", "ai-dynamo/aiconfigurator@095f58a")
_POOL = Term("kv_cache", "derived", "laws.tgi.pool", _SERVER)
_UNKNOWNS = ("adapters, speculation and images of TGI",)
_INVALIDATED_BY = ("CUDA_MEMORY_FRACTION or TGI_WIGGLE_ROOM in the environment", "another attention than flashinfer")


class Settings(Struct, frozen=True, kw_only=True):
    """What memory depends on."""

    release: Release
    fraction: float
    block_size: int
    max_model_len: int
    prefill_tokens: int
    element_bytes: int
    k: KvFormat
    v: KvFormat
    assumptions: tuple[Assumption, ...]


def account(workload: Workload) -> Account:
    """
    What TGI allocates on every rank.

    Args:
        workload: Resolved card for TGI.

    Returns:
        Account with the pool.
    """
    serving, placement = workload.serving, workload.placement
    assert serving is not None  # noqa: S101  (dispatch is by its type)
    stages = stage_weights(
        workload.model,
        workload.weight_format,
        workload.formats,
        tensor_parallel_size=placement.tensor_parallel_size,
        pipeline_parallel_size=placement.pipeline_parallel_size,
        rules=_RULES,
    )
    chosen = settings(workload, stages)
    pooling = Pooling(
        fraction=chosen.fraction,
        used_share=1.0 if chosen.release.of_card else chosen.release.wiggle_room,
        block_size=chosen.block_size,
        k=chosen.k,
        v=chosen.v,
        field="/serving/gpu_memory_utilization",
        term=_POOL,
    )
    return pooled_account(
        workload,
        tuple(_rank(workload, chosen, stage, stage.stage == len(stages) - 1) for stage in stages),
        pooling,
        demand(serving, placement, chosen.max_model_len),
        max_model_len=chosen.max_model_len,
        assumptions=chosen.assumptions,
        unknowns=_UNKNOWNS,
        invalidated_by=_INVALIDATED_BY,
        disk_bytes=workload.weight_bytes or disk_bytes(workload.model, workload.weight_format, workload.formats),
    )


def settings(workload: Workload, stages: tuple[StageWeights, ...]) -> Settings:
    """Settings with the release's defaults, and the assumptions that completed them."""
    serving, release, model = workload.serving, workload.profile, workload.model
    assert isinstance(serving, card.Tgi)  # noqa: S101  (dispatch is by this type)
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    notes: list[Assumption] = []
    length = serving.max_model_len
    if length is None:
        longest = model.max_position_embeddings or _UNKNOWN_LENGTH
        length = min(longest, release.longest_default or longest)
        why = "the model's longest" if length == longest else f"default from {release.since}"
        notes.append(Assumption("serving.max_model_len", length, f"max_total_tokens: {why}"))
    fraction = serving.gpu_memory_utilization
    if fraction is None:
        fraction = release.cuda_memory_fraction
        notes.append(Assumption("serving.gpu_memory_utilization", fraction, "CUDA_MEMORY_FRACTION"))
    own = plain_kv_format(model.dtype)
    k, v = workload.kv_formats or (own, own)
    tokens = serving.max_num_batched_tokens
    if tokens is None:
        tokens = _prefill_tokens(workload, release, max(stage.total for stage in stages), length, (k, v))
        notes.append(Assumption("serving.max_num_batched_tokens", tokens, "max_batch_prefill_tokens of the launcher"))
    return Settings(
        release=release,
        fraction=fraction * release.wiggle_room,
        block_size=serving.block_size or release.block_size,
        max_model_len=length,
        prefill_tokens=tokens,
        element_bytes=DTYPE_BYTES[model.dtype],
        k=k,
        v=v,
        assumptions=tuple(notes),
    )


def _prefill_tokens(
    workload: Workload, release: Release, weights: int, length: int, kv: tuple[KvFormat, KvFormat]
) -> int:
    """max_batch_prefill_tokens as the launcher sets it. [tokens]"""
    model, gpu = workload.model, workload.gpu
    tokens = release.prefill_tokens_by_model.get(model.model_type, release.prefill_tokens)
    if release.computes_prefill_tokens and gpu is not None and model.model_type not in release.prefill_tokens_by_model:
        tokens = min(length, _fitting_tokens(model, gpu, weights, kv, workload.placement.tensor_parallel_size))
    return tokens


@remembered()
def _fitting_tokens(model: Model, gpu: Gpu, weights: int, kv: tuple[KvFormat, KvFormat], ranks: int) -> int:
    """Tokens of the largest prefill that the launcher reckons to fit beside the weights. [tokens]"""
    return tgi.prefill_tokens(
        free=max(0, int(_LAUNCHER_SHARE * gpu.memory_usable_bytes) - weights),
        token_bytes=max(1, caches.token_bytes(model, *kv, tensor_parallel_size=ranks)),
        intermediate_size=feed_forward_width(model) // experts_used(model),
        experts=experts_used(model),
        element_bytes=DTYPE_BYTES[model.dtype],
    )


def _rank(workload: Workload, chosen: Settings, stage: StageWeights, last: bool) -> Rank:
    placement, size = workload.placement, stage.total
    if workload.weight_bytes is not None:
        size = part_of_file(
            file_bytes=workload.weight_bytes, ranks=placement.tensor_parallel_size * placement.pipeline_parallel_size
        )
    return _rank_of(
        workload.model,
        stage,
        workload.gpu,
        size=size,
        tensor_parallel_size=placement.tensor_parallel_size,
        tokens=chosen.prefill_tokens,
        element_bytes=chosen.element_bytes,
        last=last,
        scores_prompts=chosen.release.scores_prompts,
    )


@remembered()
def _rank_of(
    model: Model,
    stage: StageWeights,
    gpu: Gpu | None,
    *,
    size: int,
    tensor_parallel_size: int,
    tokens: int,
    element_bytes: int,
    last: bool,
    scores_prompts: bool,
) -> Rank:
    activations = tgi.prefill_activations(
        tokens=tokens,
        hidden_size=model.hidden_size,
        intermediate_size=ceil_div(feed_forward_width(model), tensor_parallel_size),
        element_bytes=element_bytes,
    )
    resident = [_WEIGHTS.item(within(size, 0.02, 0.03)), counted_context(gpu)]
    communicator = tensorrt_llm.communicator(tensor_parallel_size=tensor_parallel_size)
    if communicator:
        resident.append(_NCCL.item(Amount(communicator // 2, communicator, communicator + GiB)))
    transient = [_PREFILL.item(within(activations, 0.3, 0.5), f"{tokens} tokens of warm-up")]
    if last and scores_prompts:
        scored = tgi.scored_prompts(tokens=tokens, vocab_size=model.vocab_size, element_bytes=element_bytes)
        transient.append(_SCORED.item(within(scored, 0.5, 0.15), "log-probabilities of every warm-up token"))
    elif last:
        logits = tgi.warm_up_logits(tokens=tokens, vocab_size=model.vocab_size, element_bytes=element_bytes)
        transient.append(_LOGITS.item(Amount(0, logits // 4, logits), "rows of the warm-up batch"))
    graphs = _GRAPHS.item(Amount(100 * MiB, tgi.captured(), 2 * GiB), "captured after the pool, in the tenth left free")
    return Rank(
        stage=stage.stage,
        layers=stage.layers,
        resident=tuple(resident),
        transient=tuple(transient),
        outside=(graphs,),
    )
