"""SGLang's accounting: a fraction of free memory for weights and cache; graphs, activations and tables outside it."""

from collections.abc import Iterator
from functools import lru_cache
from math import log2

from msgspec import Struct
from msgspec.structs import replace

from tonnage.estimate.fused_projections import with_whole_projections
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.resident import resident_tensors
from tonnage.estimate.serving import sglang_cache, sglang_findings, sglang_items, sglang_tables
from tonnage.estimate.serving.demand import Demand, demand
from tonnage.estimate.serving.drafts import Draft, draft
from tonnage.estimate.serving.plans import Plans
from tonnage.estimate.serving.rank_shape import RankShape, rank_shape
from tonnage.estimate.serving.sglang_cache import Pools
from tonnage.estimate.serving.sglang_settings import MANY_RANKS, SHORT_CONTEXT, Settings, settings
from tonnage.estimate.serving.vllm import total_memory
from tonnage.estimate.serving.vllm_settings import traits
from tonnage.estimate.weights import StageWeights, WeightRules, disk_bytes, stage_weights
from tonnage.laws import allocator, device_context, runtime, sampler, serving_activations
from tonnage.spec import card
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Model
from tonnage.spec.report import (
    Account,
    Amount,
    GpuLoad,
    Host,
    KvCache,
    PhaseItems,
    exactly,
)
from tonnage.spec.workload import Workload

RULES = WeightRules(
    vocabulary_multiple=64,
    layer_surplus="first",
    absent=frozenset({"mtp"}),
    without_zeros=frozenset({"gptq"}),
    merges=True,
    stacks_experts=True,
)
_WHOLE_EMBEDDING = replace(RULES, replicated_names=("embed_tokens",))
_WHOLE_SHARED = replace(RULES, replicated_names=("embed_tokens", "shared_experts"))
"""With DP attention or DeepEP, which a card does not state: embedding and shared experts stand on every rank."""
_CLONED_EXPERTS = replace(RULES, replicated=frozenset({"shared_experts"}))
_INVALIDATED_BY = (
    "another process on the same GPU: the fraction is of what is free",
    "another engine version or attention backend",
)
_REPACKED = frozenset({"awq", "gptq"})
"""Marlin packs them anew: the old packing may stay until graphs are captured, in whole segments (5.3 of 12.9 GiB in two logs)."""


class Rank(Struct, frozen=True, kw_only=True):
    """Everything of one pipeline stage's GPU."""

    stage: int
    ranks: tuple[int, ...]
    before: Amount
    """Context and communicators, taken before the weights. [bytes]"""
    weights: Amount
    buffers: int
    pools: Pools
    table: int
    """Map from requests to cache slots. [bytes]"""
    graphs: Amount
    activations: int
    logits: int
    draft: int
    draft_cache: int
    """The draft's own pool: as many tokens as the target's, outside the fraction. [bytes]"""


class Frame(Struct, frozen=True, kw_only=True):
    """Everything of a card that neither its traffic nor its longest request changes; `at` counts what the latter does."""

    chosen: Settings
    ranks: tuple[Rank, ...]
    standing: tuple[sglang_items.Standing, ...]
    """Items by rank."""
    total: Amount | None
    claimed: int | None
    host: Host
    unknowns: tuple[str, ...]

    def at(self, context: int) -> tuple[Settings, tuple[Rank, ...]]:
        """Settings and ranks for a longest request. [tokens]"""
        if context == self.chosen.context:
            return self.chosen, self.ranks
        chosen = replace(self.chosen, context=context)
        return chosen, tuple(_at(rank, chosen) for rank in self.ranks)


class Plan(Struct, frozen=True, kw_only=True):
    """Everything of a card that its traffic does not change."""

    chosen: Settings
    ranks: tuple[Rank, ...]
    standing: tuple[sglang_items.Standing, ...]
    tightest: Pools
    claimed: int | None
    cache: KvCache
    phases: tuple[tuple[PhaseItems, ...], ...]
    """By rank; empty without a card, whose pool is what the traffic needs."""
    host: Host
    unknowns: tuple[str, ...]


