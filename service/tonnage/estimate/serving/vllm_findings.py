"""vLLM's own refusals before and after capacity: budget, slots, settings that contradict each other, thin evidence."""

from typing import NamedTuple

from msgspec import Struct

from tonnage.estimate.serving.demand import Demand
from tonnage.estimate.serving.profiled_items import largest_item
from tonnage.estimate.serving.vllm_cache import Layout
from tonnage.estimate.serving.vllm_compressed_cache import is_compressed
from tonnage.estimate.serving.vllm_ranks import RankAccount
from tonnage.estimate.serving.vllm_settings import Settings, has_v0
from tonnage.estimate.serving.vllm_support import refusals
from tonnage.laws import budget
from tonnage.spec.report import Amount, Finding, Verdict
from tonnage.spec.workload import Workload
from tonnage.units import format_size

INVALIDATED_BY = (
    "another process on the same GPU: vLLM counts it against its own fraction",
    "another engine version, attention backend or compilation setting",
    "a driver that leaves less of the card",
)
_FP8_ROW = 128
"""Any row: of fp8 it takes as many bytes as elements. [elements]"""
_BLOCKS_WHEN_PREDICTING = 0.75
"""Qwen3.8-27B on 95 GiB with 1,024 requests: 939, 1,011 and 556 blocks (vllm-project/recipes pull request 831), 17 to 21 %
fewer than without its prediction layer. [fraction]"""


class Facts(Struct, frozen=True, kw_only=True):
    """What the findings look at that no traffic and, out of its reach, no longest request changes."""

    workload: Workload
    settings: Settings
    ranks: tuple[RankAccount, ...]
    layout: Layout
    total: Amount | None
    blocks: Amount | None

    @property
    def chosen_speculates(self) -> bool:
        """The card states speculative decoding."""
        serving = self.workload.serving
        return serving is not None and serving.speculative is not None


class Asked(NamedTuple):
    """What a card asks of the pool."""

    demand: Demand
    max_model_len: int
    request_blocks: int
    """Of one request of max_model_len. [blocks]"""
    needed_blocks: int
    """Of the traffic. [blocks]"""
    too_long: tuple[Finding, ...]
    """Against the length that the model's config states."""


class Standing(NamedTuple):
    """Findings that all traffic meets, by their place among the others."""

    batch: tuple[Finding, ...]
    refused: tuple[Finding, ...]
    settings: tuple[Finding, ...]
    slots: tuple[Finding, ...]


def standing(facts: Facts) -> Standing:
    """
    Reasons that follow from the settings alone.

    Args:
        facts: The account before any traffic.

    Returns:
        Findings, the worst of which no traffic makes better.
    """
    slots: list[Finding] = []
    if facts.total is not None and facts.workload.model.known:
        slots = [*_slots(facts), *_free_at_start(facts)]
    return Standing(
        (*_version(facts), *_batch(facts.settings)),
        refusals(facts.workload, facts.settings),
        (*_compressed_cache(facts), *_long_items(facts)),
        tuple(slots),
    )


def findings(facts: Facts, found: Standing, asked: Asked) -> tuple[Finding, ...]:
    """
    Reasons beside plain capacity.

    Args:
        facts: The account before any traffic.
        found: What follows from it alone.
        asked: Traffic and longest request.

    Returns:
        Findings; the worst one wins.
    """
    budget_findings: list[Finding] = []
    if facts.total is not None and facts.workload.model.known:
        budget_findings = _budget(facts, asked)
    waits = _waiting(facts.settings, asked.demand)
    return (*found.batch, *waits, *found.refused, *asked.too_long, *found.settings, *budget_findings, *found.slots)


def unknowns(workload: Workload, chosen: Settings, *, drafted: bool) -> tuple[str, ...]:
    """What of this card no law covers."""
    found, model = [], workload.model
    if not model.known:
        found.append("activations and cache: only a parameter count is known")
    if chosen.rocm:
        found.append("activation and non-torch memory on AMD: laws are derived from CUDA runs")
    speculative = workload.serving.speculative if workload.serving is not None else None
    if speculative is not None and speculative.method.lower() != "ngram":
        found.append("activations and graphs of the draft")
        if not drafted:
            found.append(f"weights and cache of the {speculative.method} draft: no source knows it")
    if chosen.images and largest_item(model, chosen.max_model_len, chosen.videos) is None:
        found.append("vision encoder's profile: tokens per image not known")
    return tuple(found)


