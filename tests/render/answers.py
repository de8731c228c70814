"""Answers made by hand, so that a rendering is tested without any law."""

from decimal import Decimal

from tonnage.spec import fit, report
from tonnage.spec.card import Placement
from tonnage.units import GiB


def item(component, size, spread=0):
    return report.MemoryItem(
        component=component,
        bytes=report.Amount(size - spread, size, size + spread),
        basis="derived",
        law="laws.test",
        source="test",
    )


def estimate(name="org/model"):
    items = (item("weights", 14 * GiB), item("kv_cache", 4 * GiB), item("activations", GiB, GiB // 4))
    amount = report.Amount(19 * GiB - GiB // 4, 19 * GiB, 19 * GiB + GiB // 4)
    counters = report.Counters(amount, amount, amount)
    phase = report.Phase(phase="prefill", total=counters, items=items)
    peak = report.Peak(phase="prefill", gpu_index=0, allocated=amount, reserved=amount, device=amount)
    parameters = report.ParameterReport(total=7_000_000_000, active=None, trainable=None, by_component={})
    usable = 23 * GiB
    return report.Estimate(
        model=report.ModelReport(id=name, revision=None, family="llama", parameters=parameters, source="test"),
        peak=peak,
        required=amount,
        claimed_bytes=None,
        phases=(phase,),
        gpus=(report.GpuReport(ranks=(0, 1), stage=0, peak=peak, items=items, phases=(phase,)),),
        kv_cache=report.KvCache(bytes_per_token=131_072, state_bytes_per_sequence=0),
        capacity=report.Capacity(nominal_bytes=24 * 10**9, usable_bytes=usable, source="test"),
        headroom=report.Amount(usable - amount.high, usable - amount.expected, usable - amount.low),
        verdict="met",
        reasons=(report.Finding(status="met", reason="high is below usable"),),
        host=report.Host(memory=report.exactly(GiB), disk_bytes=14 * GiB),
        reserve_bytes=0,
        rules_of_thumb={},
        assumptions=(report.Assumption("serving.block_size", 16, "default"),),
        unknowns=("driver version",),
        invalidated_by=(),
        measured=(),
        diagnosis=None,
        versions=report.Versions(service="1", catalog="c", method="m"),
        digest="sha256:00",
    )


def candidate(rank=1, sku="shop:rtx-4090", status="met"):
    amount = report.exactly(19 * GiB)
    return fit.Candidate(
        rank=rank,
        sku=sku,
        provider="shop",
        gpu="rtx-4090",
        gpu_count=1,
        hosts=1,
        gpus_per_host=1,
        placement=Placement(gpu="rtx-4090"),
        weights_format="bf16",
        kv_cache_dtype=None,
        status=status,
        requirements=(fit.Requirement(name="memory", status=status, reason="because"),),
        memory=fit.CandidateMemory(
            required=amount,
            usable_bytes=23 * GiB,
            headroom=report.exactly(4 * GiB),
            per_gpu=(amount,),
            phase="prefill",
            components={"weights": 14 * GiB, "kv_cache": 5 * GiB},
        ),
        kv_cache=None,
        price=fit.CandidatePrice(
            amount=Decimal("47.14"),
            currency="USD",
            per="72 h",
            for_duration=Decimal("47.14"),
            duration_hours=72.0,
            billed_hours=72.0,
            kind="package",
            as_of=None,
            source="test",
        ),
        missing=() if status == "met" else ("memory",),
    )


def answer(*candidates):
    found = candidates or (candidate(),)
    whole = estimate()
    return fit.FitAnswer(
        model=whole.model,
        candidates=found,
        selected=next((c for c in found if c.status == "met"), None),
        confirmations=(),
        excluded=(
            fit.ExcludedGroup(requirement="memory", count=3, skus=("a",), example=candidate(), reason="too small"),
        ),
        alternatives=(
            fit.Alternative(
                field="/weights/format",
                from_="bf16",
                to="fp8",
                saves_bytes=6 * GiB,
                required=report.exactly(13 * GiB),
                verdict="met",
                risk="quality",
            ),
        ),
        current=None,
        diagnosis=None,
        measured=(),
        considered=fit.Considered(
            skus=4, apart=0, candidates=4, estimates=1, met=1, needs_confirmation=0, excluded=3, dominated=0
        ),
        assumptions=(),
        unknowns=(),
        invalidated_by=(),
        versions=whole.versions,
        digest="sha256:00",
    )
