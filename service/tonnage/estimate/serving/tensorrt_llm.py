"""TensorRT-LLM: a part of what a largest run leaves is the cache; two backends, two kinds of buffers."""

from typing import Literal

from msgspec import Struct

from tonnage.estimate.caches import DTYPE_BYTES, plain_kv_format
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.demand import demand
from tonnage.estimate.serving.pooled import Pooling, Rank, feed_forward_width, pooled_account
from tonnage.estimate.serving.process import counted_context
from tonnage.estimate.serving.terms import Term
from tonnage.estimate.weights import StageWeights, WeightRules, disk_bytes, stage_weights
from tonnage.laws import tensorrt_llm as law
from tonnage.laws.generate import next_token_logits
from tonnage.spec import card
from tonnage.spec.engines.tensorrt_llm import TensorRtLlm as Release
from tonnage.spec.facts import Gpu
from tonnage.spec.model import Model
from tonnage.spec.report import Account, Amount, Assumption, MemoryItem, within
from tonnage.spec.workload import Workload
from tonnage.units import GiB, MiB, ceil_div

_UNKNOWN_LENGTH = 2048
_ENGINE_RULES = WeightRules(layer_surplus="first", replicated_names=("embed_tokens", "wte"))
_TORCH_RULES = WeightRules(layer_surplus="first")
_CUTLASS_MXFP4 = WeightRules(layer_surplus="first", expert_hidden_multiple=128, expert_intermediate_multiple=128)
"""CUTLASS pads both sides of an MXFP4 expert to 128 (tensorrt_llm/_torch/modules/fused_moe); gpt-oss-120b printed 63.52 GiB."""
_MEMORY_DOC = "NVIDIA/TensorRT-LLM@5a211b9 docs/source/reference/memory.md"
_UTIL = "NVIDIA/TensorRT-LLM@7ff5302 tensorrt_llm/_torch/pyexecutor/_util.py"
_WEIGHTS = Term("weights", "derived", "laws.weights.blocks", _MEMORY_DOC)
_CONTEXT_RUN = Term("activations", "derived", "laws.tensorrt_llm.context_run", _UTIL)
_EXECUTION = Term("activations", "calibrated", "laws.tensorrt_llm.execution_context", _MEMORY_DOC)
_LOGITS = Term("logits", "derived", "laws.generate.next_token_logits", _UTIL)
_DECODER = Term("sampler", "calibrated", "laws.tensorrt_llm.slot_rows", "TensorRT-LLM start-up logs")
_RUNTIME = Term("workspace", "calibrated", "laws.tensorrt_llm.slot_rows", "TensorRT-LLM start-up logs")
_NCCL = Term("communication", "assumed", "laws.tensorrt_llm.communicator", "ai-dynamo/aiconfigurator@095f58a")
_GRAPHS = Term("cuda_graphs", "assumed", "laws.tensorrt_llm.captured", _UTIL)
_POOL = Term("kv_cache", "derived", "laws.tensorrt_llm.pool", _UTIL)
_UNKNOWNS = ("plugins, speculative heads and vision encoders of TensorRT-LLM", "LoRA cache of TensorRT-LLM")
_INVALIDATED_BY = ("an engine built with other max_num_tokens or max_batch_size", "another backend")


class Settings(Struct, frozen=True, kw_only=True):
    """What memory depends on."""

    release: Release
    backend: Literal["pytorch", "tensorrt"]
    fraction: float
    max_batch_size: int
    max_num_tokens: int
    max_model_len: int
    block_size: int
    element_bytes: int
    assumptions: tuple[Assumption, ...]


def account(workload: Workload) -> Account:
    """
    What TensorRT-LLM allocates on every rank.

    Args:
        workload: Resolved card for TensorRT-LLM.

    Returns:
        Account with the pool.
    """
    chosen = settings(workload)
    serving = workload.serving
    assert serving is not None  # noqa: S101  (dispatch is by its type)
    own = plain_kv_format("bf16" if chosen.element_bytes == DTYPE_BYTES["bf16"] else "fp32")
    k, v = workload.kv_formats or (own, own)
    pooling = Pooling(
        fraction=chosen.fraction,
        used_share=chosen.fraction,
        block_size=chosen.block_size,
        k=k,
        v=v,
        field="/serving/free_gpu_memory_fraction",
        term=_POOL,
    )
    disk = workload.weight_bytes or disk_bytes(workload.model, workload.weight_format, workload.formats)
    return pooled_account(
        workload,
        _ranks(workload, chosen),
        pooling,
        demand(serving, workload.placement, chosen.max_model_len),
        max_model_len=chosen.max_model_len,
        assumptions=chosen.assumptions,
        unknowns=_UNKNOWNS,
        invalidated_by=_INVALIDATED_BY,
        disk_bytes=disk,
    )


