"""vLLM's accounting: budget, weights, profile run, cache pool and graphs of every distinct GPU."""

from collections.abc import Iterator
from math import isqrt
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tonnage.estimate.caches import decoder_groups
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving import moe_kernels, vllm_capacity, vllm_findings, vllm_items
from tonnage.estimate.serving.demand import demand
from tonnage.estimate.serving.drafts import Draft, draft
from tonnage.estimate.serving.plans import Plans
from tonnage.estimate.serving.rank_shape import rank_shape
from tonnage.estimate.serving.vllm_cache import Layout, layout
from tonnage.estimate.serving.vllm_compressed_cache import BLOCK, compressed_layout, is_compressed
from tonnage.estimate.serving.vllm_profile import Peak, Rank, peak
from tonnage.estimate.serving.vllm_runtime import Graphs, Outside, graphs, outside
from tonnage.estimate.serving.vllm_settings import Settings, reach, settings, traits
from tonnage.estimate.serving.vllm_weight_bands import held_weights
from tonnage.estimate.serving.vllm_weights import (
    Loaded,
    RotaryTables,
    buffers,
    expert_ranks,
    loaded_weights,
    lora_slots,
)
from tonnage.estimate.weights import StageWeights
from tonnage.laws import budget
from tonnage.spec import card
from tonnage.spec.facts import Gpu
from tonnage.spec.model import Model
from tonnage.spec.report import Account, Amount, GpuLoad, Host, KvCache, PhaseItems, exactly
from tonnage.spec.workload import Workload

_LATENT_ALIGN = 64
_MLA_HEADS = {"latent": None, "heads": 0, "heads_of_256": 256}
"""Width of cached heads by what a release caches of MLA layers; None: latents. [elements]"""


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


class Frame(Struct, frozen=True, kw_only=True):
    """Everything of a card that neither its traffic changes nor, out of its `reach`, its longest request."""

    chosen: Settings
    ranks: tuple[RankAccount, ...]
    layout: Layout
    total: Amount | None
    blocks: Amount | None
    phases: tuple[tuple[PhaseItems, ...], ...]
    """By rank; empty without a card, whose pool is what the traffic needs."""
    claimed: int | None
    offloaded: int
    """Weights kept in host memory over all ranks. [bytes]"""
    drafted: bool


class Plan(Struct, frozen=True, kw_only=True):
    """Everything of a card that its traffic does not change."""

    chosen: Settings
    frame: Frame
    request_blocks: int
    """Of one request of max_model_len. [blocks]"""
    cache: KvCache
    host: Host
    unknowns: tuple[str, ...]


def account(workload: Workload) -> Account:
    """
    What vLLM makes of a card.

    Args:
        workload: Resolved card for vLLM.

    Returns:
        One load per distinct GPU, the cache as the log prints it, the claim, the engine's own refusals.
    """
    found = plan(workload)
    chosen, frame, serving = found.chosen, found.frame, workload.serving
    assert isinstance(serving, card.Vllm)  # noqa: S101  (dispatch is by this type)
    wanted = demand(serving, workload.placement, chosen.max_model_len)
    needed = vllm_capacity.demand_blocks(frame.layout, chosen, wanted)
    facts = vllm_findings.Facts(
        workload=workload,
        settings=chosen,
        ranks=frame.ranks,
        layout=frame.layout,
        demand=wanted,
        total=frame.total,
        blocks=frame.blocks,
        request_blocks=found.request_blocks,
        needed_blocks=needed,
    )
    return Account(
        loads=tuple(_loads(found, workload, needed)),
        kv_cache=vllm_capacity.with_traffic(found.cache, frame.layout, chosen, wanted, frame.blocks),
        claimed_bytes=frame.claimed,
        host=found.host,
        assumptions=chosen.assumptions,
        unknowns=found.unknowns,
        invalidated_by=vllm_findings.INVALIDATED_BY,
        findings=vllm_findings.findings(facts),
    )


def _loads(found: Plan, workload: Workload, needed: int) -> Iterator[GpuLoad]:
    frame = found.frame
    for number, rank in enumerate(frame.ranks):
        need = needed * frame.layout.block_bytes(rank.stage)
        phases = frame.phases[number] if frame.phases else vllm_items.phases(rank, found.chosen, workload, need)
        yield GpuLoad(ranks=rank.ranks, stage=rank.stage, phases=phases, demand_kv=exactly(need))


def plan(workload: Workload) -> Plan:
    """
    The part of the account that traffic does not change.

    Args:
        workload: Resolved card for vLLM.

    Returns:
        The plan; cards with the same settings share one.
    """
    return _PLANS.of(workload)


def _plan(workload: Workload) -> Plan:
    serving, reaching = workload.serving, reach(workload)
    frame = _FRAMES.of(workload, reaching)
    chosen, cut = frame.chosen, frame.layout
    if reaching is None and serving is not None and serving.max_model_len is not None:
        chosen = replace(chosen, max_model_len=serving.max_model_len)
    each = cut.request_blocks(chosen.max_model_len, chosen.in_flight_tokens, chosen.spare_states)
    return Plan(
        chosen=chosen,
        frame=frame,
        request_blocks=each,
        cache=vllm_capacity.kv_cache(_printed_pool(frame.ranks), cut, chosen, frame.blocks),
        host=vllm_items.host(workload, chosen, frame.offloaded),
        unknowns=vllm_findings.unknowns(workload, chosen, drafted=frame.drafted),
    )


def _printed_pool(ranks: tuple[RankAccount, ...]) -> Amount:
    """The first rank's; ranks of its stage that see no logits print more, and any of them may be what a log shows."""
    first = ranks[0].pool
    most = max((rank.pool.high for rank in ranks if rank.stage == ranks[0].stage), default=first.high)
    return first if most == first.high else Amount(first.low, first.expected, most)


