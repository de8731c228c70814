"""How one item follows from the laws that were applied while its estimate was made."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tonnage.explain.counts import Count
from tonnage.explain.docstrings import parsed
from tonnage.explain.formula import lines_of, step
from tonnage.explain.notation import Written, name, number
from tonnage.explain.watch import STAGES, Applied, law_functions
from tonnage.spec.report import Derivation, Estimate, MemoryItem, PutIn, Step

Found = tuple[tuple[Step, ...], Applied | None, str]
"""Steps that end in the item's size, the application whose inputs they take, a note."""

Way = Callable[[MemoryItem, Sequence[Applied], "Scene"], Found | None]


class Scene(NamedTuple):
    """What a derivation may draw on."""

    applied: tuple[Applied, ...]
    counts: tuple[Count, ...]
    """What the card is made of: layers, requests, parameters."""
    answer: Estimate


def derivation(item: MemoryItem, scene: Scene) -> Derivation:
    """
    How one item follows from what its law was applied to.

    Args:
        item: The item.
        scene: Applications of laws while the answer was made, counts, the answer.

    Returns:
        Steps that end in the item's size where they can be shown, else those of the largest part of it.
    """
    own = [call for call in scene.applied if _is_of(call, item.law) and _positive(call.result)]
    found = next(filter(None, (way(item, own, scene) for way in _WAYS)), None)
    steps, call, note = found or _largest(item, own)
    law = call.law if call is not None else item.law
    return Derivation(
        component=item.component,
        law=item.law,
        expected_bytes=item.bytes.expected,
        detail=item.detail,
        summary=parsed(law_functions()[law]).summary if law in law_functions() and (call or not steps) else "",
        steps=steps,
        inputs=() if call is None else _inputs(call),
        exact=found is not None,
        note=note,
    )


def _is_of(call: Applied, law: str) -> bool:
    return call.law == law or call.law.startswith(f"{law}.")


def _in_bytes(law: str) -> bool:
    return not law.startswith("laws.rules_of_thumb.") and parsed(law_functions()[law]).unit == "bytes"


