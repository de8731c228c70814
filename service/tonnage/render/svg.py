"""
Memory bars: components stacked per GPU, the band as a whisker, the capacity as a line.

Deterministic and small; colours are the page's and follow the reader's light or dark scheme; title and description say in
words what the picture shows. What an engine claims beyond the need is hatched, so that the whisker stands where the need ends.
"""

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from tonnage.render.words import clean, layout, package, price
from tonnage.spec.fit import Candidate, FitAnswer
from tonnage.spec.report import Amount, Estimate, GpuReport, Verdict
from tonnage.units import format_size

WIDTH, EDGE, LEFT, RIGHT, TOP, ROW, BAR = 860, 20, 200, 132, 74, 48, 26
MAX_BARS = 24
COLOURS = {
    "weights": "#3f6fb5", "kv_cache": "#1d9386", "activations": "#d9653b", "optimizer_states": "#7f5bb5",
    "gradients": "#5b8a3c", "logits": "#c65a93", "sampler": "#a06a45", "cuda_graphs": "#8796a8", "device_context": "#b89a5c",
    "framework": "#5e6b7a", "workspace": "#cf9b2f", "communication": "#4aa3c7", "buffers": "#7aa8de",
    "recurrent_state": "#2f7f8f",
    "master_weights": "#b18ad8", "fragmentation": "#a9a38f", "vision_encoder": "#e08aa0", "user_reserve": "#b3bac2",
    "lora_adapters": "#b18ad8", "adapters": "#b18ad8", "draft_model": "#2f7f8f", "reference_model": "#2f7f8f",
}  # fmt: skip
OTHER = "#98a2ad"
SPARE = "claimed beyond the need"
SIGNS: dict[Verdict | None, tuple[str, str]] = {
    "met": ("fits", "ok"), "needs_confirmation": ("to confirm", "ask"), "excluded": ("does not fit", "no"), None: ("", "s"),
}  # fmt: skip
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#17202a}.t{font-size:16px;font-weight:600}.n{font-weight:600}.s{fill:#54606d}"
    ".ok{fill:#12692f;font-weight:600}.ask{fill:#7a4d00;font-weight:600}.no{fill:#a3191f;font-weight:600}"
    ".l{stroke:#17202a;stroke-width:1.5}.c{stroke:#a3191f;stroke-width:2}.b{fill:#fff;stroke:#dce1e7}.r{fill:#e9edf2}"
    "@media(prefers-color-scheme:dark){text{fill:#e7ecf1}.s{fill:#a2adb9}.ok{fill:#7fd898}.ask{fill:#f0bd63}.no{fill:#ff918e}"
    ".l{stroke:#e7ecf1}.c{stroke:#ff918e}.b{fill:#181e24;stroke:#2c353e}.r{fill:#262e36}}"
)
HATCH = (
    '<pattern id="spare" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<path d="M1 0V6" stroke="{COLOURS["kv_cache"]}" stroke-width="2"/></pattern>'
)


class Bar(NamedTuple):
    """One GPU or candidate."""

    name: str
    note: str
    parts: tuple[tuple[str, int], ...]
    """Component and expected bytes, in drawing order."""
    need: Amount
    capacity: int | None
    verdict: Verdict | None = None


def estimate(answer: Estimate) -> str:
    """The answer of /estimate as bars, one per distinct load."""
    capacity = None if answer.capacity is None else answer.capacity.usable_bytes
    bars = [_gpu_bar(answer, gpu, capacity) for gpu in answer.gpus[:MAX_BARS]]
    summary = f"needs {_range(answer.required)}"
    if capacity is not None and answer.headroom is not None:
        free = answer.headroom.expected
        rest = f"{format_size(free)} stay free" if free >= 0 else f"{format_size(-free)} are missing"
        summary += f" of {format_size(capacity)} usable: {rest}"
    title = f"GPU memory of {clean(answer.model.id or answer.model.family)}"
    return _picture(
        title, bars, f"{summary}; expected {format_size(answer.required.expected)}", answer.verdict, sized=True
    )


def fit(answer: FitAnswer) -> str:
    """The answer of /fit as bars, one per candidate."""
    bars = [_candidate_bar(c) for c in answer.candidates if c.memory is not None]
    title = f"Packages for {clean(answer.model.id or answer.model.family)}"
    chosen = answer.selected
    ready = f"{chosen.sku}, {price(chosen.price)}" if chosen else "none with every requirement met"
    return _picture(title, bars[:MAX_BARS], f"{len(answer.candidates)} candidates; selected: {clean(ready)}")


def _gpu_bar(answer: Estimate, gpu: GpuReport, capacity: int | None) -> Bar:
    ranks = f"GPU {gpu.ranks[0]}" if len(gpu.ranks) == 1 else f"GPUs {gpu.ranks[0]}..{gpu.ranks[-1]}"
    peak = next((p for p in gpu.phases if p.phase == gpu.peak.phase), None)
    sums: dict[str, int] = {}
    for item in gpu.items if peak is None else peak.items:
        sums[item.component] = sums.get(item.component, 0) + item.bytes.expected
    if answer.peak.gpu_index not in gpu.ranks:
        return Bar(
            ranks,
            f"{gpu.peak.phase}, {format_size(gpu.peak.device.expected)}",
            _ordered(sums),
            gpu.peak.device,
            capacity,
        )
    if answer.reserve_bytes:
        sums["user_reserve"] = answer.reserve_bytes
    parts = _ordered(sums, answer.required.expected if answer.claimed_bytes is not None else None)
    return Bar(ranks, f"{gpu.peak.phase}, {format_size(gpu.peak.device.expected)}", parts, answer.required, capacity)


