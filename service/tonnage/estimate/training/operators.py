"""
What each operator of eager PyTorch allocates, saves for backward and computes there.

One function per operator; views cost nothing and have none, except where their backward pass does. Widths are
elements per token.

Source:
    pytorch/pytorch@v2.8.0 tools/autograd/derivatives.yaml (what is saved), torch/csrc/autograd/FunctionsManual.cpp
    (mm_mat2_backward, pow_backward, slice_backward), aten/src/ATen/autocast_mode.h (which operators compute in what),
    aten/src/ATen/native/transformers/cuda/attention_backward.cu, csrc/flash_attn/flash_api.cpp mha_bwd (workspace)
"""

from tonnage.estimate.training.tape import (
    PASS,
    ZERO,
    Form,
    Out,
    Parameter,
    Tape,
    Tensor,
    constant,
    gradient,
    per_pair,
    per_token,
    plus,
    times,
)


def cast(tape: Tape, x: Tensor, element_bytes: int) -> Tensor:
    """`x.to(dtype)`: a copy, unless it is that already."""
    if x.element_bytes == element_bytes:
        return x
    node = tape.node([x], [Out(x.form)])
    return tape.new(x.elements, element_bytes, node)


def view(x: Tensor, elements: Form) -> Tensor:
    """Another shape, or a part, of the same storage."""
    return Tensor(x.storage, elements, x.element_bytes, x.node)


def part(tape: Tape, x: Tensor, elements: Form) -> Tensor:
    """A slice: its backward pass makes a gradient of the whole."""
    return Tensor(x.storage, elements, x.element_bytes, tape.node([x], [Out(x.form)]))


def split(tape: Tape, x: Tensor, *widths: Form) -> list[Tensor]:
    """`chunk` or `split`: the gradients of the pieces wait for each other and are joined."""
    node = tape.node([x], [Out(x.form)])
    if node is not None:
        node.collects = True
    return [Tensor(x.storage, width, x.element_bytes, node) for width in widths]


def copy(tape: Tape, x: Tensor) -> Tensor:
    """`clone` or `contiguous` of something that is not."""
    return tape.new(x.elements, x.element_bytes, tape.node([x], [PASS]))


def repeat(tape: Tape, x: Tensor, copies: int) -> Tensor:
    """`expand` and `reshape`: every element `copies` times."""
    return tape.new(times(x.elements, copies), x.element_bytes, tape.node([x], [Out(x.form)]))


def concatenate(tape: Tape, *pieces: Tensor) -> Tensor:
    """`cat`: gradients of the pieces are views of the whole's."""
    elements = ZERO
    for piece in pieces:
        elements = plus(elements, piece.elements)
    node = tape.node(pieces, [PASS] * len(pieces))
    return tape.new(elements, max(p.element_bytes for p in pieces), node)