def _positive(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and value > 0


# ---- ways in which an item follows, the plainest first ----


def _by_one_law(item: MemoryItem, own: Sequence[Applied], _: Scene) -> Found | None:
    call = next((call for call in own if call.result == item.bytes.expected), None)
    return None if call is None else _whole(call, item)


def _whole(call: Applied, item: MemoryItem) -> Found | None:
    steps = lines_of(law_functions()[call.law], call.inputs, item.component)
    return (steps, call, "") if steps else None


def _by_counting(item: MemoryItem, own: Sequence[Applied], scene: Scene) -> Found | None:
    """So many times one application: layers, requests."""
    for call in own:
        for count in scene.counts:
            if count.plain and call.result * count.value == item.bytes.expected:
                inner = lines_of(law_functions()[call.law], call.inputs)
                each = call.law.rpartition(".")[2]
                return (*inner, _product(item, (count.name, count.value), (each, call.result))), call, ""
    return None


def _by_sum(item: MemoryItem, own: Sequence[Applied], scene: Scene) -> Found | None:
    """One application, and what one of another law adds."""
    others = {call.result: call for call in reversed(scene.applied) if _positive(call.result) and _in_bytes(call.law)}
    for call in own:
        other = others.get(item.bytes.expected - call.result)
        if other is not None and other is not call:
            first, second = (lines_of(law_functions()[c.law], c.inputs) for c in (call, other))
            parts = [(c.law.rpartition(".")[2], c.result) for c in (call, other)]
            return (*first, *second, _chain(item, "+", *parts)), call, ""
    return None


def _by_parameters(item: MemoryItem, _: Sequence[Applied], scene: Scene) -> Found | None:
    """Parameters times the width of one, where that is the item to the byte."""
    if item.component not in _OF_PARAMETERS:
        return None
    for count in (count for count in scene.counts if not count.plain):
        for width in (1, 2, 4, 8, 12, 16):
            if count.value * width == item.bytes.expected:
                return (_product(item, (count.name, count.value), ("bytes each", width)),), None, ""
    return None


def _by_component(item: MemoryItem, _: Sequence[Applied], scene: Scene) -> Found | None:
    """Weights of a stage: parameters of each part of the model, in the bytes their format gives them."""
    stages = (stage for call in scene.applied if call.law == STAGES for stage in call.result)
    stage = next((stage for stage in stages if stage.total == item.bytes.expected), None)
    if stage is None:
        return None
    sizes = sorted(stage.bytes_by_component.items(), key=lambda part: -part[1])
    parts = [_of_component(name, stage.parameters_by_component.get(name, 0), size) for name, size in sizes]
    return (*parts, _chain(item, "+", *sizes)), None, ""


def _of_component(part: str, parameters: int, size: int) -> Step:
    if parameters and size % parameters == 0:
        return _line(part, "×", size, ("parameters", parameters), ("bytes each", size // parameters))
    return _line(part, "+", size, (f"{parameters:,} parameters with their scales", size))


_OF_PARAMETERS = frozenset(
    {"weights", "gradients", "adapters", "master_weights", "optimizer_states", "reference_model", "draft_model"}
)


def _by_cache(item: MemoryItem, own: Sequence[Applied], scene: Scene) -> Found | None:
    """A cache: bytes of a token over the layers, times the tokens held."""
    cache = scene.answer.kv_cache
    if item.component != "kv_cache" or cache is None or cache.bytes_per_token <= 0:
        return None
    tokens, rest = divmod(item.bytes.expected, cache.bytes_per_token)
    if rest:
        return None
    per_token = cache.bytes_per_token
    layer = next((c for c in scene.applied if c.law == _FULL_ATTENTION and _divides(c, per_token)), None)
    steps = [] if layer is None else _token_steps(scene.applied, layer, per_token)
    steps += _traffic_steps(item, scene, per_token)
    steps += _pool_steps(item, own, per_token)
    steps.append(_product(item, ("tokens held", tokens), ("one token", per_token)))
    return tuple(steps), layer, ""


_FULL_ATTENTION, _ROW = "laws.kv_cache.full_attention", "laws.kv_cache.row"


def _token_steps(applied: Sequence[Applied], layer: Applied, per_token: int) -> list[Step]:
    """One token over the layers; in one line where keys and values are plain numbers of one width."""
    layers, key_bytes = per_token // layer.result, layer.inputs["key_bytes"]
    row = next((c for c in applied if c.law == _ROW and c.result == key_bytes), None)
    heads = layer.result // (key_bytes + layer.inputs["value_bytes"])
    if row is not None and key_bytes == layer.inputs["value_bytes"] and _is_plain(row):
        width, each = row.inputs["elements"], row.inputs["block_bytes"]
        factors = ("keys and values", 2), ("layers", layers), ("KV heads", heads), ("head dim", width), ("bytes", each)
        return [_line("one token", "×", per_token, *factors)]
    steps = [] if row is None else [*lines_of(law_functions()[_ROW], row.inputs, "key bytes")]
    steps += lines_of(law_functions()[layer.law], layer.inputs, "one layer, one token")
    return [*steps, _line("one token", "×", per_token, ("layers", layers), ("one layer, one token", layer.result))]


def _is_plain(row: Applied) -> bool:
    return row.inputs["block_elements"] == 1 and not row.inputs["per_head_bytes"]


def _traffic_steps(item: MemoryItem, scene: Scene, per_token: int) -> list[Step]:
    """What the requests of the card need of the pool, where it is their tokens times one token."""
    answer = scene.answer
    needed = answer.required.expected - answer.reserve_bytes - answer.peak.device.expected + item.bytes.expected
    requests = next((count.value for count in scene.counts if count.name == "requests"), 0)
    each = answer.kv_cache.max_model_len if answer.kv_cache is not None else None
    if answer.claimed_bytes is None or not requests or not each or requests * each * per_token != needed:
        return []
    factors = ("requests", requests), ("tokens of each", each), ("one token", per_token)
    return [_line("needed by the requests", "×", needed, *factors)]


def _divides(call: Applied, amount: int) -> bool:
    return _positive(call.result) and amount % call.result == 0


def _pool_steps(item: MemoryItem, own: Sequence[Applied], bytes_per_token: int) -> tuple[Step, ...]:
    """What is left of the budget, which the pool fills with whole blocks."""
    near = [call for call in own if 0 <= call.result - item.bytes.expected < bytes_per_token * 1024]
    return lines_of(law_functions()[near[0].law], near[0].inputs, "left for the cache") if near else ()


_WAYS: tuple[Way, ...] = (_by_one_law, _by_counting, _by_parameters, _by_component, _by_cache, _by_sum)


def _largest(item: MemoryItem, own: Sequence[Applied]) -> Found:
    """One part of an item that sums many: the largest application of its law."""
    exactly_own = [call for call in own if call.law == item.law and call.result <= item.bytes.expected]
    if not exactly_own:
        return (), None, ""
    call = max(exactly_own, key=lambda c: c.result)
    steps = lines_of(law_functions()[call.law], call.inputs)
    return (
        steps,
        call,
        f"the largest of {len(exactly_own)} different terms of this law" if len(exactly_own) > 1 else "one term of it",
    )


# ---- writing ----


def _product(item: MemoryItem, *factors: tuple[str, int]) -> Step:
    return _line(item.component, "×", item.bytes.expected, *factors)


def _chain(item: MemoryItem, sign: str, *parts: tuple[str, int]) -> Step:
    return _line(item.component, sign, item.bytes.expected, *parts)


def _line(title: str, sign: str, value: int, *parts: tuple[str, int]) -> Step:
    return step(title, _joined(sign, [name(p) for p, _ in parts]), _joined(sign, [number(v) for _, v in parts]), value)


def _joined(sign: str, parts: Sequence[Written]) -> Written:
    return Written(f" {sign} ".join(p.text for p in parts), f"<mo>{sign}</mo>".join(p.mathml for p in parts), 1)


def _inputs(call: Applied) -> tuple[PutIn, ...]:
    described = {entry.name: entry for entry in parsed(law_functions()[call.law]).inputs}
    taken = inspect.signature(law_functions()[call.law]).parameters
    return tuple(
        PutIn(name=n, value=_shown(call.inputs[n]), unit=described[n].unit, meaning=described[n].description)
        for n in taken
        if n in described
    )


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float):
        return number(value).text.strip("()")
    return value if isinstance(value, str) else f"{len(value)} entries" if hasattr(value, "__len__") else str(value)
