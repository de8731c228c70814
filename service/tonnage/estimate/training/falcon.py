"""
Falcon's layer: one key head for all queries, which no attention kernel takes, so that the scores are written out.

Source:
    huggingface/transformers@v5.24.0 src/transformers/models/falcon/modeling_falcon.py; pytorch/pytorch@v2.8.0
    aten/src/ATen/native/transformers/attention.cpp _scaled_dot_product_attention_math (fp32 inside, both results cast)
"""

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.eager import Block
from tonnage.estimate.training.tape import PASS, Form, Out, Tape, Tensor
from tonnage.spec.model import Attention


class FalconBlock(Block):
    """A layer as Falcon writes it."""

    def _parallel(self, x: Tensor) -> Tensor:
        first = self.norm(x, "1")
        mixed, weights = self.mix(first)
        second = self.norm(x, "2") if self.layer.norms > 1 else first
        fed = self.feed(second)
        both = in_place(self.tape, fed, mixed)
        h = op.add(self.tape, both, x)
        del weights
        return h

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attention: Attention) -> tuple[Tensor, Tensor | None]:
        """Kernels want as many keys as queries."""
        recipe, tape, heads = self.recipe, self.tape, attention.num_attention_heads
        if recipe.attention == "eager":
            return self._eager(q, k, v, attention)
        if recipe.kernel == "flash" or attention.num_key_value_heads == heads:
            return super().attend(q, k, v, attention)
        if recipe.autocast:
            q, k, v = (op.cast(tape, t, recipe.autocast) for t in (q, k, v))
        return op.copy(tape, written_out(tape, q, k, v, heads=heads)), None

    def _eager(self, q: Tensor, k: Tensor, v: Tensor, attention: Attention) -> tuple[Tensor, Tensor]:
        tape, heads = self.tape, attention.num_attention_heads
        width = q.elements
        copies = heads // attention.num_key_value_heads
        if tape.autocast:
            q, k, v = (op.cast(tape, t, tape.autocast) for t in (q, k, v))
        left, right = op.copy(tape, q), op.repeat(tape, k, copies)
        scores = halved(tape, product(tape, left, right, op.pairs(heads)))
        del left, right
        # the mask has the width of the stream, and so has their sum
        masked = op.shift(tape, scores) if self.stream_bytes == scores.element_bytes else op.cast(tape, scores, 4)
        weights = op.softmax(tape, masked, element_bytes=masked.element_bytes)
        del masked, scores
        rows = op.repeat(tape, v, copies)
        out = product(tape, op.cast(tape, weights, rows.element_bytes), rows, width)
        del rows
        return op.copy(tape, out), weights


def in_place(tape: Tape, x: Tensor, other: Tensor) -> Tensor:
    """`x += other`."""
    node = tape.node([x, other], [PASS, PASS])
    return Tensor(x.storage, x.elements, x.element_bytes, node)


def halved(tape: Tape, x: Tensor) -> Tensor:
    """`x /= number`: in place forward, a new gradient."""
    return Tensor(x.storage, x.elements, x.element_bytes, tape.node([x], [Out(x.form)]))


def product(tape: Tape, a: Tensor, b: Tensor, elements: Form) -> Tensor:
    """A batched product outside autocast: both sides are saved."""
    node = tape.node([a, b], [Out(a.form), Out(b.form)])
    if b.requires_grad:
        tape.save(node, a.storage)
    if a.requires_grad:
        tape.save(node, b.storage)
    return tape.new(elements, a.element_bytes, node)


def written_out(tape: Tape, q: Tensor, k: Tensor, v: Tensor, *, heads: int) -> Tensor:
    """scaled_dot_product_attention where no kernel fits: scores and probabilities in fp32."""
    kept, width = q.element_bytes, q.elements
    copies = max(1, q.elements[1] // max(1, k.elements[1]))
    wide_q, wide_k, wide_v = op.cast(tape, q, 4), op.cast(tape, k, 4), op.cast(tape, v, 4)
    scaled_q, scaled_k = op.scale(tape, wide_q), op.scale(tape, wide_k)
    left, right = op.copy(tape, scaled_q), op.repeat(tape, scaled_k, copies)
    scores = product(tape, left, right, op.pairs(heads))
    del left, right
    masked = op.shift(tape, scores)
    del scores
    weights = op.from_result(tape, masked)
    del masked
    second = tape.new(op.pairs(heads), kept)
    rows = op.repeat(tape, wide_v, copies)
    out = op.cast(tape, product(tape, weights, rows, width), kept)
    del second, rows, scaled_q, wide_q, wide_k, wide_v
    return out
