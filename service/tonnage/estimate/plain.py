"""Weights and the caller's reserve: a card that is neither for serving nor for training."""

from msgspec.structs import replace

from tonnage.estimate.usual_shape import LARGEST_VOCABULARY, VOCABULARY, usual_width
from tonnage.estimate.weights import stage_weights
from tonnage.laws.rules_of_thumb import weights_only
from tonnage.laws.weights import average, part_of_file
from tonnage.spec.card import Placement
from tonnage.spec.facts import WeightFormat
from tonnage.spec.report import Account, Amount, Finding, GpuLoad, Host, MemoryItem, PhaseItems, exactly
from tonnage.spec.workload import Workload
from tonnage.units import ceil_div

_UNKNOWNS = (
    "cache: no context or concurrency stated",
    "activations and engine workspaces: neither serving nor training stated",
    "device context, allocator and communication buffers",
)
_INVALIDATED_BY = ("serving or training with this model: state it in the card and ask again",)


def account(workload: Workload) -> Account:
    """
    Weights per rank; everything else is said to be unknown and left to the caller's reserve.

    Args:
        workload: Resolved card without serving and training.

    Returns:
        One load per pipeline stage, with the weights alone.
    """
    placement = workload.placement
    loads = []
    for stage, item in enumerate(_weights(workload)):
        ranks = _ranks(placement, stage)
        loads.append(GpuLoad(ranks=ranks, stage=stage, phases=(PhaseItems("load", (item,)),)))
    whole = sum(load.phases[0].items[0].bytes.expected for load in loads) * placement.tensor_parallel_size
    return Account(
        loads=tuple(loads),
        host=Host(memory=exactly(0), disk_bytes=whole),
        unknowns=_UNKNOWNS,
        invalidated_by=_INVALIDATED_BY,
        findings=_findings(workload),
    )


def _ranks(placement: Placement, stage: int) -> tuple[int, ...]:
    """Ranks of a stage in every copy of the model: tensor ranks innermost, stages next, copies outermost."""
    width = placement.tensor_parallel_size
    copy = width * placement.pipeline_parallel_size
    return tuple(first + rank for first in range(stage * width, placement.gpus, copy) for rank in range(width))


def _findings(workload: Workload) -> tuple[Finding, ...]:
    if workload.reserve_bytes or workload.reserve_fraction:
        return ()
    return (
        Finding(
            status="needs_confirmation",
            reason="weights alone: cache, activations and context are unknown and no reserve stands for them",
            field="/reserve",
        ),
    )


def _weights(workload: Workload) -> list[MemoryItem]:
    """The weights item of each pipeline stage."""
    model, placement = workload.model, workload.placement
    if workload.weight_bytes is not None:
        ranks = placement.tensor_parallel_size * placement.pipeline_parallel_size
        share = part_of_file(file_bytes=workload.weight_bytes, ranks=ranks)
        return [
            _item("part_of_file", share, "user", "request", "size of a known file")
            for _ in range(placement.pipeline_parallel_size)
        ]
    if not model.known:
        return [_of_count(workload)] * placement.pipeline_parallel_size
    stages = stage_weights(
        model,
        workload.weight_format,
        workload.formats,
        tensor_parallel_size=placement.tensor_parallel_size,
        pipeline_parallel_size=placement.pipeline_parallel_size,
        expert_parallel_size=placement.expert_parallel_size,
    )
    return [
        _item("blocks", s.total, "exact", model.source, f"{s.parameters} parameters in {workload.weight_format.id}")
        for s in stages
    ]


def _of_count(workload: Workload) -> MemoryItem:
    """Parameters times the width of one: exact for a plain type, an average where a format leaves some of them wider."""
    kind, parameters, placement = workload.weight_format, workload.model.parameters_total, workload.placement
    ranks = placement.tensor_parallel_size * placement.pipeline_parallel_size
    if kind.kind == "plain":
        bits = 8 * kind.block_bytes // kind.block_elements
        share = ceil_div(weights_only(parameters=parameters, bits=bits), ranks)
        return _item("", share, "exact", "parameters x bits / 8", f"{parameters} parameters x {bits} bits")
    amount = kind.of_count(parameters)
    words = f"{parameters} parameters x {8 * amount / parameters:.2f} bits"
    if kind.kind == "file-mix":
        detail = f"{words}, the average of {kind.id} on Llama-3.1-8B"
        return _item(
            "average", average(parameters_bytes=amount, ranks=ranks), "assumed", "parameters x bits / 8", detail
        )
    usual, most = (_left_wide(kind, parameters, amount, tokens) for tokens in (VOCABULARY, LARGEST_VOCABULARY))
    detail = f"{words} of {kind.id}, and embedding and head in 16 bit: of 100,000 tokens, none to 152,064"
    item = _item("average", 0, "assumed", "parameters x bits / 8", detail if most else f"{words} of {kind.id}")
    sizes = (average(parameters_bytes=size, ranks=ranks) for size in (amount, amount + usual, amount + most))
    return replace(item, bytes=Amount(*sizes))


def _left_wide(kind: WeightFormat, parameters: int, amount: int, vocab_size: int) -> int:
    """What an embedding and a head in 16 bit take beyond their share of the format. [bytes]"""
    if kind.quantizes_embedding:
        return 0
    outside = min(2 * vocab_size * usual_width(parameters), parameters // 2)
    return max(0, 2 * outside - outside * amount // parameters)


def _item(law: str, amount: int, basis: str, source: str, detail: str) -> MemoryItem:
    name = f"laws.weights.{law}" if law else "laws.rules_of_thumb.weights_only"
    return MemoryItem(component="weights", bytes=exactly(amount), basis=basis, law=name, source=source, detail=detail)  # type: ignore[arg-type]  # basis is one of Basis by the callers above
