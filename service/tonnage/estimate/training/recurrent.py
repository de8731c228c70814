"""
Layers with a state instead of a cache, as their fused kernels keep tensors for backward; not checked against runs.

Source:
    state-spaces/mamba@v2.2.4 mamba_ssm/ops/triton/ssd_combined.py MambaSplitConv1dScanCombinedFn (keeps its input and its
    output), ops/selective_scan_interface.py MambaInnerFn (checkpoint_lvl 1); fla-org/flash-linear-attention@v0.3.0
    fla/ops/gated_delta_rule/chunk.py (q, k, v, gates and the 64 wide triangular matrix), fla/modules/fused_norm_gate.py;
    huggingface/transformers@v5.24.0 src/transformers/models/{qwen3_next,lfm2,mamba2}/modeling_*.py
"""

from typing import TYPE_CHECKING

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.tape import Out, Tensor, per_token
from tonnage.spec.model import Recurrent

if TYPE_CHECKING:
    from tonnage.estimate.training.eager import Block

_TRIANGLE = 64
"""Width of the matrix of one chunk that linear attention keeps per head. [elements]"""


def recurrent_mix(block: "Block", x: Tensor, recurrent: Recurrent) -> Tensor:
    """Projections, convolution, scan, gated norm, projection."""
    if recurrent.kind == "short_conv":
        return _short_convolution(block, x, recurrent)
    tape, inner = block.tape, recurrent.inner_size or block.hidden
    projected = [block.project(x, role, width) for role, width in _inputs(block)]
    main = projected[0] if projected else x
    if recurrent.kind in ("gated_delta", "kda") and recurrent.conv_channels:
        joined = op.copy(tape, op.part(tape, main, per_token(recurrent.conv_channels)))
        mixed = _kept(block, [joined], recurrent.conv_channels)
        heads = recurrent.num_value_heads
        repeated = 2 * heads * recurrent.key_head_dim if heads != recurrent.num_key_heads else 0
        keys = tape.new(per_token(repeated + heads * _TRIANGLE), 2)
        scanned = _kept(block, [mixed, *projected], inner, extra=keys)
        del keys
    else:
        scanned = _kept(block, projected or [x], inner, keeps_output=True)
    normed = _kept(block, [scanned], inner) if recurrent.kind in ("gated_delta", "kda") else scanned
    return block.project(normed, "out_proj", block.hidden)


def _inputs(block: "Block") -> list[tuple[str, int]]:
    """Linears that read the layer's input."""
    return [
        (t.role, t.out_features)
        for t in block.layer.tensors
        if t.component == "ssm" and t.linear and t.in_features == block.hidden and t.role not in ("out_proj", "o")
    ]


def _kept(
    block: "Block", inputs: list[Tensor], width: int, *, extra: Tensor | None = None, keeps_output: bool = False
) -> Tensor:
    """A kernel that keeps its inputs, and what it computed beside them."""
    tape = block.tape
    node = tape.node(inputs, [Out(t.form) for t in inputs])
    tape.save(node, *(t.storage for t in inputs))
    if extra is not None:
        tape.save(node, extra.storage)
    result = tape.new(per_token(width), inputs[0].element_bytes, node)
    if keeps_output:
        tape.save(node, result.storage)
    return result


def _short_convolution(block: "Block", x: Tensor, recurrent: Recurrent) -> Tensor:
    """LFM2: two gates around a short convolution, each product keeping both sides."""
    tape, width = block.tape, recurrent.conv_channels
    both = block.project(x, "in_proj", 3 * width)
    first, second, third = op.split(tape, both, per_token(width), per_token(width), per_token(width))
    gated = op.multiply(tape, first, third)
    convolved = _kept(block, [gated], width)
    result = op.copy(tape, op.multiply(tape, second, convolved))
    return block.project(result, "out_proj", block.hidden)