def account(workload: Workload) -> Account:
    """
    What SGLang makes of a card.

    Args:
        workload: Resolved card for SGLang.

    Returns:
        One load per pipeline stage, the cache as the log prints it, the engine's own refusals.
    """
    serving, family = workload.serving, _FRAMES.family(workload)
    assert isinstance(serving, card.Sglang)  # noqa: S101  (dispatch is by this type)
    plan = _PLANS.of_family(family, workload, family, serving.max_model_len)
    chosen = plan.chosen
    wanted = demand(
        serving, workload.placement, chosen.context, chosen.attention_groups, keeps_prefixes=chosen.keeps_prefixes
    )
    return Account(
        loads=tuple(_loads(plan, wanted)),
        kv_cache=plan.cache,
        claimed_bytes=plan.claimed,
        host=plan.host,
        assumptions=chosen.assumptions,
        unknowns=plan.unknowns,
        invalidated_by=_INVALIDATED_BY,
        findings=sglang_findings.findings(workload, chosen, plan.tightest, wanted) if plan.phases else (),
    )


def _loads(plan: Plan, wanted: Demand) -> Iterator[GpuLoad]:
    for number, rank in enumerate(plan.ranks):
        phases = plan.phases[number] if plan.phases else None
        if phases is None:
            asked = sglang_cache.demand_bytes(rank.pools, wanted)
            phases = sglang_items.phases(rank, plan.standing[number], asked, claims=False)
        need = exactly(sglang_cache.demand_of_pool(rank.pools, wanted, plan.chosen))
        yield GpuLoad(ranks=rank.ranks, stage=rank.stage, phases=phases, demand_kv=need)


def _plan(workload: Workload, family: object, stated: int | None) -> Plan:
    frame = _FRAMES.of_family(family, workload, stated is None, stated is not None and stated <= SHORT_CONTEXT)
    chosen, ranks = frame.at(stated or frame.chosen.context)
    claims = frame.total is not None
    tightest = min((rank.pools for rank in ranks), key=lambda pools: pools.tokens.expected)
    both = zip(ranks, frame.standing, strict=True)
    return Plan(
        chosen=chosen,
        ranks=ranks,
        standing=frame.standing,
        tightest=tightest,
        claimed=frame.claimed,
        cache=sglang_cache.kv_cache(tightest, chosen, claims),
        phases=tuple([sglang_items.phases(rank, found, 0, claims=True) for rank, found in both]) if claims else (),
        host=frame.host,
        unknowns=frame.unknowns,
    )


def _frame(workload: Workload, _own_length: bool, _short: bool) -> Frame:
    chosen, total = settings(workload), total_memory(workload.gpu)
    before = _before(workload, chosen)
    drafted = draft(workload, chosen.kv_formats, chosen.dtype)
    ranks = tuple(_rank(workload, chosen, stage, total, (before, drafted)) for stage in _stages(workload, chosen))
    return Frame(
        chosen=chosen,
        ranks=ranks,
        standing=tuple([sglang_items.standing(rank, chosen) for rank in ranks]),
        total=total,
        claimed=int(chosen.fraction * (total.expected - before.expected)) if total is not None else None,
        host=sglang_items.host(workload),
        unknowns=sglang_findings.unknowns(workload, chosen),
    )


_PLANS = Plans(_plan, card.Sglang)
_FRAMES = Plans(_frame, card.Sglang, apart=frozenset({"max_model_len"}))


# ---- weights ----


def _stages(workload: Workload, chosen: Settings, rules: WeightRules | None = None) -> tuple[StageWeights, ...]:
    placement = workload.placement
    return stage_weights(
        with_whole_projections(workload.model),
        workload.weight_format,
        workload.formats,
        tensor_parallel_size=placement.tensor_parallel_size,
        pipeline_parallel_size=placement.pipeline_parallel_size,
        expert_parallel_size=placement.expert_parallel_size,
        rules=rules or _rules(workload.model, chosen),
        dtype=chosen.dtype,
    )