def _candidate_bar(c: Candidate) -> Bar:
    assert c.memory is not None  # noqa: S101  (the caller left the others out)
    parts = _ordered(c.memory.components, c.memory.required.expected)
    note = f"{price(c.price)}, {layout(c.placement)}"
    return Bar(f"{c.rank}. {package(c)}", note, parts, c.memory.required, c.memory.usable_bytes, c.status)


def _ordered(components: dict[str, int], need: int | None = None) -> tuple[tuple[str, int], ...]:
    """Largest first; what the pool holds beyond the need stands apart at the end."""
    sizes = {name: size for name, size in components.items() if size > 0}
    beyond = 0 if need is None else min(max(0, sum(sizes.values()) - need), sizes.get("kv_cache", 0))
    if beyond:
        sizes["kv_cache"] -= beyond
    parts = sorted(((n, b) for n, b in sizes.items() if b > 0), key=lambda part: (-part[1], part[0]))
    return (*parts, (SPARE, beyond)) if beyond else tuple(parts)


def _range(amount: Amount) -> str:
    return (
        format_size(amount.low)
        if amount.low == amount.high
        else f"{format_size(amount.low)} to {format_size(amount.high)}"
    )


def _picture(
    title: str, bars: Sequence[Bar], summary: str, verdict: Verdict | None = None, *, sized: bool = False
) -> str:
    names = list(dict.fromkeys(name for bar in bars for name, _ in bar.parts))[:20]
    sizes = dict(bars[0].parts) if sized and len(bars) == 1 else {}
    height = TOP + ROW * len(bars) + 19 * -(-len(names) // 4) + 22
    largest = max([1, *(max(bar.need.high, bar.capacity or 0, sum(b for _, b in bar.parts)) for bar in bars)])
    scale = (WIDTH - LEFT - RIGHT) / largest
    words = "; ".join(_words(bar) for bar in bars)
    sign, kind = SIGNS[verdict]
    described = ": ".join(part for part in (title, sign) if part)
    body = [
        f'<rect class="b" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        _text(EDGE, 32, title, "t"),
        _text(EDGE, 54, sign, kind) if sign else "",
        _text(EDGE + (9 * len(sign) + 6 if sign else 0), 54, summary, "s"),
    ]
    for index, bar in enumerate(bars):
        body += _bar(bar, TOP + ROW * index, scale)
    body += _legend(names, sizes, TOP + ROW * len(bars) + 10)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-labelledby="title desc"><title id="title">{_safe(described)}</title>'
        f'<desc id="desc">{_safe(f"{summary}. {words}")}</desc>'
        f"<style>{STYLE}</style>{HATCH}{''.join(body)}</svg>\n"
    )


def _words(bar: Bar) -> str:
    sign = SIGNS[bar.verdict][0]
    return f"{bar.name}: {bar.note}, needs {_range(bar.need)}{f', {sign}' if sign else ''}"


def _bar(bar: Bar, top: int, scale: float) -> list[str]:
    sign, kind = SIGNS[bar.verdict]
    out = [_text(EDGE, top + 12, bar.name, "n", LEFT - EDGE - 8), _text(EDGE, top + 28, bar.note, "s", LEFT - EDGE - 8)]
    edge = bar.capacity or sum(size for _, size in bar.parts)
    out.append(f'<path class="r" d="M{LEFT} {top}h{edge * scale:.1f}v{BAR}H{LEFT}z"/>')
    at = float(LEFT)
    for name, size in bar.parts:
        width = size * scale
        colour = "url(#spare)" if name == SPARE else COLOURS.get(name, OTHER)
        label = _safe(f"{name} {format_size(size)}")
        box = f'x="{at:.1f}" y="{top}" width="{width:.1f}" height="{BAR}" fill="{colour}"'
        out.append(f"<rect {box}><title>{label}</title></rect>")
        at += width
    low, high, middle = LEFT + bar.need.low * scale, LEFT + bar.need.high * scale, top + BAR // 2
    out.append(
        f'<path class="l" d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 6}v12M{high:.1f} {middle - 6}v12"/>'
    )
    if bar.capacity is not None:
        line = LEFT + bar.capacity * scale
        words = _safe(f"usable {format_size(bar.capacity)}")
        out.append(f'<path class="c" d="M{line:.1f} {top - 3}v{BAR + 6}"><title>{words}</title></path>')
    right = WIDTH - RIGHT + 12
    if sign:
        out.append(_text(right, top + 12, sign, kind))
    if bar.capacity is not None:
        out.append(_text(right, top + (28 if sign else 17), f"{format_size(bar.capacity)} usable", "s"))
    return out


def _legend(names: Sequence[str], sizes: dict[str, int], top: int) -> list[str]:
    out = []
    for index, name in enumerate(names):
        x, y = EDGE + 206 * (index % 4), top + 19 * (index // 4)
        colour = "url(#spare)" if name == SPARE else COLOURS.get(name, OTHER)
        out.append(f'<rect x="{x}" y="{y}" width="11" height="11" fill="{colour}"/>')
        size = f" {format_size(sizes[name])}" if name in sizes else ""
        out.append(_text(x + 16, y + 10, name.replace("_", " ") + size, "s"))
    return out


_WIDE = 7.6
"""A letter of the bold names, on average: longer names are drawn closer. [pixels]"""


def _text(x: float, y: float, words: str, kind: str = "", room: int | None = None) -> str:
    attributes = f' class="{kind}"' if kind else ""
    if room is not None and _WIDE * len(words) > room:
        attributes += f' textLength="{room}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x}" y="{y}"{attributes}>{_safe(words)}</text>'


def _safe(words: str) -> str:
    return escape(clean(words), {'"': "&quot;"})
