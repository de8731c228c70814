"""
Engines that fill what is left of a card with one cache pool after a largest run (TensorRT-LLM, TGI).

What an engine of this kind says about itself is a `Rank` per pipeline stage; pool, demand, capacity and
findings are the same for all of them.
"""

from typing import NamedTuple

from msgspec import Struct

from tonnage.estimate import caches
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.demand import Demand
from tonnage.estimate.serving.process import host_memory, version_findings
from tonnage.estimate.serving.terms import Term
from tonnage.estimate.totals import device_total
from tonnage.spec.facts import KvFormat
from tonnage.spec.model import Model
from tonnage.spec.report import (
    Account,
    Amount,
    Assumption,
    CapacityTokens,
    Finding,
    GpuLoad,
    Host,
    KvCache,
    MemoryItem,
    PhaseItems,
    exactly,
)
from tonnage.spec.workload import Workload
from tonnage.units import GiB, format_size, round_up


class Rank(Struct, frozen=True, kw_only=True):
    """One pipeline stage on its first tensor-parallel rank."""

    __hash__ = object.__hash__  # engines remember them: what is made of one is found by identity

    stage: int
    layers: tuple[int, ...]
    resident: tuple[MemoryItem, ...]
    """Weights first; they stay."""
    transient: tuple[MemoryItem, ...]
    """Alive during the largest run and during prefills."""
    outside: tuple[MemoryItem, ...]
    """Taken after the pool, beside it."""


class Pooling(Struct, frozen=True, kw_only=True):
    """How the engine turns what is left into a pool."""

    fraction: float
    """Part of what is left, or of the card. [fraction]"""
    used_share: float
    """What is in use is taken off by this part: all of it where the fraction is of the card. [fraction]"""
    block_size: int
    k: KvFormat
    v: KvFormat
    field: str
    """Setting that widens the pool."""
    term: Term


def pooled_account(
    workload: Workload,
    ranks: tuple[Rank, ...],
    pooling: Pooling,
    demand: Demand,
    *,
    max_model_len: int,
    assumptions: tuple[Assumption, ...],
    unknowns: tuple[str, ...] = (),
    invalidated_by: tuple[str, ...] = (),
    disk_bytes: int = 0,
) -> Account:
    """
    The account of an engine that pools what is left.

    Args:
        workload: Resolved card.
        ranks: Stages with their items.
        pooling: The engine's rule.
        demand: Traffic on one replica.
        max_model_len: Longest request. [tokens]
        assumptions: What completed the settings.
        unknowns: What is not modelled.
        invalidated_by: What would change the answer.
        disk_bytes: Checkpoint. [bytes]

    Returns:
        Loads, pool, capacity and findings.
    """
    stages = [_Stage(workload, rank, pooling, demand, max_model_len) for rank in ranks]
    tightest = min(stages, key=lambda s: s.requests_held)
    claims = workload.gpu is not None
    return Account(
        loads=tuple(stage.load() for stage in stages),
        kv_cache=tightest.report(),
        claimed_bytes=max(stage.claim() for stage in stages) if claims else None,
        host=_host(disk_bytes),
        assumptions=assumptions,
        unknowns=unknowns,
        invalidated_by=invalidated_by,
        findings=(*tightest.findings(), *version_findings(workload)),
    )


@remembered(1024)
def _host(disk_bytes: int) -> Host:
    return host_memory(expected=4 * GiB, spread=disk_bytes + 8 * GiB, disk_bytes=disk_bytes)


