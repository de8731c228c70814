"""What each distinct GPU of a vLLM placement holds, and what its budget leaves for the cache."""

from collections.abc import Iterator
from math import isqrt
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tonnage.estimate.caches import decoder_groups
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving import moe_kernels
from tonnage.estimate.serving.drafts import Draft
from tonnage.estimate.serving.rank_shape import rank_shape
from tonnage.estimate.serving.vllm_profile import Peak, Rank, peak
from tonnage.estimate.serving.vllm_runtime import Graphs, Outside, graphs
from tonnage.estimate.serving.vllm_settings import Settings, traits
from tonnage.estimate.serving.vllm_weight_bands import held_weights
from tonnage.estimate.serving.vllm_weights import Loaded, RotaryTables, buffers, lora_slots
from tonnage.estimate.weights import StageWeights
from tonnage.laws import budget
from tonnage.spec.model import Model
from tonnage.spec.report import Amount, exactly
from tonnage.spec.workload import Workload


class RankAccount(Struct, frozen=True, kw_only=True):
    """Everything of one distinct GPU."""

    stage: int
    ranks: tuple[int, ...]
    weights: Amount
    buffers: int
    lora: int
    lora_later: int
    """Adapter slots that no budget of the release counts. [bytes]"""
    draft: int
    states: int
    """Recurrent states that the engine keeps beside its pool, for every request that may run. [bytes]"""
    offloaded: int
    peak: Peak
    outside: Outside
    graphs: Graphs
    pool: Amount
    """What the budget leaves for the cache; below nothing when it leaves none. [bytes]"""


class Common(NamedTuple):
    """What all stages share."""

    workload: Workload
    chosen: Settings
    loaded: Loaded
    kernel: moe_kernels.Kernel
    experts: int
    beside: Outside
    total: Amount | None
    drafted: Draft
    states: tuple[int, ...]
    """Recurrent states beside the pool, by stage. [bytes]"""


def rank_accounts(common: Common) -> tuple[RankAccount, ...]:
    """
    Every distinct GPU of a placement.

    Args:
        common: What all stages share.

    Returns:
        Accounts in order of their first rank.
    """
    tp = common.workload.placement.tensor_parallel_size
    found: list[RankAccount] = []
    for number, stage in enumerate(common.loaded.stages):
        if number and _holds_the_same(common, common.loaded.stages[number - 1], stage):
            ranks = tuple(range(stage.stage * tp, (stage.stage + 1) * tp))
            found.append(replace(found[-1], stage=stage.stage, ranks=ranks))
        else:
            found += _stage_ranks(common, stage)
    return tuple(found)


def _holds_the_same(common: Common, before: StageWeights, stage: StageWeights) -> bool:
    """Whether a stage in the middle of the pipeline is like the one before it in everything but its place."""
    middle = before.stage > 0 and stage.stage < len(common.loaded.stages) - 1
    if not middle or not stage.layers or replace(before, stage=stage.stage, layers=stage.layers) != stage:
        return False
    remainders, states, model = common.loaded.remainders, common.states, common.workload.model
    same = remainders[before.stage] == remainders[stage.stage] and states[before.stage] == states[stage.stage]
    return same and _kinds(model, before.layers) == _kinds(model, stage.layers)


