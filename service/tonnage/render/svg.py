"""
Memory bars: components stacked per GPU, the band as a whisker, the capacity as a line.

Deterministic and small; colours follow the reader's light or dark scheme; title and description say in words
what the picture shows.
"""

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from tonnage.render.words import MARKS, band, clean, layout, package, price
from tonnage.spec.fit import FitAnswer
from tonnage.spec.report import Amount, Estimate, GpuReport
from tonnage.units import format_size

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 860, 230, 40, 56, 46, 20
MAX_BARS = 24
COLOURS = {
    "weights": "#4269d0",
    "kv_cache": "#efb118",
    "activations": "#ff725c",
    "optimizer_states": "#6cc5b0",
    "gradients": "#3ca951",
    "logits": "#ff8ab7",
    "master_weights": "#a463f2",
    "recurrent_state": "#97bbf5",
    "device_context": "#9c6b4e",
    "cuda_graphs": "#9498a0",
    "user_reserve": "#c9c9c9",
}
OTHER = "#7b8794"
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1b1f24}.t{font-size:15px;font-weight:600}.s{fill:#57606a}"
    ".l{stroke:#1b1f24;stroke-width:1.5}.c{stroke:#d1242f;stroke-width:2}.b{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.l{stroke:#e6edf3}.c{stroke:#ff7b72}.b{fill:#0d1117}}"
)


class Bar(NamedTuple):
    """One GPU or candidate."""

    name: str
    note: str
    parts: tuple[tuple[str, int], ...]
    """Component and expected bytes, in drawing order."""
    total: Amount
    capacity: int | None


def estimate(answer: Estimate) -> str:
    """The answer of /estimate as bars, one per distinct load."""
    capacity = None if answer.capacity is None else answer.capacity.usable_bytes
    bars = [_gpu_bar(g, capacity) for g in answer.gpus[:MAX_BARS]]
    title = f"GPU memory of {clean(answer.model.id or answer.model.family)}: {MARKS[answer.verdict]}"
    return _picture(title, bars, f"required {band(answer.required)}")


def fit(answer: FitAnswer) -> str:
    """The answer of /fit as bars, one per candidate."""
    bars = [
        Bar(
            f"{c.rank}. {package(c)}",
            f"{price(c.price)}, {layout(c.placement)}, {MARKS[c.status]}",
            _ordered(c.memory.components),
            c.memory.required,
            c.memory.usable_bytes,
        )
        for c in answer.candidates
        if c.memory is not None
    ]
    title = f"Packages for {clean(answer.model.id or answer.model.family)}"
    return _picture(title, bars[:MAX_BARS], f"{len(answer.candidates)} candidates")


def _gpu_bar(gpu: GpuReport, capacity: int | None) -> Bar:
    ranks = f"GPU {gpu.ranks[0]}" if len(gpu.ranks) == 1 else f"GPUs {gpu.ranks[0]}..{gpu.ranks[-1]}"
    peak = next((p for p in gpu.phases if p.phase == gpu.peak.phase), None)
    sums: dict[str, int] = {}
    for item in gpu.items if peak is None else peak.items:
        sums[item.component] = sums.get(item.component, 0) + item.bytes.expected
    return Bar(ranks, f"{gpu.peak.phase}, {band(gpu.peak.device)}", _ordered(sums), gpu.peak.device, capacity)


def _ordered(components: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(((n, b) for n, b in components.items() if b > 0), key=lambda part: (-part[1], part[0])))


def _picture(title: str, bars: Sequence[Bar], summary: str) -> str:
    names = list(dict.fromkeys(name for bar in bars for name, _ in bar.parts))[:18]
    legend_rows = -(-len(names) // 5)
    height = TOP + ROW * len(bars) + 18 * legend_rows + 24
    largest = max([1, *(max(bar.total.high, bar.capacity or 0) for bar in bars)])
    scale = (WIDTH - LEFT - RIGHT) / largest
    words = "; ".join(f"{bar.name}: {bar.note}" for bar in bars)
    body = [
        f'<rect class="b" width="{WIDTH}" height="{height}"/>',
        _text(16, 26, title, "t"),
        _text(16, 44, summary, "s"),
    ]
    for index, bar in enumerate(bars):
        body += _bar(bar, TOP + 8 + ROW * index, scale)
    body += _legend(names, TOP + ROW * len(bars) + 18)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-labelledby="title desc"><title id="title">{_safe(title)}</title>'
        f'<desc id="desc">{_safe(f"{summary}. {words}")}</desc>'
        f"<style>{STYLE}</style>{''.join(body)}</svg>\n"
    )


def _bar(bar: Bar, top: int, scale: float) -> list[str]:
    out = [_text(16, top + 14, bar.name), _text(LEFT, top + BAR + 14, bar.note, "s")]
    at = float(LEFT)
    for name, size in bar.parts:
        width = size * scale
        colour = COLOURS.get(name, OTHER)
        label = _safe(f"{name} {format_size(size)}")
        box = f'x="{at:.1f}" y="{top}" width="{width:.1f}" height="{BAR}" fill="{colour}"'
        out.append(f"<rect {box}><title>{label}</title></rect>")
        at += width
    low, high, middle = LEFT + bar.total.low * scale, LEFT + bar.total.high * scale, top + BAR / 2
    out.append(f'<path class="l" d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {top + 5}v10M{high:.1f} {top + 5}v10"/>')
    if bar.capacity is not None:
        line = LEFT + bar.capacity * scale
        words = _safe(f"usable {format_size(bar.capacity)}")
        out.append(f'<path class="c" d="M{line:.1f} {top - 4}v{BAR + 8}"><title>{words}</title></path>')
    return out


def _legend(names: Sequence[str], top: int) -> list[str]:
    out = []
    for index, name in enumerate(names):
        x, y = 16 + 168 * (index % 5), top + 18 * (index // 5)
        out.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{COLOURS.get(name, OTHER)}"/>')
        out.append(_text(x + 15, y + 9, name, "s"))
    return out


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{attribute}>{_safe(words)}</text>'


def _safe(words: str) -> str:
    return escape(clean(words), {'"': "&quot;"})