def _version(facts: Facts) -> list[Finding]:
    if facts.workload.profile_certain:
        return []
    version = getattr(facts.workload.serving, "engine_version", None)
    reason = f"vLLM {version}: answered with the profile of {facts.settings.release.since}"
    return [Finding(status="needs_confirmation", reason=reason, field="/serving/engine_version")]


def _batch(chosen: Settings) -> list[Finding]:
    if chosen.legacy or chosen.max_num_batched_tokens >= chosen.max_num_seqs:
        return []
    reason = f"max_num_batched_tokens ({chosen.max_num_batched_tokens}) must be at least max_num_seqs ({chosen.max_num_seqs})"
    return [Finding(status="excluded", reason=reason, field="/serving/max_num_batched_tokens")]


def _waiting(chosen: Settings, wanted: Demand) -> tuple[Finding, ...]:
    if wanted.requests <= chosen.max_num_seqs:
        return ()
    reason = f"{wanted.requests} requests at once, but max_num_seqs {chosen.max_num_seqs}: the rest waits"
    return (Finding(status="needs_confirmation", reason=reason, field="/serving/max_num_seqs"),)


def _compressed_cache(facts: Facts) -> list[Finding]:
    """The kernel of compressed layers reads an fp8 cache only, which older releases must be told."""
    chosen = facts.settings
    quantized = chosen.kv_formats[0].row_bytes(_FP8_ROW) == _FP8_ROW
    if quantized or chosen.rocm or chosen.release.quantizes_compressed_cache or not is_compressed(facts.workload.model):
        return []
    reason = f"vLLM {chosen.release.since} reads only an fp8 cache of this model: set kv_cache_dtype fp8"
    return [Finding(status="excluded", reason=reason, field="/serving/kv_cache_dtype")]


def _long_items(facts: Facts) -> list[Finding]:
    """How a release profiles an image of more tokens than a request may have is not settled while it has two engines."""
    model, chosen = facts.workload.model, facts.settings
    if model.vision is None or not chosen.images:
        return []
    item = largest_item(model, chosen.max_model_len, chosen.videos)
    if item is not None and (not has_v0(chosen.release) or item.tokens <= chosen.max_model_len):
        return []
    reason = "how many tokens the largest image becomes is not known: the encoder's profile is left out"
    if item is not None:
        reason = (
            f"the largest image or video becomes {item.tokens} tokens, max_model_len is {chosen.max_model_len}: the "
            "encoder's profile is uncertain; limit images and videos per prompt"
        )
    return [Finding(status="needs_confirmation", reason=reason, field="/serving/multimodal")]


# ---- budget ----


def _budget(facts: Facts, asked: Asked) -> list[Finding]:
    tightest = facts.ranks[0] if len(facts.ranks) == 1 else min(facts.ranks, key=lambda r: r.pool.expected)
    if tightest.pool.high <= 0:
        return [_no_pool(facts, tightest)]
    found, one, least = [], asked.request_blocks, facts.blocks.low if facts.blocks is not None else 0
    if one > least:
        what = f"one request of max_model_len {asked.max_model_len}"
        found += _against_blocks(facts, one, what, "ValueError at start")
    if asked.demand.stated and asked.needed_blocks > max(one, least):
        what = f"{asked.demand.requests} requests of {asked.demand.tokens} tokens each"
        found += _against_blocks(facts, asked.needed_blocks, what, "requests would be preempted")
    if tightest.pool.low <= 0 and not found:
        found.append(_no_pool(facts, tightest, "needs_confirmation"))
    return found


def _no_pool(facts: Facts, rank: RankAccount, status: Verdict = "excluded") -> Finding:
    used = rank.weights.expected + rank.buffers + rank.lora + rank.draft + rank.peak.total
    return Finding(
        status=status,
        reason=f"no available memory for the cache blocks: {facts.settings.fraction:g} of "
        f"{format_size(facts.total.expected if facts.total else 0)} against {format_size(used)} of weights and activations; "
        f"{_remedy(facts, 1)}",
        field="/serving/gpu_memory_utilization",
    )