@remembered()
def _kinds(model: Model, layers: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Which kinds of layers a stage holds, and how many of each."""
    places = {id(group): place for place, group in enumerate(model.layers)}
    return tuple((places[id(group)], count) for group, count in decoder_groups(model, layers))


def _stage_ranks(common: Common, stage: StageWeights) -> Iterator[RankAccount]:
    workload, chosen, kernel = common.workload, common.chosen, common.kernel
    tp = workload.placement.tensor_parallel_size
    last = stage.stage == len(common.loaded.stages) - 1
    held = stage.layers or None
    shape = rank_shape(workload.model, held, tensor_parallel_size=tp, expert_parallel_size=common.experts)
    weights, offloaded = held_weights(
        workload,
        stage.total,
        optional_kernels=kernel.name == "gpt_oss_triton" and not chosen.release.triton_kernels_bundled,
    )
    beside_weights = _beside_weights(common, stage)
    lora = workload.serving.lora if workload.serving is not None else None
    slots = _slots(common, stage) if lora is not None else 0
    later = slots if chosen.legacy and not chosen.release.v0_counts_adapters else 0
    kind = traits(workload.model)
    graph = graphs(shape, chosen, kernel.family, lora=lora is not None, recurrent=kind.recurrent, ranks=tp)
    for samples, ranks in _sampling_ranks(chosen, last, stage.stage * tp, tp):
        place = Rank(
            first=stage.stage == 0,
            last=last,
            samples=samples and not kind.encodes_only,
            tensor_parallel_size=tp,
            data_parallel_size=workload.placement.data_parallel_size,
            expert_parallel_size=common.experts,
        )
        profiled = peak(workload.model, shape, chosen, place, kernel)
        drafted = common.drafted.weights if last else 0
        states = common.states[stage.stage]
        stored = beside_weights + slots - later + drafted + states
        yield RankAccount(
            stage=stage.stage,
            ranks=ranks,
            weights=weights,
            buffers=beside_weights,
            lora=slots - later,
            lora_later=later,
            draft=drafted,
            states=states,
            offloaded=offloaded,
            peak=profiled,
            outside=common.beside,
            graphs=graph,
            pool=_pool(common, weights=weights, stored=stored, profiled=profiled, graph=graph),
        )


def _slots(common: Common, stage: StageWeights) -> int:
    """Adapter slots of one rank. [bytes]"""
    workload = common.workload
    assert workload.serving is not None and workload.serving.lora is not None  # noqa: S101, PT018  (asked for with adapters only)
    return lora_slots(
        workload.model,
        workload.serving.lora,
        stage.layers,
        common.chosen,
        ranks=workload.placement.tensor_parallel_size,
        expert_ranks=common.experts,
    )


def _beside_weights(common: Common, stage: StageWeights) -> int:
    """Buffers of a stage, and what the allocator counts beyond the tensors. [bytes]"""
    chosen, placement = common.chosen, common.workload.placement
    return common.loaded.remainders[stage.stage] + buffers(
        common.workload.model,
        stage.layers,
        stage.stage == 0,
        tensor_parallel_size=placement.tensor_parallel_size,
        element_bytes=chosen.element_bytes,
        tokens=chosen.max_num_batched_tokens,
        images=chosen.images,
        rope=RotaryTables(
            chosen.release.local_rope_model_types,
            chosen.release.mrope_positions_factor,
            chosen.release.mrope_model_types,
        ),
        absorbed_bytes=_absorbed_bytes(common),
    )


def _absorbed_bytes(common: Common) -> int:
    """Width of the products that a release forms of MLA's projections: fp8 stays fp8; 0 where it forms none. [bytes]"""
    if not common.chosen.release.absorbs_matrices:
        return 0
    return 1 if common.workload.weight_format.family == "fp8" else common.chosen.element_bytes


def _sampling_ranks(chosen: Settings, last: bool, first: int, count: int) -> tuple[tuple[bool, tuple[int, ...]], ...]:
    """V1 gathers logits on every rank of the last stage, V0 on its first rank only."""
    ranks = tuple(range(first, first + count))
    if not last or not chosen.legacy or count == 1:
        return ((last, ranks),)
    return (True, ranks[:1]), (False, ranks[1:])


def _pool(common: Common, *, weights: Amount, stored: int, profiled: Peak, graph: Graphs) -> Amount:
    chosen, total, beside = common.chosen, common.total, common.beside
    if chosen.pool_bytes is not None:
        return exactly(chosen.pool_bytes)
    if total is None:
        return exactly(0)
    expected = budget.pool_of_budget(
        budget=budget.fraction_of_total(fraction=chosen.fraction, total=total.expected),
        weights=weights.expected + stored,
        activation=profiled.total,
        non_torch=beside.framework.expected + beside.communication.expected,
        graphs=graph.estimate.expected,
    )
    parts = (weights, beside.framework, beside.communication, graph.estimate)
    spread = chosen.fraction * (total.expected - total.low)
    smaller = spread**2 + (profiled.above * profiled.total) ** 2 + sum((a.high - a.expected) ** 2 for a in parts)
    larger = spread**2 + (profiled.below * profiled.total) ** 2 + sum((a.expected - a.low) ** 2 for a in parts)
    return Amount(expected - isqrt(int(smaller)), expected, expected + isqrt(int(larger)))
