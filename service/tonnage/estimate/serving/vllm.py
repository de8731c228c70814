"""vLLM's accounting: budget, weights, profile run, cache pool and graphs of every distinct GPU."""

from collections.abc import Iterator
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from tonnage.estimate import totals
from tonnage.estimate.serving import moe_kernels, vllm_capacity, vllm_findings, vllm_items
from tonnage.estimate.serving.demand import demand
from tonnage.estimate.serving.drafts import Draft, draft
from tonnage.estimate.serving.plans import Plans
from tonnage.estimate.serving.vllm_cache import Layout, layout
from tonnage.estimate.serving.vllm_compressed_cache import BLOCK, compressed_layout, is_compressed
from tonnage.estimate.serving.vllm_ranks import Common, RankAccount, rank_accounts
from tonnage.estimate.serving.vllm_reach import beyond, limits, reach
from tonnage.estimate.serving.vllm_runtime import outside
from tonnage.estimate.serving.vllm_settings import Settings, settings, traits
from tonnage.estimate.serving.vllm_support import too_long
from tonnage.estimate.serving.vllm_weights import (
    expert_ranks,
    loaded_weights,
)
from tonnage.estimate.totals import DevicePeak
from tonnage.estimate.weights import StageWeights
from tonnage.laws import budget
from tonnage.spec import card
from tonnage.spec.facts import Gpu
from tonnage.spec.report import Account, Amount, Deciding, GpuLoad, Host, KvCache, PhaseItems, exactly
from tonnage.spec.workload import Workload

_LATENT_ALIGN = 64
_MLA_HEADS = {"latent": None, "heads": 0, "heads_of_256": 256}
"""Width of cached heads by what a release caches of MLA layers; None: latents. [elements]"""


class Frame(Struct, frozen=True, kw_only=True):
    """Everything of a card that neither its traffic changes nor, out of its `reach`, its longest request."""

    chosen: Settings
    ranks: tuple[RankAccount, ...]
    layout: Layout
    blocks: Amount | None
    facts: vllm_findings.Facts
    standing: vllm_findings.Standing
    phases: tuple[tuple[PhaseItems, ...], ...]
    """By rank; empty without a card, whose pool is what the traffic needs."""
    peaks: tuple[tuple[DevicePeak, int], ...]
    """Device peak of each distinct rank and what a block costs it, as far as ranks differ; empty without a card. [bytes]"""
    device: Amount
    """Largest of the peaks. [bytes]"""
    printed_pool: Amount
    """Of the first rank. [bytes]"""
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
    frame = found.frame
    traffic, asked = _asked(workload, frame, found.chosen, found.request_blocks)
    return Account(
        loads=tuple(_loads(found, workload, asked.needed_blocks)),
        kv_cache=vllm_capacity.with_traffic(found.cache, asked.demand, traffic, frame.blocks),
        claimed_bytes=frame.claimed,
        host=found.host,
        assumptions=found.chosen.assumptions,
        unknowns=found.unknowns,
        invalidated_by=vllm_findings.INVALIDATED_BY,
        findings=vllm_findings.findings(frame.facts, frame.standing, asked),
    )


class Comparison:
    """Compares layouts of one card by what decides; what they have in common is worked out once."""

    def __init__(self, workload: Workload) -> None:
        """
        A comparison without layouts yet.

        Args:
            workload: Resolved card for vLLM; those that are compared differ from it in GPU and placement only.
        """
        self._family = _FRAMES.family(workload)
        self._reach: dict[tuple[Gpu | None, bool], tuple[int, ...]] = {}
        self._asked: dict[tuple[Layout, int, int, int], vllm_findings.Asked] = {}
        self._hosts: dict[tuple[int, int, int, bool, bool], Host] = {}

    def __call__(self, workload: Workload) -> Deciding:
        """
        What of the account decides, without what is only shown.

        Args:
            workload: The card on a GPU and a placement.

        Returns:
            The need of the GPU that needs most, the claim, host and findings.
        """
        frame, chosen = self._framed(workload)
        key = (frame.layout, workload.placement.data_parallel_size, chosen.in_flight_tokens, chosen.spare_states)
        asked = self._asked.get(key)
        if asked is None:
            _, asked = _asked(workload, frame, chosen, _request_blocks(frame.layout, chosen))
            self._asked[key] = asked
        claim, needed = None, frame.device
        if frame.claimed is not None:
            claim, blocks = frame.device, asked.needed_blocks
            needs = [totals.needed(peak, exactly(blocks * block)) for peak, block in frame.peaks]
            needed = needs[0] if len(needs) == 1 else max(needs, key=attrgetter("expected"))
        findings = vllm_findings.findings(frame.facts, frame.standing, asked)
        return Deciding(needed, claim, findings, self._host(workload, chosen, frame))

    def _host(self, workload: Workload, chosen: Settings, frame: Frame) -> Host:
        key = (workload.placement.gpus, frame.offloaded, chosen.max_num_seqs, chosen.legacy, chosen.runner_v2)
        found = self._hosts.get(key)
        if found is None:
            found = self._hosts[key] = vllm_items.host(workload, chosen, frame.offloaded)
        return found

    def _framed(self, workload: Workload) -> tuple[Frame, Settings]:
        key = (workload.gpu, workload.placement.pipeline_parallel_size > 1)
        reaching = self._reach.get(key)
        if reaching is None:
            reaching = self._reach[key] = reach(workload)
        frame = _FRAMES.of_family(self._family, workload, reaching)
        return frame, _with_length(frame.chosen, workload)


