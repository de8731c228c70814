"""What a GPU has to be for a layout and a format: memory, placement, engine, dtypes, bandwidth; what the card says of its use."""

from collections.abc import Callable

from tonnage.errors import Unsupported
from tonnage.estimate.backends import capability
from tonnage.estimate.support import attention_findings, format_findings, layout_findings, too_old
from tonnage.fit.judged import CONFIRM, EXCLUDED, MET, VERDICTS, Judged
from tonnage.fit.need import Need
from tonnage.fit.technical import Technical
from tonnage.spec.card import Placement
from tonnage.spec.facts import Gpu, WeightFormat
from tonnage.spec.report import Amount
from tonnage.units import format_size

_DOUBTFUL = frozenset({"estimated", "recalled"})
_COMFORT = 0.95
"""Part of an unconfirmed capacity that is still taken as established. [fraction]"""


def memory(technical: Technical, need: Need) -> Judged:
    """Required memory of the worst GPU against what that GPU holds, with the caller's headroom."""
    required, usable, bound = technical.required, technical.gpu.memory_usable_bytes, technical.bound
    if bound is None and required is None:
        return Judged("memory", CONFIRM, lambda: "not judged: no layout runs on these GPUs")
    if bound is None and required is not None and technical.verdict == MET and _unconfirmed(technical, required):
        words = f"{_band(required)} of {format_size(usable)}, a capacity nobody has confirmed"
        return Judged("memory", CONFIRM, lambda: words)

    def say() -> str:
        if bound is not None:
            return f"{format_size(bound)} of weights alone, of {format_size(usable)} usable on each GPU"
        assert required is not None  # noqa: S101  (else it is not judged)
        return _memory_words(technical, required, usable, need.spare)

    return Judged("memory", memory_status(technical), say, technical.gpu.memory_source)


def memory_status(technical: Technical) -> int:
    """Status of `memory`, without its words."""
    required = technical.required
    if technical.bound is not None:
        return EXCLUDED
    if required is None or (technical.verdict == MET and _unconfirmed(technical, required)):
        return CONFIRM
    return technical.verdict


def _unconfirmed(technical: Technical, required: Amount) -> bool:
    """Whether what is required comes close to a capacity that nobody has confirmed."""
    gpu = technical.gpu
    return gpu.usable_confidence in _DOUBTFUL and required.high > gpu.memory_usable_bytes * _COMFORT


def _memory_words(technical: Technical, required: Amount, usable: int, spare: float) -> str:
    words = f"{_band(required)} required of {format_size(usable)} usable in phase {technical.phase}"
    if spare:
        words += f", {spare:.0%} to stay free"
    if technical.measured:
        words += "; the peak is measured, not estimated"
    return "; ".join([words, *(f.reason for f in technical.findings if f.status != "met")])


def _band(amount: Amount) -> str:
    return f"{format_size(amount.low)} to {format_size(amount.high)}"


def placement(technical: Technical, need: Need) -> Judged:
    """Whether the engine runs the layout and the model divides; a stated layout may be one it is not known to run."""
    if technical.refusal is not None:
        reason = technical.refusal
        return Judged("placement", EXCLUDED, lambda: reason)
    if technical.layout_status == CONFIRM:
        return Judged("placement", CONFIRM, lambda: "only a parameter count is known: heads and layers may not divide")
    stated = None if need.fixed_layout is None else _stated_layout(need.fixed_layout, need)
    if stated is not None:
        return stated
    used, there = technical.used, technical.gpus
    idle = f", {there - used} of {there} GPUs idle" if used < there else ""
    return Judged("placement", MET, lambda: f"one GPU{idle}" if used == 1 else f"heads, layers and groups divide{idle}")


def placement_status(technical: Technical, need: Need) -> int:
    """Status of `placement`, without its words."""
    if technical.refusal is not None or need.fixed_layout is not None:
        return placement(technical, need).status
    return CONFIRM if technical.layout_status == CONFIRM else MET


def _stated_layout(layout: Placement, need: Need) -> Judged | None:
    """What /estimate says of a layout that the engine or framework is not known to run."""
    try:
        doubts = layout_findings(layout, need.engine, need.framework)
    except Unsupported as error:
        detail = error.detail
        return Judged("placement", EXCLUDED, lambda: detail)
    return Judged("placement", CONFIRM, lambda: "; ".join(f.reason for f in doubts)) if doubts else None