def _against_blocks(facts: Facts, needed: int, what: str, otherwise: str) -> list[Finding]:
    blocks = facts.blocks
    if blocks is None or needed <= blocks.low:
        return []
    status: Verdict = "excluded" if needed > blocks.high else "needs_confirmation"
    size = max(facts.layout.block_bytes(rank.stage) for rank in facts.ranks)
    reason = (
        f"{what} needs {format_size(needed * size)} of cache, the budget leaves "
        f"{format_size(blocks.low * size)} to {format_size(blocks.high * size)} ({otherwise}); "
        f"{_remedy(facts, needed)}"
    )
    return [Finding(status=status, reason=reason, field="/serving/gpu_memory_utilization")]


def _remedy(facts: Facts, blocks: int) -> str:
    fraction = smallest_fraction(facts, blocks)
    if fraction > 1:
        return "no gpu_memory_utilization is enough"
    if fraction <= facts.settings.fraction:
        return f"the expected amounts would need {fraction:.2f} of gpu_memory_utilization, the high ones more than is given"
    return f"it would take gpu_memory_utilization {fraction:.2f}"


def smallest_fraction(facts: Facts, blocks: int) -> float:
    """Smallest gpu_memory_utilization that leaves so many blocks, by the expected amounts. [fraction]"""
    total = facts.total.expected if facts.total is not None else 1
    needed = max(
        rank.weights.expected + rank.buffers + rank.lora + rank.draft + rank.peak.total + rank.outside.framework.expected
        + rank.outside.communication.expected + rank.graphs.estimate.expected
        + blocks * facts.layout.block_bytes(rank.stage)
        for rank in facts.ranks
    )  # fmt: skip
    return budget.smallest_fraction(needed=needed, total=total)


def _slots(facts: Facts) -> list[Finding]:
    """Every running request needs a block of each recurrent group; newer releases refuse to start with fewer."""
    groups, blocks, chosen = facts.layout.recurrent_groups, facts.blocks, facts.settings
    if not groups or blocks is None or chosen.eager or not chosen.release.refuses_few_states:
        return []
    slots = chosen.max_num_seqs
    if slots <= blocks.low:
        return _slots_when_predicting(facts, slots, blocks.low)
    status: Verdict = "excluded" if slots > blocks.high else "needs_confirmation"
    reason = (
        f"max_num_seqs ({slots}) against {blocks.low} to {blocks.high} blocks for recurrent states: "
        f"lower max_num_seqs to {blocks.low}"
    )
    return [Finding(status=status, reason=reason, field="/serving/max_num_seqs")]


def _slots_when_predicting(facts: Facts, slots: int, blocks: int) -> list[Finding]:
    """Recipes of models that bring a prediction layer switch it on, which takes a layer of cache and a larger sampler."""
    if facts.chosen_speculates or not facts.workload.model.mtp_layers or slots <= blocks * _BLOCKS_WHEN_PREDICTING:
        return []
    reason = (
        f"max_num_seqs ({slots}) against {blocks} blocks for recurrent states: fewer if the model's prediction layer is "
        "used; state /serving/speculative"
    )
    return [Finding(status="needs_confirmation", reason=reason, field="/serving/max_num_seqs")]


def _free_at_start(facts: Facts) -> list[Finding]:
    """The engine refuses to start when less is free than its fraction of the card."""
    chosen, total = facts.settings, facts.total
    if total is None or chosen.pool_bytes is not None or chosen.legacy or chosen.core.context_in_budget:
        return []
    context, communicator = facts.ranks[0].outside.context, facts.ranks[0].outside.communicator
    least = 1 - (context.high + communicator.high) / total.expected
    if chosen.fraction <= least:
        return []
    most = 1 - (context.low + communicator.low) / total.expected
    status: Verdict = "excluded" if chosen.fraction > most else "needs_confirmation"
    reason = (
        f"gpu_memory_utilization {chosen.fraction:g}: free memory at start is {least:.3f} to {most:.3f} of the card, "
        "vLLM refuses to start with less free than its fraction"
    )
    return [Finding(status=status, reason=reason, field="/serving/gpu_memory_utilization")]
