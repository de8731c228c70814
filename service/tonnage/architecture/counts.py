"""Parameters of a model by what they do: totals that a published count can be compared with."""

from collections.abc import Iterable
from typing import get_args

from tonnage.spec.model import Component, LayerGroup, Model, Tensor


def parameters_by_component(model: Model) -> dict[Component, int]:
    """Parameters of the model as counted, by component, in the order of `Component`. [unitless]"""
    return count_by_component(model.layers, model.outside)


def count_by_component(layers: Iterable[LayerGroup], outside: Iterable[Tensor]) -> dict[Component, int]:
    """Parameters of layers and of what stands outside them, by component. [unitless]"""
    counts: dict[Component, int] = {}
    for tensor, copies in _tensors(layers, outside):
        if tensor.parameter:
            counts[tensor.component] = counts.get(tensor.component, 0) + tensor.elements * copies
    return {component: counts[component] for component in get_args(Component) if component in counts}


def active_parameters(layers: Iterable[LayerGroup], outside: Iterable[Tensor]) -> int | None:
    """Parameters one token uses: every routed expert matrix counts by top-k of its experts; None without experts. [unitless]"""
    groups = tuple(layers)
    total = sum(count_by_component(groups, outside).values())
    idle = sum(_idle_experts(group) for group in groups)
    return total - idle if any(group.layer.moe for group in groups) else None


def _idle_experts(group: LayerGroup) -> int:
    moe = group.layer.moe
    if moe is None:
        return 0
    routed = sum(t.elements for t in group.layer.tensors if t.component == "routed_experts")
    return routed * (moe.num_experts - moe.num_experts_per_tok) // moe.num_experts * group.count


def _tensors(layers: Iterable[LayerGroup], outside: Iterable[Tensor]) -> Iterable[tuple[Tensor, int]]:
    for tensor in outside:
        yield tensor, 1
    for group in layers:
        for tensor in group.layer.tensors:
            yield tensor, group.count
