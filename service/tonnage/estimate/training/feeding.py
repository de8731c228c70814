"""
Feed-forward of a layer: dense, routed over experts in grouped products, shared experts beside them; on the tape.

Source:
    huggingface/transformers@v5.24.0 src/transformers/integrations/moe.py grouped_mm_experts_forward
"""

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.linears import Linears
from tonnage.estimate.training.tape import Tensor, per_token
from tonnage.spec.model import Mlp, Moe

_FUSED_EXPERTS = {"expert_gate_up": ("expert_gate", "expert_up")}


class FeedForward(Linears):
    """The second half of a layer."""

    def feed(self, x: Tensor) -> Tensor:
        """Feed-forward of the layer: dense, routed, or both."""
        mlp, moe = self.layer.mlp, self.layer.moe
        if mlp is None and moe is None:
            return op.negate(self.tape, x)
        if moe is not None:
            routed = self._mixture(x, moe)
            return routed if mlp is None else op.add(self.tape, self._dense(x, mlp), routed)
        return self._dense(x, mlp) if mlp is not None else x

    def _dense(self, x: Tensor, mlp: Mlp) -> Tensor:
        inner = self._inner(x, mlp)
        return self.project(inner, "down", self.hidden)

    def _mixture(self, x: Tensor, moe: Moe) -> Tensor:
        """Router, routed experts as one grouped product, shared experts beside them."""
        scores = self._scores_of(x, moe)
        routed = self._experts(x, scores, moe)
        if not moe.shared_intermediate_size:
            return routed
        shared = self._shared(x, moe)
        return op.add(self.tape, routed, shared)

    def _scores_of(self, x: Tensor, moe: Moe) -> Tensor:
        tape, chosen = self.tape, moe.num_experts_per_tok
        router = self.weight("router", self.hidden * moe.num_experts)
        logits = op.linear(tape, x, router, per_token(moe.num_experts))
        probabilities = op.softmax(tape, logits)
        picked = op.gather(tape, probabilities, per_token(chosen), index_bytes=8)
        return op.cast(tape, op.multiply(tape, picked, picked), x.element_bytes)

    def _experts(self, x: Tensor, scores: Tensor, moe: Moe) -> Tensor:
        tape, chosen = self.tape, moe.num_experts_per_tok
        width, hidden = moe.moe_intermediate_size, moe.hidden_size or self.hidden
        rows = op.gather(tape, x, per_token(chosen * hidden), index_bytes=8 * chosen)
        product = self._expert_product(rows, moe, chosen * width)
        down = self._grouped(product, "expert_down", moe.num_experts * width * hidden, chosen * hidden)
        weighted = op.multiply(tape, down, scores)
        ordered = op.gather(tape, weighted, weighted.elements, index_bytes=8 * chosen)
        del weighted
        return op.total(tape, ordered, per_token(hidden))

    def _expert_product(self, rows: Tensor, moe: Moe, width: int) -> Tensor:
        tape, hidden = self.tape, moe.hidden_size or self.hidden
        elements = moe.num_experts * moe.moe_intermediate_size * hidden
        if not moe.gated:
            return op.activation(tape, self._grouped(rows, "expert_up", elements, width))
        both = self._grouped(rows, "expert_gate_up", 2 * elements, 2 * width)
        if self.clamps_experts:
            return self._clamped(both, width)
        gate, up = op.split(tape, both, per_token(width), per_token(width))
        return op.multiply(tape, op.activation(tape, gate), up)

    def _clamped(self, both: Tensor, width: int) -> Tensor:
        """Interleaved halves, each clamped; gate x sigmoid in operators of their own, and one added to the other half."""
        tape = self.tape
        gate = op.activation(tape, op.part(tape, both, per_token(width)))
        up = op.activation(tape, op.part(tape, both, per_token(width)))
        glu = op.multiply(tape, gate, op.from_result(tape, op.scale(tape, gate)))
        return op.multiply(tape, op.shift(tape, up), glu)

    def _grouped(self, x: Tensor, role: str, elements: int, out: int) -> Tensor:
        """One product for all experts; a quantized stack is dequantized whole and kept for backward, a linear alone and freed."""
        recipe, tape = self.recipe, self.tape
        if not recipe.adapted.isdisjoint((role, *_FUSED_EXPERTS.get(role, ()))):
            experts, chosen = (moe.num_experts, moe.num_experts_per_tok) if (moe := self.layer.moe) else (1, 1)
            return self.adapted_stack(x, role, elements, out, experts=experts, chosen=max(1, chosen))
        if not recipe.four_bit or recipe.plain_experts:
            return op.grouped(tape, x, self.weight(role, elements), per_token(out))
        x = op.cast(tape, x, recipe.compute_bytes)
        if recipe.stacked_experts:
            return op.product(tape, x, op.matrix(tape, elements, recipe.compute_bytes), per_token(out))
        moe = self.layer.moe
        one = elements // (moe.num_experts if moe else 1) // (2 if role in _FUSED_EXPERTS else 1)
        return op.dequantized(
            tape, x, per_token(out), elements=one, scales=0, keeps_input=recipe.keeps_inputs, copies=1
        )

    def _shared(self, x: Tensor, moe: Moe) -> Tensor:
        tape, width = self.tape, moe.shared_intermediate_size
        gate = op.activation(tape, self.project(x, "shared_gate", width))
        inner = op.multiply(tape, gate, self.project(x, "shared_up", width))
        out = self.project(inner, "shared_down", self.hidden)
        if not moe.shared_gate:
            return out
        weight = self.weight("shared_expert_gate", self.hidden)
        share = op.from_result(tape, op.linear(tape, x, weight, per_token(1)))
        return op.multiply(tape, share, out)

    def _inner(self, x: Tensor, mlp: Mlp) -> Tensor:
        tape, width = self.tape, mlp.intermediate_size
        if not mlp.gated:
            return self._activated(self.project(x, "up", width), mlp.activation)
        if mlp.fused_gate_up:
            both = self.project(x, "gate_up", 2 * width)
            gate, up = op.split(tape, both, per_token(width), per_token(width))
            if self.recipe.fused_gate:
                return op.fused_gate(tape, gate, up)
            return op.multiply(tape, up, op.activation(tape, gate))
        if self.recipe.fused_gate:
            gate = self.project(x, "gate", width)
            return op.fused_gate(tape, gate, self.project(x, "up", width))
        return op.multiply(tape, op.activation(tape, self.project(x, "gate", width)), self.project(x, "up", width))

    def _activated(self, x: Tensor, name: str) -> Tensor:
        """`gelu_new` in Python operators, everything else in one kernel; relu keeps its result, whose square is a power."""
        if name == "relu":
            return op.from_result(self.tape, x)
        if name == "xielu":
            return op.xielu(self.tape, x, trains=self.recipe.trains)
        if name == "relu2":
            return op.power(self.tape, op.from_result(self.tape, x))
        if name != "gelu_new" or self.recipe.code != "transformers":
            return op.activation(self.tape, x)
        tape = self.tape
        cube = op.scale(tape, op.power(tape, x))
        inner = op.from_result(tape, op.scale(tape, op.add(tape, x, cube)))
        del cube
        return op.multiply(tape, op.scale(tape, x), op.shift(tape, inner))