def _rules(model: Model, chosen: Settings) -> WeightRules:
    rules = _rules_of_ranks(model, chosen)
    return (
        rules
        if chosen.attention_groups == 1
        else _grouped(rules, chosen.attention_groups, whole_head=chosen.release.attention_groups_are_ranks)
    )


@lru_cache(maxsize=256)
def _grouped(rules: WeightRules, groups: int, *, whole_head: bool) -> WeightRules:
    """The same rules for attention over data-parallel groups."""
    whole = (*rules.replicated_names, "lm_head") if whole_head else rules.replicated_names
    return replace(rules, attention_groups=groups, replicated_names=whole)


def _rules_of_ranks(model: Model, chosen: Settings) -> WeightRules:
    kind, release = model.model_type or "", chosen.release
    if kind.startswith(release.whole_embeddings):
        return _WHOLE_EMBEDDING
    if kind not in release.clones_shared_experts or not (chosen.rocm or chosen.major >= release.cloned_capability):
        return RULES
    mixtures = {g.layer.moe.num_experts for g in model.layers if g.layer.moe is not None}
    return _CLONED_EXPERTS if release.cloned_routed_experts in mixtures else RULES


def _rank(
    workload: Workload, chosen: Settings, stage: StageWeights, total: Amount | None, beside: tuple[Amount, Draft]
) -> Rank:
    placement, model = workload.placement, workload.model
    tp, held = placement.tensor_parallel_size, stage.layers or None
    shape = rank_shape(model, held, tensor_parallel_size=tp, expert_parallel_size=placement.expert_parallel_size)
    before, drafted = beside
    weights = _weights(workload, chosen, stage)
    tables = sglang_tables.beside_weights(workload, stage, chosen)
    memory = sglang_cache.memory(chosen, total, before, weights, tables + drafted.weights)
    draft_token = drafted.layers * drafted.layer_token_bytes
    pools = sglang_cache.pools(workload, chosen, stage, memory, draft_token_bytes=draft_token)
    return Rank(
        stage=stage.stage,
        ranks=tuple(range(stage.stage * tp, (stage.stage + 1) * tp)),
        before=before,
        weights=weights,
        buffers=tables,
        pools=pools,
        table=_table(pools, chosen),
        graphs=_graphs(chosen, shape, tp, model.vocab_size),
        activations=_activations(chosen, shape),
        draft=drafted.weights,
        draft_cache=0 if chosen.release.draft_cache_inside else draft_token * pools.tokens.expected,
        logits=sampler.logits(rows=max(chosen.decode_sizes, default=1), vocab_size=model.vocab_size, element_bytes=4),
    )


def _at(rank: Rank, chosen: Settings) -> Rank:
    """The rank with another longest request."""
    pools = sglang_cache.for_context(rank.pools, chosen)
    return replace(rank, pools=pools, table=_table(pools, chosen))


def _table(pools: Pools, chosen: Settings) -> int:
    return runtime.request_table(
        requests=pools.requests + chosen.release.spare_request_rows,
        max_model_len=chosen.context,
        extra_tokens=chosen.release.spare_request_columns + chosen.draft_tokens,
    )


