"""A made-up estimate that depends on the card in a way one can do in the head."""

from tonnage.spec import report
from tonnage.spec.model import Model
from tonnage.units import GiB

MODEL = Model(parameters_total=7_000_000_000, dtype="bf16")
USABLE = 20 * GiB
FORMAT_BYTES = {None: 14, "bf16": 14, "fp8-per-channel-dynamic": 8, "awq-w4-g128": 5, "bnb-nf4": 5}


def item(component, size, *, basis="derived", spread=0, counter="allocated"):
    band = report.Amount(size - spread, size, size + spread)
    return report.MemoryItem(
        component=component, bytes=band, basis=basis, law="laws.toy", source="toy", counter=counter
    )


def estimate(card, *, phase="backward", claimed=None):
    """Weights by format, plus one GiB per micro-batch (quartered by checkpointing) or per 8,192 tokens of length."""
    sizes = [("weights", FORMAT_BYTES[card.weights.format] * GiB)]
    if card.training is not None:
        batch = card.training.micro_batch_size or 8
        whole = batch * GiB
        sizes.append(("activations", whole // 4 if card.training.gradient_checkpointing == "full" else whole))
        sizes.append(("optimizer_states", GiB if card.training.optimizer == "adamw_8bit" else 4 * GiB))
    if card.serving is not None:
        sizes.append(("kv_cache", (card.serving.max_model_len or 65_536) * GiB // 8_192))
    return made([item(name, size) for name, size in sizes], phase=phase, claimed=claimed)


def made(items, *, phase="backward", claimed=None, usable=USABLE, measured=(), kv_cache=None):
    total = sum(i.bytes.expected for i in items)
    below, above = (sum(getattr(i.bytes, side) for i in items) for side in ("low", "high"))
    seen = {
        c: report.exactly(sum(i.bytes.expected for i in items if i.counter in inner)) for c, inner in COUNTERS.items()
    }
    device = report.Amount(below, total, above)
    counters = report.Counters(seen["allocated"], seen["reserved"], device)
    shown = report.Phase(phase=phase, total=counters, items=tuple(items))
    peak = report.Peak(phase=phase, gpu_index=0, allocated=seen["allocated"], reserved=seen["reserved"], device=device)
    verdict = "met" if above <= usable else "excluded" if below > usable else "needs_confirmation"
    parameters = report.ParameterReport(total=7, active=None, trainable=None, by_component={})
    return report.Estimate(
        model=report.ModelReport(id=None, revision=None, family="toy", parameters=parameters, source="toy"),
        peak=peak,
        required=device,
        claimed_bytes=claimed,
        phases=(shown,),
        gpus=(report.GpuReport(ranks=(0,), stage=0, peak=peak, items=tuple(items), phases=(shown,)),),
        kv_cache=kv_cache,
        capacity=report.Capacity(nominal_bytes=usable, usable_bytes=usable, source="toy"),
        headroom=report.Amount(usable - above, usable - total, usable - below),
        verdict=verdict,
        reasons=(report.Finding(status=verdict, reason="toy", field="/placement/gpu"),),
        host=report.Host(memory=report.exactly(0), disk_bytes=0),
        reserve_bytes=0,
        rules_of_thumb={},
        assumptions=(report.Assumption("training.micro_batch_size", 8, "default"),),
        unknowns=(),
        invalidated_by=(),
        measured=tuple(measured),
        diagnosis=None,
        versions=report.Versions(service="1", catalog="c", method="m"),
        digest="sha256:00",
    )


COUNTERS = {
    "allocated": ("allocated",),
    "reserved": ("allocated", "reserved"),
    "device": ("allocated", "reserved", "device"),
}