def settings(workload: Workload) -> Settings:
    """Settings with the release's defaults, and the assumptions that completed them."""
    serving, release, model = workload.serving, workload.profile, workload.model
    assert isinstance(serving, card.TensorRtLlm)  # noqa: S101  (dispatch is by this type)
    assert isinstance(release, Release)  # noqa: S101  (dispatch is by this type)
    notes: list[Assumption] = []

    def default(field: str, given: float | None, value: float) -> float:
        if given is None:
            notes.append(Assumption(f"serving.{field}", value, f"default from {release.since}"))
            return value
        return given

    length = serving.max_model_len
    if length is None:
        length = model.max_position_embeddings or _UNKNOWN_LENGTH
        notes.append(Assumption("serving.max_model_len", length, "the model's longest"))
    batch = int(default("max_batch_size", serving.max_batch_size or serving.max_num_seqs, release.max_batch_size))
    stated = serving.max_num_tokens or serving.max_num_batched_tokens
    tokens = law.packed_tokens(
        stated=stated,
        default=release.max_num_tokens,
        max_batch_size=batch,
        max_seq_len=length,
        max_input_len=release.max_input_len,
    )
    if stated != tokens:
        why = f"default from {release.since}" if stated is None else "no more than a batch of longest requests"
        notes.append(Assumption("serving.max_num_tokens", tokens, why))
    given = serving.free_gpu_memory_fraction or serving.gpu_memory_utilization
    return Settings(
        release=release,
        backend=serving.backend or release.backend,
        fraction=default("free_gpu_memory_fraction", given, release.free_gpu_memory_fraction),
        max_batch_size=batch,
        max_num_tokens=tokens,
        max_model_len=length,
        block_size=serving.block_size or release.tokens_per_block,
        element_bytes=DTYPE_BYTES.get(model.dtype, 2),
        assumptions=tuple(notes),
    )


def _rules(workload: Workload, chosen: Settings) -> WeightRules:
    if chosen.backend == "tensorrt":
        return _ENGINE_RULES
    return _CUTLASS_MXFP4 if workload.weight_format.id.startswith("mxfp4") else _TORCH_RULES


def _ranks(workload: Workload, chosen: Settings) -> tuple[Rank, ...]:
    placement = workload.placement
    stages = stage_weights(
        workload.model,
        workload.weight_format,
        workload.formats,
        tensor_parallel_size=placement.tensor_parallel_size,
        pipeline_parallel_size=placement.pipeline_parallel_size,
        expert_parallel_size=placement.expert_parallel_size,
        rules=_rules(workload, chosen),
    )
    known = workload.weight_bytes
    total = sum(stage.total for stage in stages) or 1
    last = len(stages) - 1
    found = []
    for stage in stages:
        size = stage.total if known is None else known * stage.total // (total * placement.tensor_parallel_size)
        rank = _rank(
            workload.model,
            stage,
            workload.gpu,
            size=size,
            tensor_parallel_size=placement.tensor_parallel_size,
            release=chosen.release if chosen.backend == "tensorrt" else None,
            tokens=chosen.max_num_tokens,
            slots=chosen.max_batch_size,
            element_bytes=chosen.element_bytes,
            last=stage.stage == last,
        )
        found.append(rank)
    return tuple(found)


@remembered()
def _rank(
    model: Model,
    stage: StageWeights,
    gpu: Gpu | None,
    *,
    size: int,
    tensor_parallel_size: int,
    release: Release | None,
    tokens: int,
    slots: int,
    element_bytes: int,
    last: bool,
) -> Rank:
    communicator = law.communicator(tensor_parallel_size=tensor_parallel_size)
    resident = [_WEIGHTS.item(within(size, 0.02, 0.03), f"stage {stage.stage}"), counted_context(gpu)]
    if communicator:
        resident.append(_NCCL.item(Amount(0, communicator, communicator + GiB), "custom all-reduce may need none"))
    transient: tuple[MemoryItem, ...] = ()
    if release is not None:
        resident += _engine_buffers(model, release, tokens, slots, tensor_parallel_size, last=last)
    else:
        resident.append(_GRAPHS.item(Amount(100 * MiB, law.captured(), 2 * GiB), "decode batches"))
        width = ceil_div(feed_forward_width(model), tensor_parallel_size)
        transient = _torch_buffers(model, tokens, slots if last else 0, width, element_bytes)
    return Rank(stage=stage.stage, layers=stage.layers, resident=tuple(resident), transient=transient, outside=())


def _engine_buffers(
    model: Model, release: Release, tokens: int, slots: int, tensor_parallel_size: int, *, last: bool
) -> list[MemoryItem]:
    """Everything of a built engine is allocated at start and stays."""
    context = law.execution_context(
        max_num_tokens=tokens,
        hidden_size=model.hidden_size,
        intermediate_size=feed_forward_width(model),
        feed_forward_rows=release.context_feed_forward_rows,
        stream_rows=release.context_stream_rows,
        tensor_parallel_size=tensor_parallel_size,
    )
    kept = [_EXECUTION.item(within(context, 0.35, 0.15), f"{tokens} tokens a step")]
    if last:

        def rows(count: float) -> int:
            return law.slot_rows(rows=count, max_batch_size=slots, vocab_size=model.vocab_size)

        decoder, runtime, unprinted = map(rows, (release.decoder_rows, release.runtime_rows, release.unprinted_rows))
        kept.append(_DECODER.item(within(decoder, 0.1), f"{slots} slots"))
        most = runtime + runtime // 4 + unprinted
        kept.append(_RUNTIME.item(Amount(runtime - runtime // 4, runtime + unprinted // 2, most)))
    return kept


def _torch_buffers(model: Model, tokens: int, slots: int, width: int, element_bytes: int) -> tuple[MemoryItem, ...]:
    activations = law.context_run(
        max_num_tokens=tokens, hidden_size=model.hidden_size, intermediate_size=width, element_bytes=element_bytes
    )
    found = [_CONTEXT_RUN.item(within(activations, 0.4, 1.0), f"{tokens} tokens a step")]
    rows = min(slots, tokens)
    if rows:
        logits = next_token_logits(batch_size=rows, vocab_size=model.vocab_size, element_bytes=element_bytes)
        found.append(_LOGITS.item(Amount(0, logits // 4, 2 * logits), f"at most {rows} requests"))
    return tuple(found)