def add(tape: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Sum; nothing is saved, each side gets the gradient in its own width."""
    width = max(a.element_bytes, b.element_bytes)
    elements = max(a.elements, b.elements)
    whole = times(elements, width)
    outs = [PASS if x.form == whole else Out(x.form) for x in (a, b)]
    return tape.new(elements, width, tape.node([a, b], outs))


def minus(tape: Tape, x: Tensor, per_row: Tensor) -> Tensor:
    """A number per row taken off: its gradient is made at full size and summed."""
    node = tape.node([x, per_row], [PASS, Out(x.form, per_row.form)])
    return tape.new(x.elements, x.element_bytes, node)


def shift(tape: Tape, x: Tensor) -> Tensor:
    """A constant or a mask without gradient added."""
    return tape.new(x.elements, x.element_bytes, tape.node([x], [PASS]))


def scale(tape: Tape, x: Tensor) -> Tensor:
    """A product with a number, which is never packed."""
    return negate(tape, x)


def turn(tape: Tape, x: Tensor, width: int) -> Tensor:
    """A product with cos or sin, of `width` bytes: a tensor without gradient, saved though it costs nothing here."""
    result = max(x.element_bytes, width)
    whole = times(x.elements, result)
    node = tape.node([x], [Out(whole, None if result == x.element_bytes else x.form)])
    tape.save(node, None)
    return tape.new(x.elements, result, node)


def negate(tape: Tape, x: Tensor) -> Tensor:
    """Elementwise without anything saved, a new gradient."""
    return tape.new(x.elements, x.element_bytes, tape.node([x], [Out(x.form)]))


def multiply(tape: Tape, a: Tensor, b: Tensor) -> Tensor:
    """Product of two tensors: each is saved for the other's gradient; a broadcast side's gradient is summed."""
    width = max(a.element_bytes, b.element_bytes)
    elements = max(a.elements, b.elements)
    whole = times(elements, width)
    node = tape.node([a, b], [Out(whole, None if x.form == whole else x.form) for x in (a, b)])
    if a.requires_grad:
        tape.save(node, b.storage)
    if b.requires_grad:
        tape.save(node, a.storage)
    return tape.new(elements, width, node)


def weighted(tape: Tape, x: Tensor, weight: Parameter, *, derived: bool = False) -> Tensor:
    """
    Product with a weight of the last dimension: the norm's own.

    `derived`: the weight is cast or shifted first (Gemma's 1 + weight in fp32), which is small and not counted.
    """
    width = x.element_bytes if derived else max(x.element_bytes, weight.element_bytes)
    whole = times(x.elements, width)
    summed = gradient(weight.elements * weight.element_bytes)
    node = tape.node([weight, x], [Out(whole, summed), Out(whole, None if width == x.element_bytes else x.form)])
    if weight.trains:
        tape.save(node, x.storage)
    if x.requires_grad:
        tape.save(node, None)
    return tape.new(x.elements, width, node)


def activation(tape: Tape, x: Tensor) -> Tensor:
    """silu, gelu, relu: the input is saved."""
    node = tape.node([x], [Out(x.form)])
    tape.save(node, x.storage)
    return tape.new(x.elements, x.element_bytes, node)


def fused_gate(tape: Tape, gate: Tensor, up: Tensor) -> Tensor:
    """Liger's SwiGLU: both halves are saved, the activation is computed again; one gradient is written over a half."""
    node = tape.node([gate, up], [PASS, Out(up.form)])
    tape.save(node, gate.storage, up.storage)
    return tape.new(gate.elements, gate.element_bytes, node)


def xielu(tape: Tape, x: Tensor, *, trains: bool) -> Tensor:
    """The activation xIELU in Python (transformers.activations.XIELUActivation): two branches, a condition between them."""
    if tape.autocast:
        x = cast(tape, x, 4)
    squared = multiply(tape, negate(tape, x), x)
    first = add(tape, squared, negate(tape, x))
    del squared
    node = tape.node([x], [Out(x.form)])
    tape.save(node, x.storage)
    lower = tape.new(x.elements, x.element_bytes, node)
    below = add(tape, from_result(tape, lower), x)
    node = tape.node([below], [Out(below.form)])
    tape.save(node, *((below.storage,) if trains else ()))
    scaled_below = tape.new(x.elements, x.element_bytes, node)
    second = add(tape, scaled_below, negate(tape, x))
    del lower, below, scaled_below
    node = tape.node([first, second], [Out(x.form), Out(x.form)])
    tape.save(node, tape.new(x.elements, 1).storage)
    return tape.new(x.elements, x.element_bytes, node)


def from_result(tape: Tape, x: Tensor) -> Tensor:
    """tanh, sigmoid, rsqrt: the result is saved."""
    node = tape.node([x], [Out(x.form)])
    result = tape.new(x.elements, x.element_bytes, node)
    tape.save(node, result.storage)
    return result


def power(tape: Tape, x: Tensor) -> Tensor:
    """`x.pow(n)`: fp32 under autocast; two temporaries in backward."""
    if tape.autocast:
        x = cast(tape, x, 4)
    node = tape.node([x], [Out(x.form)])
    if node is not None:
        node.workspace = times(x.form, 2)
    tape.save(node, x.storage)
    return tape.new(x.elements, x.element_bytes, node)


def mean(tape: Tape, x: Tensor, rows: int = 1) -> Tensor:
    """Mean over the last dimension: one element per row, a full gradient."""
    return tape.new(per_token(rows), x.element_bytes, tape.node([x], [Out(x.form)]))


def dropout(tape: Tape, x: Tensor, *, active: bool) -> Tensor:
    """One byte of mask per element."""
    if not active:
        return x
    node = tape.node([x], [Out(x.form)])
    mask = tape.new(x.elements, 1)
    tape.save(node, mask.storage)
    return tape.new(x.elements, x.element_bytes, node)


def softmax(tape: Tape, x: Tensor, *, element_bytes: int = 4) -> Tensor:
    """`softmax(x, dtype=float32)`: the result is saved in fp32."""
    if tape.autocast:
        element_bytes = 4
    return from_result(tape, cast(tape, x, element_bytes))


def gather(tape: Tape, x: Tensor, elements: Form, *, index_bytes: int) -> Tensor:
    """Rows picked by an index, which is saved."""
    node = tape.node([x], [Out(x.form)])
    tape.save(node, tape.new(per_token(index_bytes), 1).storage)
    return tape.new(elements, x.element_bytes, node)


def filled(tape: Tape, elements: Form, *pieces: Tensor) -> Tensor:
    """An empty tensor that pieces are copied into: each gets a gradient of its own."""
    node = tape.node(pieces, [Out(piece.form) for piece in pieces])
    return tape.new(elements, pieces[0].element_bytes, node)


def placed(tape: Tape, x: Tensor, elements: Form) -> Tensor:
    """`index_copy` into zeros: the source is saved."""
    node = tape.node([x], [Out(x.form)])
    tape.save(node, x.storage)
    return tape.new(elements, x.element_bytes, node)


def total(tape: Tape, x: Tensor, elements: Form) -> Tensor:
    """A sum over one dimension: its gradient is a view."""
    return tape.new(elements, x.element_bytes, tape.node([x], [PASS]))


# ---- matrix products ----


def grouped(tape: Tape, x: Tensor, weight: Parameter, out_elements: Form) -> Tensor:
    """A product per expert in one kernel, in the dtype of the weight whatever autocast says."""
    return _matmul(tape, cast(tape, x, weight.element_bytes), weight, out_elements)


def linear(tape: Tape, x: Tensor, weight: Parameter, out_elements: Form) -> Tensor:
    """
    `nn.Linear`: the input is saved if the weight trains, the weight if the input needs a gradient.

    Under autocast both are cast; copies of weights that train are kept until the region ends.
    """
    if not tape.autocast or weight.element_bytes <= tape.autocast:
        x = cast(tape, x, tape.autocast) if tape.autocast else x
        return _matmul(tape, x, weight, out_elements)
    x = cast(tape, x, tape.autocast)
    kept = _cached_cast(tape, weight)
    size = weight.elements * tape.autocast
    node = tape.node([x, kept], [Out(x.form), Out(constant(size))])
    if kept.requires_grad:
        tape.save(node, x.storage)
    if x.requires_grad:
        tape.save(node, kept.storage)
    return tape.new(out_elements, tape.autocast, node)


def _matmul(tape: Tape, x: Tensor, weight: Parameter, out_elements: Form) -> Tensor:
    node = tape.node([x, weight], [Out(x.form), Out(gradient(weight.elements * weight.element_bytes))])
    if weight.trains:
        tape.save(node, x.storage)
    if x.requires_grad:
        tape.save(node, None)
    return tape.new(out_elements, x.element_bytes, node)


def _cached_cast(tape: Tape, weight: Parameter) -> Tensor:
    if weight.cast is not None:
        return weight.cast
    node = tape.node([weight], [Out(gradient(weight.elements * weight.element_bytes))])
    copied = tape.new(constant(weight.elements), tape.autocast, node)
    if weight.trains:
        weight.cast = copied
        tape.casts.append(weight)
    return copied


def matmul(tape: Tape, a: Tensor, b: Tensor, out_elements: Form) -> Tensor:
    """Batched product of two activations: both are saved."""
    if tape.autocast:
        a, b = cast(tape, a, tape.autocast), cast(tape, b, tape.autocast)
    node = tape.node([a, b], [Out(a.form), Out(b.form)])
    if b.requires_grad:
        tape.save(node, a.storage)
    if a.requires_grad:
        tape.save(node, b.storage)
    return tape.new(out_elements, a.element_bytes, node)


def matrix(tape: Tape, elements: int, element_bytes: int) -> Tensor:
    """A temporary of a weight's size, without gradient."""
    return tape.new(constant(elements), element_bytes)


def product(tape: Tape, x: Tensor, weight: Tensor, out_elements: Form) -> Tensor:
    """A product with a temporary copy of a frozen weight, which backward keeps."""
    node = tape.node([x], [Out(x.form)])
    tape.save(node, weight.storage)
    return tape.new(out_elements, x.element_bytes, node)


def dequantized(
    tape: Tape, x: Tensor, out_elements: Form, *, elements: int, scales: int, keeps_input: bool, copies: int
) -> Tensor:
    """
    A product with a 4-bit matrix, dequantized in forward and again in backward.

    `scales`: bytes of expanded nested scales. `keeps_input`: bitsandbytes before 0.43.2. `copies`: two where it is
    dequantized in another 16-bit type first.
    """
    matrix = constant(elements * x.element_bytes * copies)
    node = tape.node([x], [Out(x.form)])
    if node is not None:
        node.workspace = matrix
    if keeps_input:
        tape.save(node, x.storage)
    scratch = tape.new(constant(scales), 1) if scales else None
    unpacked = tape.new(matrix, 1)
    del scratch
    result = tape.new(out_elements, x.element_bytes, node)
    del unpacked
    return result


# ---- norms ----


def layer_norm(tape: Tape, x: Tensor, weight: Parameter | None) -> Tensor:
    """`nn.LayerNorm`: the input and two fp32 numbers per row are saved; fp32 under autocast."""
    if tape.autocast:
        x = cast(tape, x, 4)
    node = tape.node([x, weight], [Out(x.form), Out(gradient(_bytes(weight)))])
    tape.save(node, x.storage)
    result = tape.new(x.elements, x.element_bytes, node)
    statistics = tape.new(per_token(2), 4)
    tape.save(node, statistics.storage)
    return result


def fused_norm(tape: Tape, x: Tensor, weight: Parameter) -> Tensor:
    """A norm in one kernel (Liger, Transformer Engine, compiled): the input and one fp32 number per row are saved."""
    node = tape.node([x, weight], [Out(x.form), Out(gradient(_bytes(weight)))])
    tape.save(node, x.storage)
    result = tape.new(x.elements, x.element_bytes, node)
    tape.save(node, tape.new(per_token(1), 4).storage)
    return result


def _bytes(weight: Parameter | None) -> int:
    return 0 if weight is None else weight.elements * weight.element_bytes


# ---- attention kernels ----


def flash_attention(tape: Tape, q: Tensor, k: Tensor, v: Tensor, *, heads: int, head_dim: int) -> Tensor:
    """Queries, keys, values, output and one fp32 number per head and query are saved."""
    grouped = k.elements != q.elements
    node = tape.node([q, k, v], [Out(q.form), Out(k.form), Out(v.form)])
    if node is not None:
        rounded = -(-head_dim // 32) * 32 if head_dim <= 128 else (192 if head_dim <= 192 else 256)
        node.workspace = (0, 0, 0, 4 * heads * (rounded + 1), 0, 0)
        if grouped:
            node.workspace = plus(node.workspace, times(q.form, 2))
    tape.save(node, q.storage, k.storage, v.storage)
    result = tape.new(q.elements, q.element_bytes, node)
    statistics = tape.new(per_token(heads), 4)
    tape.save(node, result.storage, statistics.storage, None, None)
    return result


def efficient_attention(
    tape: Tape, q: Tensor, k: Tensor, v: Tensor, *, heads: int, value_width: int, mask: Tensor | None
) -> Tensor:
    """The kernel for a mask: as flash, and the mask in 16 bit stays."""
    node = tape.node([q, k, v], [Out(q.form), Out(k.form), Out(v.form)])
    tape.save(node, q.storage, k.storage, v.storage, None if mask is None else mask.storage)
    result = tape.new(per_token(heads * value_width), q.element_bytes, node)
    statistics = tape.new(per_token(heads), 4)
    tape.save(node, result.storage, statistics.storage, None, None)
    return result


def pairs(heads: int) -> Form:
    """Elements of an attention matrix."""
    return per_pair(heads)


# ---- embedding and loss ----


def embedding(tape: Tape, weight: Parameter, width: int) -> Tensor:
    """A row per token; the gradient is dense."""
    node = tape.node([weight], [Out(gradient(weight.elements * weight.element_bytes))])
    tape.save(node, None)
    return tape.new(per_token(width), weight.element_bytes, node)


def cross_entropy(tape: Tape, logits: Tensor) -> Tensor:
    """`log_softmax` (saved) and `nll_loss`, whose gradient is as large."""
    if tape.autocast:
        logits = cast(tape, logits, 4)
    logarithms = from_result(tape, logits)
    node = tape.node([logarithms], [Out(logarithms.form)])
    tape.save(node, logarithms.storage)
    return tape.new(constant(1), 4, node)
