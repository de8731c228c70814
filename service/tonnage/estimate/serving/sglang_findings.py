"""SGLang's own refusals, and what of a card no law covers."""

from tonnage.estimate.serving import sglang_cache
from tonnage.estimate.serving.demand import Demand
from tonnage.estimate.serving.sglang_cache import Pools
from tonnage.estimate.serving.sglang_settings import Settings
from tonnage.estimate.serving.vllm_settings import traits
from tonnage.spec.card import Sglang
from tonnage.spec.report import Finding, Verdict
from tonnage.spec.workload import Workload
from tonnage.units import format_size


def findings(workload: Workload, chosen: Settings, pools: Pools, wanted: Demand) -> tuple[Finding, ...]:
    """
    Reasons beside plain capacity.

    Args:
        workload: Resolved card.
        chosen: SGLang's settings.
        pools: Cache of the tightest rank.
        wanted: Traffic.

    Returns:
        Findings; the worst one wins.
    """
    found = []
    if not workload.profile_certain:
        reason = f"SGLang version not checked: answered with the profile of {chosen.release.since}"
        found.append(Finding(status="needs_confirmation", reason=reason, field="/serving/engine_version"))
    if pools.memory.expected <= 0:
        status: Verdict = "excluded" if pools.memory.high <= 0 else "needs_confirmation"
        reason = f"not enough memory: mem_fraction_static {chosen.fraction:g} is used up by the weights"
        found.append(Finding(status=status, reason=reason, field="/serving/gpu_memory_utilization"))
        return tuple(found)
    found += _against_tokens(chosen, pools, wanted)
    if wanted.requests > pools.requests:
        reason = f"{wanted.requests} requests at once, {pools.requests} may run: the rest waits"
        found.append(Finding(status="needs_confirmation", reason=reason, field="/serving/concurrency"))
    return tuple(found)


def _against_tokens(chosen: Settings, pools: Pools, wanted: Demand) -> list[Finding]:
    """A request longer than the pool is refused when it comes, not at start."""
    needed = sglang_cache.demand_bytes(pools, wanted)
    available = pools.tokens.expected * pools.token_bytes + pools.slots * pools.state_bytes
    lowest = pools.tokens.low * pools.token_bytes + pools.slots * pools.state_bytes
    if needed <= lowest:
        return []
    asked = wanted.tokens < chosen.context
    status: Verdict = "excluded" if asked and needed > available * 1.1 else "needs_confirmation"
    reason = (
        f"{wanted.requests} x {wanted.tokens} tokens need {format_size(needed)} of cache, the fraction leaves "
        f"{format_size(available)}: it starts, but cannot serve that at once"
    )
    return [Finding(status=status, reason=reason, field="/serving/gpu_memory_utilization")]


def unknowns(workload: Workload, chosen: Settings) -> tuple[str, ...]:
    """What of this card no law covers."""
    found = ["prefill activations: taken from layer widths, SGLang does not profile them"]
    if workload.draft is not None:
        found.append("graphs of the draft model")
    if chosen.images:
        found.append("vision encoder activations")
    unstated = isinstance(workload.serving, Sglang) and workload.serving.enable_dp_attention is None
    if unstated and traits(workload.model).mla and workload.placement.tensor_parallel_size > 1:
        found.append(
            "attention over data-parallel groups (--enable-dp-attention): its weights are whole on every rank then"
        )
    if chosen.rocm:
        found.append("attention workspaces on AMD")
    return tuple(found)
