"""A published parameter count beside the computed one: which reading it decides for, what it may hold in addition."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from tonnage.architecture.composition import Reading, compose
from tonnage.architecture.counts import count_by_component
from tonnage.architecture.fields import Fields
from tonnage.architecture.prediction import prediction_tensors
from tonnage.architecture.tables import Alternative

STORED_IN_ADDITION = 0.05
"""A checkpoint may hold this much beyond the model: prediction layers, scales, buffers, dropped projections. [fraction]"""
PREDICTION_MARGIN = 65_536
"""Norms and router corrections that differ between prediction layers of one family. [parameters]"""


class Comparison(Struct, frozen=True, kw_only=True):
    """What the published count says of a reading."""

    trust: Literal["exact", "checked", "recalled", "generic"] = "checked"
    notes: tuple[str, ...] = ()
    unknown_fields: tuple[str, ...] = ()


def best_reading(fields: Fields, published: int | None) -> tuple[Reading, Comparison]:
    """The reading that a published count confirms; without one, or when none is confirmed, the plain one."""
    plain = compose(fields)
    if published is None:
        return plain, Comparison(trust="recalled" if fields.on_assumptions else "checked")
    if parameters(plain) == published:
        return plain, Comparison(trust="exact")
    others = [(a.note, compose(fields.with_given(a.values))) for a in _alternatives(plain)]
    for note, other in others:
        if parameters(other) == published:
            return other, Comparison(trust="exact", notes=(note,))
    explained = _explain(plain, published)
    if explained.trust != "exact":
        for note, other in others:
            if _confirmed_surplus(other.text, published - parameters(other)):
                return other, msgspec.structs.replace(_explain(other, published), notes=(note,))
    return plain, explained


def parameters(reading: Reading) -> int:
    """Parameters of a reading. [unitless]"""
    return sum(count_by_component(reading.layers, reading.outside).values())


def _alternatives(reading: Reading) -> tuple[Alternative, ...]:
    text, whole = reading.text.table.readings, reading.fields.table.readings
    return text if text == whole else (*whole, *text)


def _explain(reading: Reading, published: int) -> Comparison:
    computed = parameters(reading)
    surplus = published - computed
    confirmed = _confirmed_surplus(reading.text, surplus)
    if confirmed:
        return Comparison(trust="exact", notes=(f"the published count also holds {confirmed}",))
    if 0 < surplus <= computed * STORED_IN_ADDITION:
        note = f"the published count is {surplus} larger: prediction layers, scales or buffers in the checkpoint"
        return Comparison(notes=(note,))
    if quantization_of(reading):
        return Comparison(notes=("the published count of a quantized checkpoint counts packed tensors and scales",))
    note = f"the published count {published} differs from the {computed} parameters that the config gives"
    return Comparison(trust="generic", notes=(note,), unknown_fields=("parameters",))


def _confirmed_surplus(text: Fields, surplus: int) -> str:
    """What a surplus is exactly, "" when it is none of the things that checkpoints are known to hold."""
    table = text.count("vocab_size") * text.count("embedding_size")
    predicted = sum(tensor.elements for tensor in prediction_tensors(text))
    masks = text.integer("num_hidden_layers") * text.count("max_position_embeddings") ** 2
    if surplus == table and text.flag("tied"):
        return "the tied embedding twice"
    if predicted and any(0 <= surplus - size <= PREDICTION_MARGIN for size in (predicted, predicted - 2 * table)):
        return "the multi-token-prediction layers"
    return "the causal masks" if masks and 0 <= surplus - masks <= PREDICTION_MARGIN else ""


def quantization_of(reading: Reading) -> dict[str, Any] | None:
    """Quantization a config states, at its top or in its text part."""
    stated = (part.config.get("quantization_config") for part in (reading.fields, reading.text))
    found = next((settings for settings in stated if isinstance(settings, dict) and settings), None)
    experts = reading.text["expert_dtype"]
    return {**found, "expert_dtype": experts} if found is not None and experts is not None else found