def _weights(workload: Workload, chosen: Settings, stage: StageWeights) -> Amount:
    """Change of free memory while loading: whole segments of the allocator, and what loading brings in."""
    size, process = stage.total, chosen.release.process
    if workload.weight_bytes is not None:
        size = size * workload.weight_bytes // max(_checkpoint(workload), 1)
    elif workload.model.known and workload.weight_format.kind != "file-mix":
        placement = workload.placement
        size = _reserved(
            with_whole_projections(workload.model),
            workload.weight_format,
            workload.formats,
            _rules(workload.model, chosen),
            chosen.dtype,
            tensor_parallel_size=placement.tensor_parallel_size,
            pipeline_parallel_size=placement.pipeline_parallel_size,
            expert_parallel_size=placement.expert_parallel_size,
        )[stage.stage]
    plain = workload.weight_format.kind == "plain"
    part = int(size * (0.004 if plain else 0.02))
    grown = (
        2 * process.load_growth
        + _whole_shared(workload, chosen, stage)
        + (process.unified_compiled if chosen.unified else 0)
    )
    if workload.weight_format.family in _REPACKED and not chosen.rocm:
        grown += stage.quantized_bytes * 11 // 10
    return Amount(size - part, size + process.load_growth // 4, size + part + grown)


def _whole_shared(workload: Workload, chosen: Settings, stage: StageWeights) -> int:
    """How much more a rank holds where attention runs over data-parallel groups: the band knows it, the card does not. [bytes]"""
    if not (traits(workload.model).mla and workload.placement.tensor_parallel_size >= MANY_RANKS):
        return 0
    rules = _WHOLE_SHARED
    if chosen.attention_groups > 1:
        rules = _grouped(rules, chosen.attention_groups, whole_head=chosen.release.attention_groups_are_ranks)
    return max(0, _stages(workload, chosen, rules)[stage.stage].total - stage.total)


def _checkpoint(workload: Workload) -> int:
    """The computed checkpoint, which a known file size is compared with. [bytes]"""
    if not workload.model.known:
        return sum(s.total for s in stage_weights(workload.model, workload.weight_format, workload.formats))
    return disk_bytes(workload.model, workload.weight_format, workload.formats)


@remembered()
def _reserved(
    model: Model,
    weight_format: WeightFormat,
    formats: dict[str, WeightFormat],
    rules: WeightRules,
    dtype: str,
    **cut: int,
) -> tuple[int, ...]:
    tensors = resident_tensors(model, weight_format, formats, **cut, rules=rules, dtype=dtype)
    return tuple(allocator.reserved(tensors=stage) for stage in tensors)


# ---- cache ----


def _before(workload: Workload, chosen: Settings) -> Amount:
    """Context and communicators that free memory is measured after."""
    process = chosen.release.process
    if chosen.rocm:
        context = device_context.rocm()
    else:
        context = device_context.cuda(multiprocessors=chosen.multiprocessors) + device_context.torch_libraries()
    ranks = workload.placement.tensor_parallel_size * workload.placement.pipeline_parallel_size
    nccl = 0 if ranks == 1 else process.communicator_switched if chosen.nvswitch else process.communicator_pcie
    system = process.unified_system if chosen.unified else 0
    least = int(context * (process.least_rocm if chosen.rocm else 0.7) + nccl * 0.5)
    most = int(context * 1.5 + nccl * 1.8)
    most += process.desktop if workload.gpu is not None and workload.gpu.is_desktop else 0
    return Amount(least + system // 2, context + nccl + system, most + system * 3 // 2)


# ---- outside the fraction ----


def _graphs(chosen: Settings, shape: RankShape, ranks: int, vocabulary: int) -> Amount:
    """Nodes and reductions of every layer at every captured size; the logits of the largest, which all sizes share."""
    if not chosen.decode_sizes:
        return exactly(0)
    release, nodes = chosen.release, shape.layers * len(chosen.decode_sizes)
    process = release.process
    reductions = int(2 * nodes * release.graph_bytes_per_reduction * log2(ranks))
    size = release.graph_first_capture + nodes * release.graph_bytes_per_node
    if chosen.prefill_sizes:
        size += len(chosen.prefill_sizes) * release.prefill_graph_bytes
    else:
        size += max(chosen.decode_sizes) * vocabulary * (chosen.element_bytes + 4)
    spread, on_host = release.graph_spread, process.unified_compiled if chosen.unified else 0
    return Amount(
        int(size / spread + reductions / process.reductions_below),
        size + reductions + on_host // 2,
        int(size * spread + reductions * process.reductions_above) + on_host,
    )


def _activations(chosen: Settings, shape: RankShape) -> int:
    return serving_activations.mlp_eager(
        tokens=chosen.chunked_prefill_size,
        hidden_size=shape.hidden_size,
        width=max(shape.mlp_width, _expert_width(shape)),
        gated=shape.gated,
        element_bytes=chosen.element_bytes,
        keeps_gate_up=True,
    )


def _expert_width(shape: RankShape) -> int:
    return shape.experts.per_token * shape.experts.width if shape.experts is not None else 0