def engine(gpu: Gpu, need: Need) -> Judged:
    """Whether the engine or framework runs on this accelerator."""
    where, who = need.hardware, need.engine or need.framework or "no engine is stated; PyTorch"
    old = too_old(who, where, gpu)
    if old is not None and old[0] == "excluded":
        return Judged("engine", EXCLUDED, lambda: old[1], where.source)
    kernel = attention_findings(need.serving, need.training, gpu)
    if kernel:
        return Judged("engine", EXCLUDED, lambda: kernel[0].reason, "Dao-AILab/flash-attention README")
    if old is not None:
        return Judged("engine", CONFIRM, lambda: old[1], where.source)
    if gpu.vendor in where.established:
        return Judged("engine", MET, lambda: f"{who} runs on {gpu.vendor}", where.source)
    if gpu.vendor in where.possible:
        return Judged("engine", CONFIRM, lambda: f"{who} on {gpu.vendor} depends on a plugin or branch", where.source)
    return Judged("engine", EXCLUDED, lambda: f"{who} does not run on {gpu.vendor}", where.source)


def native_dtypes(gpu: Gpu, weight_format: WeightFormat, need: Need) -> Judged:
    """Compute capability for the format, dtypes the caller wants in hardware."""
    have = capability(gpu.compute_capability)
    wanted = capability(need.wanted.min_compute_capability)
    if wanted is not None and have is not None and have < wanted:
        return _dtypes(
            EXCLUDED, lambda: f"compute capability {gpu.compute_capability}, {need.wanted.min_compute_capability} asked"
        )
    missing = [d for d in need.wanted.native_dtypes or () if d not in gpu.native_dtypes]
    if missing:
        return _dtypes(EXCLUDED, lambda: f"{gpu.name} has no native {', '.join(missing)}")
    found = format_findings(need.engine or need.framework, need.engine, gpu, weight_format)
    if wanted is not None and have is None and all(f.status != "excluded" for f in found):
        return _dtypes(CONFIRM, lambda: f"{gpu.name} has no NVIDIA compute capability to compare")
    if found:
        worst = max(VERDICTS.index(f.status) for f in found)
        return _dtypes(worst, lambda: "; ".join(f.reason for f in found))
    native = weight_format.native_dtype
    stored = "" if native is None or native in gpu.native_dtypes else f", {native} only as storage"
    return _dtypes(MET, lambda: f"{weight_format.id} runs on {gpu.name}{stored}")


def _dtypes(status: int, say: Callable[[], str]) -> Judged:
    return Judged("native_dtypes", status, say, "catalogue: gpus, formats")


def bandwidth(gpu: Gpu, need: Need) -> Judged | None:
    """Memory bandwidth the caller asks for."""
    least = need.bandwidth
    if least is None:
        return None
    have = gpu.bandwidth_bytes_per_second
    if have is None:
        return Judged("bandwidth", CONFIRM, lambda: f"bandwidth of {gpu.name} is not known")
    status = MET if have >= least else EXCLUDED
    return Judged("bandwidth", status, lambda: f"{format_size(have)}/s, {format_size(least)}/s asked", gpu.source)


def workload(need: Need) -> Judged | None:
    """Whether the card says what is to run."""
    if need.serving is not None or need.training is not None:
        return None
    words = "neither serving nor training stated: context, concurrency and compatibility are open, a reserve stands for them"
    return Judged("workload", CONFIRM, lambda: words, "request")


def quality(weight_format: WeightFormat, need: Need) -> Judged | None:
    """The caller's metric, by the caller's evidence only."""
    bar = need.wanted.quality
    if bar is None:
        return None
    value = bar.evidence.get(weight_format.id)
    if value is None:
        return Judged("quality", CONFIRM, lambda: f"no {bar.metric} was given for {weight_format.id}", "request")
    status = MET if value >= bar.minimum else EXCLUDED
    return Judged(
        "quality", status, lambda: f"{bar.metric} {value:g}, {bar.minimum:g} asked", "request: /requirements/quality"
    )
