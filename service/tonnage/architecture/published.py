"""A published parameter count beside the computed one: which reading it decides for, what it may hold in addition."""

from typing import Literal

from msgspec import Struct

from tonnage.architecture.composition import Reading, compose
from tonnage.architecture.counts import count_by_component
from tonnage.architecture.fields import Fields
from tonnage.architecture.tables import Alternative

STORED_IN_ADDITION = 0.003
"""A checkpoint may hold this much beyond the model: rotary buffers, router corrections, quantization scales. [fraction]"""


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
    for alternative in _alternatives(plain):
        other = compose(fields.with_given(alternative.values))
        if parameters(other) == published:
            return other, Comparison(trust="exact", notes=(alternative.note,))
    return plain, _explain(plain, published)


def parameters(reading: Reading) -> int:
    """Parameters of a reading. [unitless]"""
    return sum(count_by_component(reading.layers, reading.outside).values())


def _alternatives(reading: Reading) -> tuple[Alternative, ...]:
    text, whole = reading.text.table.readings, reading.fields.table.readings
    return text if text == whole else (*whole, *text)


def _explain(reading: Reading, published: int) -> Comparison:
    computed = parameters(reading)
    surplus = published - computed
    text = reading.text
    table = text.count("vocab_size") * text.integer("embedding_size")
    if surplus == table and text.flag("tied"):
        return Comparison(trust="exact", notes=("the published count holds the tied embedding twice",))
    if 0 < surplus <= computed * STORED_IN_ADDITION:
        note = f"the published count is {surplus} larger: buffers or quantization scales in the checkpoint"
        return Comparison(notes=(note,))
    note = f"the published count {published} differs from the {computed} parameters that the config gives"
    return Comparison(trust="generic", notes=(note,), unknown_fields=("parameters",))
