"""Norms as models write them, on the tape."""

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.tape import Parameter, Tape, Tensor
from tonnage.spec.model import Layer, Model


def normalised(tape: Tape, x: Tensor, weight: Parameter, *, kind: str, fused: bool, rows: int = 1) -> Tensor:
    """RMSNorm in Python or one kernel, Gemma's and OLMo's in fp32, LayerNorm with or without weight."""
    if kind == "layer":
        return op.layer_norm(tape, x, weight)
    if kind == "layer_fp32":
        return _layer_norm_in_python(tape, x, weight)
    if kind == "none":
        kept = x.element_bytes
        return op.cast(tape, op.layer_norm(tape, op.cast(tape, x, 4), None), kept)
    if fused:
        return op.fused_norm(tape, x, weight)
    kept = x.element_bytes
    h = op.cast(tape, x, 4)
    h = op.multiply(tape, h, op.from_result(tape, op.shift(tape, op.mean(tape, op.power(tape, h), rows))))
    if kind == "rms_fp32":
        return op.cast(tape, op.weighted(tape, h, weight, derived=True), kept)
    return op.weighted(tape, op.cast(tape, h, kept), weight)


def norm_kind(layer: Layer, model: Model) -> str:
    """The layer's kind of norm; Cohere writes its LayerNorm in Python."""
    return "layer_fp32" if model.code.layer_norm_in_python and layer.norm_kind == "layer" else layer.norm_kind


def _layer_norm_in_python(tape: Tape, x: Tensor, weight: Parameter) -> Tensor:
    kept = x.element_bytes
    h = op.cast(tape, x, 4)
    average = op.mean(tape, h)
    variance = op.mean(tape, op.power(tape, op.minus(tape, h, average)))
    h = op.multiply(tape, op.minus(tape, h, average), op.from_result(tape, op.shift(tape, variance)))
    return op.cast(tape, op.weighted(tape, h, weight, derived=True), kept)