def _frame(workload: Workload, _reach: int | None) -> Frame:
    chosen = settings(workload)
    experts = expert_ranks(workload.placement, workload)
    backends = chosen.release.moe_backends
    kernel = moe_kernels.kernel(backends, workload.weight_format, chosen.major, expert_parallel=experts > 1)
    loaded = loaded_weights(workload, chosen, kernel)
    total = total_memory(workload.gpu)
    drafted = draft(workload, chosen.kv_formats, chosen.dtype)
    beside = outside(workload.model, chosen, workload.placement)
    cut = _layout(workload, chosen, loaded.stages, drafted)
    ranks = _ranks(Common(workload, chosen, loaded, kernel, experts, beside, total, drafted, _states(cut, chosen)))
    blocks = _blocks(ranks, cut) if total is not None else None
    phases: tuple[tuple[PhaseItems, ...], ...] = ()
    if blocks is not None:
        claims = [blocks.expected * cut.block_bytes(rank.stage) for rank in ranks]
        phases = _phases(workload, chosen, ranks, claims)
    return Frame(
        chosen=chosen,
        ranks=ranks,
        layout=cut,
        total=total,
        blocks=blocks,
        phases=phases,
        claimed=_claim(total, chosen),
        offloaded=sum(r.offloaded * len(r.ranks) for r in ranks),
        drafted=drafted.weights > 0,
    )


def _phases(
    workload: Workload, chosen: Settings, ranks: tuple[RankAccount, ...], claims: list[int]
) -> tuple[tuple[PhaseItems, ...], ...]:
    """Phases by rank; one object for neighbouring stages that hold the same."""
    found: list[tuple[PhaseItems, ...]] = []
    for number, (rank, claim) in enumerate(zip(ranks, claims, strict=True)):
        before = ranks[number - 1] if number else None
        same = before is not None and rank.peak is before.peak and rank.weights is before.weights
        if same and claim == claims[number - 1]:
            found.append(found[-1])
        else:
            found.append(vllm_items.phases(rank, chosen, workload, claim))
    return tuple(found)


_PLANS = Plans(_plan, card.Vllm)
_FRAMES = Plans(_frame, card.Vllm, apart=frozenset({"max_model_len"}))


def total_memory(gpu: Gpu | None) -> Amount | None:
    """What CUDA reports as the card's total, which the fraction is taken of."""
    if gpu is None:
        return None
    expected = max(gpu.memory_usable_expected_bytes or 0, gpu.memory_usable_bytes)
    return Amount(gpu.memory_usable_bytes, expected, 2 * expected - gpu.memory_usable_bytes)


def _claim(total: Amount | None, chosen: Settings) -> int | None:
    if total is None or chosen.pool_bytes is not None:
        return None
    return budget.fraction_of_total(fraction=chosen.fraction, total=total.expected)


# ---- ranks ----


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


def _ranks(common: Common) -> tuple[RankAccount, ...]:
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
    recurrent = traits(workload.model).recurrent
    graph = graphs(shape, chosen, kernel.family, lora=lora is not None, recurrent=recurrent, ranks=tp)
    for samples, ranks in _sampling_ranks(chosen, last, stage.stage * tp, tp):
        place = Rank(
            first=stage.stage == 0,
            last=last,
            samples=samples,
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


# ---- cache ----


def _layout(workload: Workload, chosen: Settings, stages: tuple[StageWeights, ...], drafted: Draft) -> Layout:
    model, placement = workload.model, workload.placement
    rule = chosen.release.compressed_block
    if rule != "none" and is_compressed(model):
        return compressed_layout(
            model,
            stages,
            rule=rule,
            by_bytes=chosen.release.concurrency_by_bytes,
            block_size=chosen.block_size if chosen.block_size_given else BLOCK,
            draft_layers=drafted.layers,
        )
    return layout(
        model,
        *chosen.kv_formats,
        stages,
        tensor_parallel_size=placement.tensor_parallel_size,
        block_size=chosen.block_size,
        hybrid="none" if chosen.legacy else chosen.release.hybrid_kv,
        element_bytes=chosen.element_bytes,
        align=_LATENT_ALIGN if traits(model).mla else chosen.release.block_size,
        every_state=chosen.every_state,
        mla_row_multiple=chosen.release.mla_row_multiple if chosen.legacy else 1,
        mla_head_width=_MLA_HEADS[chosen.release.mla_cache],
        states_apart=chosen.legacy,
        draft_layers=drafted.layers,
        draft_token_bytes=drafted.layer_token_bytes,
    )


def _states(cut: Layout, chosen: Settings) -> tuple[int, ...]:
    """Recurrent states beside the pool by stage: of as many requests as run or are captured at once. [bytes]"""
    if not cut.states_apart:
        return (0,) * len(cut.state_bytes)
    requests = (
        chosen.max_num_seqs
        if chosen.eager
        else next((size for size in chosen.captures if size >= chosen.max_num_seqs), chosen.max_num_seqs)
    )
    return tuple(size * requests for size in cut.state_bytes)


def _blocks(ranks: tuple[RankAccount, ...], cut: Layout) -> Amount:
    """Blocks of the pool: the fewest of any rank."""
    found = [
        tuple(max(0, cut.blocks(pool, rank.stage)) for pool in (rank.pool.low, rank.pool.expected, rank.pool.high))
        for rank in ranks
    ]
    low, expected, high = (min(column) for column in zip(*found, strict=True))
    return Amount(low, expected, high)


__all__ = ["RankAccount", "account", "total_memory"]