def _asked(
    workload: Workload, frame: Frame, chosen: Settings, request_blocks: int
) -> tuple[vllm_capacity.TrafficBlocks, vllm_findings.Asked]:
    """The blocks of a card's traffic, and of its longest request."""
    serving, length = workload.serving, chosen.max_model_len
    assert isinstance(serving, card.Vllm)  # noqa: S101  (dispatch is by this type)
    wanted = demand(serving, workload.placement, length)
    traffic = vllm_capacity.traffic_blocks(frame.layout, chosen, wanted)
    return traffic, vllm_findings.Asked(wanted, length, request_blocks, traffic.needed, too_long(workload))


def _request_blocks(cut: Layout, chosen: Settings) -> int:
    """Of one request of max_model_len. [blocks]"""
    return cut.request_blocks(chosen.max_model_len, chosen.in_flight_tokens, chosen.spare_states)


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
    family, serving = _FRAMES.family(workload), workload.serving
    return _PLANS.of_family(family, workload, family, None if serving is None else serving.max_model_len)


def _with_length(chosen: Settings, workload: Workload) -> Settings:
    serving = workload.serving
    if serving is not None and serving.max_model_len not in (None, chosen.max_model_len):
        return replace(chosen, max_model_len=serving.max_model_len)
    return chosen


def _plan(workload: Workload, family: object, _longest: int | None) -> Plan:
    frame = _FRAMES.of_family(family, workload, beyond(_LIMITS.of_family(family, workload), workload))
    chosen = _with_length(frame.chosen, workload)
    cut, pool = frame.layout, frame.printed_pool
    each = _request_blocks(cut, chosen)
    return Plan(
        chosen=chosen,
        frame=frame,
        request_blocks=each,
        cache=vllm_capacity.kv_cache(pool, cut, chosen, frame.blocks, request_blocks=each),
        host=vllm_items.host(workload, chosen, frame.offloaded),
        unknowns=vllm_findings.unknowns(workload, chosen, drafted=frame.drafted),
    )


def _printed_pool(ranks: tuple[RankAccount, ...]) -> Amount:
    """The first rank's; ranks of its stage that see no logits print more, and any of them may be what a log shows."""
    first = ranks[0].pool
    most = max((rank.pool.high for rank in ranks if rank.stage == ranks[0].stage), default=first.high)
    return Amount(max(0, first.low), max(0, first.expected), max(0, most))


def _frame(workload: Workload, _reach: tuple[int, ...]) -> Frame:
    chosen = settings(workload)
    experts = expert_ranks(workload.placement, workload)
    backends = chosen.release.moe_backends
    kernel = moe_kernels.kernel(backends, workload.weight_format, chosen.major, expert_parallel=experts > 1)
    loaded = loaded_weights(workload, chosen, kernel)
    total = total_memory(workload.gpu)
    drafted = draft(workload, chosen.kv_formats, chosen.dtype)
    beside = outside(workload.model, chosen, workload.placement)
    cut = _layout(workload, chosen, loaded.stages, drafted)
    ranks = rank_accounts(
        Common(workload, chosen, loaded, kernel, experts, beside, total, drafted, _states(cut, chosen))
    )
    blocks = _blocks(ranks, cut) if total is not None else None
    phases: tuple[tuple[PhaseItems, ...], ...] = ()
    if blocks is not None:
        claims = [blocks.expected * cut.block_bytes(rank.stage) for rank in ranks]
        phases = _phases(workload, chosen, ranks, claims)
    claimed = _claim(total, chosen)
    peaks = _peaks(ranks, phases, cut, claimed=claimed is not None)
    facts = vllm_findings.Facts(workload=workload, settings=chosen, ranks=ranks, layout=cut, total=total, blocks=blocks)
    return Frame(
        chosen=chosen,
        ranks=ranks,
        layout=cut,
        blocks=blocks,
        facts=facts,
        standing=vllm_findings.standing(facts),
        phases=phases,
        peaks=peaks,
        printed_pool=_printed_pool(ranks),
        device=max((peak.device for peak, _ in peaks), key=attrgetter("expected"), default=exactly(0)),
        claimed=claimed,
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


def _peaks(
    ranks: tuple[RankAccount, ...], phases: tuple[tuple[PhaseItems, ...], ...], cut: Layout, *, claimed: bool
) -> tuple[tuple[DevicePeak, int], ...]:
    found = [
        (totals.device_peak(items, claimed), cut.block_bytes(rank.stage))
        for rank, items in zip(ranks, phases, strict=False)
    ]
    return tuple(dict.fromkeys(found))


_PLANS = Plans(_plan, card.Vllm)
_FRAMES = Plans(_frame, card.Vllm, apart=frozenset({"max_model_len"}))
_LIMITS = Plans(limits, card.Vllm, apart=frozenset({"max_model_len"}))


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


__all__ = ["Comparison", "account", "total_memory"]