class _Stage:
    """One stage with its pool."""

    def __init__(self, workload: Workload, rank: Rank, pooling: Pooling, demand: Demand, max_model_len: int) -> None:
        self.workload = workload
        self.rank = rank
        self.pooling = pooling
        self.demand = demand
        self.max_model_len = max_model_len
        self.per_request = self.request_bytes(demand.tokens)
        self.longest = self.request_bytes(max_model_len)
        self.needed = demand.requests * self.per_request
        self.pool = self._pool()

    def request_bytes(self, tokens: int) -> int:
        """Cache and state of one request on this rank, whole blocks. [bytes]"""
        model, pooling, tp = self.workload.model, self.pooling, self.workload.placement.tensor_parallel_size
        length = round_up(tokens, pooling.block_size)
        layers = _layers(model, self.rank)
        cache = caches.sequence_bytes(model, length, pooling.k, pooling.v, tensor_parallel_size=tp, layers=layers)
        return cache + caches.state_bytes_per_sequence(model, tensor_parallel_size=tp, layers=layers)

    def _pool(self) -> Amount:
        gpu = self.workload.gpu
        fixed = self.workload.serving.kv_cache_memory_bytes if self.workload.serving is not None else None
        if isinstance(fixed, int):
            return exactly(fixed)
        if gpu is None:
            return exactly(self.needed)
        total, used = gpu.memory_usable_bytes, _without_pool(self.rank).used
        share = self.pooling.used_share
        budget = int(self.pooling.fraction * total)
        low, expected, high = (max(0, budget - int(share * n)) for n in (used.high, used.expected, used.low))
        return Amount(low, expected, high)

    @property
    def requests_held(self) -> float:
        """Longest requests the expected pool holds. [requests]"""
        return self.pool.expected / max(1, self.longest)

    def claim(self) -> int:
        """What the process takes of the card. [bytes]"""
        return self.pool.expected + _without_pool(self.rank).size

    def load(self) -> GpuLoad:
        rank, tp = self.rank, self.workload.placement.tensor_parallel_size
        pool = self.pooling.term.item(self.pool, f"{self.pooling.fraction:g} of what is left")
        first = rank.stage * tp
        phases = (
            *_without_pool(rank).phases,
            PhaseItems("kv_allocation", (*rank.resident, pool)),
            PhaseItems("prefill", (*rank.resident, pool, *rank.transient, *rank.outside)),
            PhaseItems("idle", (*rank.resident, pool, *rank.outside)),
        )
        return GpuLoad(
            ranks=tuple(range(first, first + tp)), stage=rank.stage, phases=phases, demand_kv=exactly(self.needed)
        )

    def report(self) -> KvCache | None:
        model, pooling, tp = self.workload.model, self.pooling, self.workload.placement.tensor_parallel_size
        layers = _layers(model, self.rank)
        per_token = caches.token_bytes(model, pooling.k, pooling.v, tensor_parallel_size=tp, layers=layers)
        if not per_token:
            return None
        tokens = [size // per_token for size in (self.pool.low, self.pool.expected, self.pool.high)]
        return KvCache(
            bytes_per_token=per_token,
            state_bytes_per_sequence=caches.state_bytes_per_sequence(model, tensor_parallel_size=tp, layers=layers),
            pool=self.pool,
            capacity_tokens=CapacityTokens(*tokens),
            max_concurrency=round(self.requests_held, 2),
            max_model_len=self.max_model_len,
            blocks=tokens[1] // pooling.block_size,
            block_size=pooling.block_size,
            largest_max_model_len=min(tokens[1], self.workload.model.max_position_embeddings or tokens[1]),
            detail="pool of the tightest stage",
        )

    def findings(self) -> tuple[Finding, ...]:
        if self.workload.gpu is None:
            return ()
        found = []
        for needed, what in (
            (self.longest, f"one request of {self.max_model_len} tokens"),
            (self.needed, self._traffic()),
        ):
            if self.pool.low >= needed:
                continue
            status = "excluded" if self.pool.high < needed else "needs_confirmation"
            band = f"{format_size(self.pool.low)} to {format_size(self.pool.high)}"
            reason = f"the pool of {band} may not hold {what} ({format_size(needed)})"
            found.append(Finding(status=status, reason=reason, field=self.pooling.field))  # type: ignore[arg-type]
        return tuple(found)

    def _traffic(self) -> str:
        return f"{self.demand.requests} requests of {self.demand.tokens} tokens"


def _layers(model: Model, rank: Rank) -> tuple[int, ...] | None:
    return None if len(rank.layers) == model.num_hidden_layers else rank.layers


class _WithoutPool(NamedTuple):
    """What a rank holds whatever is left of the card."""

    used: Amount
    """In the largest run. [bytes]"""
    size: int
    """Of all items. [bytes]"""
    phases: tuple[PhaseItems, ...]
    """Before the pool is there."""


@remembered()
def _without_pool(rank: Rank) -> _WithoutPool:
    run = (*rank.resident, *rank.transient)
    return _WithoutPool(
        device_total(run),
        sum(item.bytes.expected for item in (*run, *rank.outside)),
        (PhaseItems("load", rank.resident), PhaseItems("profile", run)),
    )


@remembered(1024)
def feed_forward_width(model: Model) -> int:
    """Intermediate elements of one token in the widest layer: of all experts it uses. [elements]"""
    widest = 0
    for group in model.layers:
        layer = group.layer
        if layer.mlp is not None:
            widest = max(widest, layer.mlp.intermediate_size)
        if layer.moe is not None:
            moe = layer.moe
            used = moe.num_experts_per_tok * moe.moe_intermediate_size + moe.shared_intermediate_size
            widest = max(widest, used)
    return widest


@remembered(1024)
def experts_used(model: Model) -> int:
    """Experts a token uses, 1 in a dense model. [unitless]"""
    return max((g.layer.moe.num_experts_per_tok for g in model.layers if g.layer.moe is not None), default=1)
