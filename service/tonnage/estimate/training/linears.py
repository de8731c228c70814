"""
Linears of a layer with the adapters they carry, on the tape.

Source:
    huggingface/peft@v0.21.2 src/peft/tuners/lora/layer.py Linear.forward, ParamWrapper, bnb.py Linear4bit.forward, variants.py
    DoraLinearVariant; src/peft/tuners/ia3/layer.py
"""

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.norms import norm_kind, normalised
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.tape import Out, Parameter, Tape, Tensor, constant, gradient, per_token
from tonnage.spec.model import Layer, Model


class Linears:
    """Weights of one layer: norms, linears, adapters."""

    def __init__(self, tape: Tape, layer: Layer, model: Model, recipe: Recipe) -> None:
        self.tape = tape
        self.layer = layer
        self.hidden = model.hidden_size
        self.clamps_experts = model.code.clamped_experts
        self.norm_kind = norm_kind(layer, model)
        self.recipe = recipe
        self.weights: dict[str, Parameter] = {}

    def drop_casts(self) -> None:
        """The end of an autocast region, for this block's weights."""
        for weight in self.weights.values():
            weight.cast = None

    def weight(self, name: str, elements: int, *, element_bytes: int = 0, trains: bool | None = None) -> Parameter:
        """A weight of the block, made once."""
        found = self.weights.get(name)
        if found is None:
            recipe = self.recipe
            width = element_bytes or recipe.weight_bytes
            found = self.weights[name] = Parameter(elements, width, recipe.trains if trains is None else trains)
        return found

    def norm(self, x: Tensor, name: str, *, elements: int = 0, rows: int = 1) -> Tensor:
        """The layer's kind of norm over its hidden size, or over `elements` in `rows` rows per token."""
        weight = self.weight(f"norm{name}", elements or self.hidden, element_bytes=self.recipe.norm_bytes)
        return normalised(self.tape, x, weight, kind=self.norm_kind, fused=self.recipe.norm == "fused", rows=rows)

    def project(self, x: Tensor, role: str, out: int) -> Tensor:
        """A linear with the adapter it may carry."""
        if not self._carries(role):
            return self.base(x, role, out)
        if self.recipe.scales:
            return self._scaled(x, role, out)
        return self._dora(x, role, width_of(x), out) if self.recipe.dora else self._adapted(x, role, out)

    def _carries(self, role: str) -> bool:
        """Whether a linear has an adapter; one on a part of a fused matrix works on the whole."""
        adapted = self.recipe.adapted
        return role in adapted or (role == "qkv" and not adapted.isdisjoint(("q", "k", "v")))

    def _scaled(self, x: Tensor, role: str, out: int) -> Tensor:
        """IA3: a vector over the output, over the input of the feed-forward's last linear."""
        tape, width = self.tape, self.recipe.adapter_bytes
        if role == "down":
            kept = x.element_bytes
            scale = self.weight(f"{role}.scale", width_of(x), element_bytes=width, trains=True)
            return self.base(op.cast(tape, op.weighted(tape, x, scale), kept), role, out)
        result = self.base(x, role, out)
        scale = self.weight(f"{role}.scale", out, element_bytes=width, trains=True)
        return op.cast(tape, op.weighted(tape, result, scale), result.element_bytes)

    def _adapted(self, x: Tensor, role: str, out: int) -> Tensor:
        recipe, tape, width = self.recipe, self.tape, width_of(x)
        result = self.base(x, role, out)
        kept = result.element_bytes
        if recipe.four_bit:
            result = op.copy(tape, result)
        if not (recipe.four_bit and tape.autocast):
            x = op.cast(tape, x, recipe.adapter_bytes)
        low = self._low_rank(op.dropout(tape, x, active=recipe.dropout), role, width, out)
        low = op.scale(tape, low)
        if recipe.four_bit:
            if not tape.autocast:
                low = op.cast(tape, low, kept)
            return op.add(tape, result, low)
        result = op.add(tape, result, low)
        return op.cast(tape, result, kept)

    def _low_rank(self, x: Tensor, role: str, width: int, out: int) -> Tensor:
        rank, element_bytes = self.recipe.rank, self.recipe.adapter_bytes
        a = self.weight(f"{role}.A", rank * width, element_bytes=element_bytes, trains=True)
        b = self.weight(f"{role}.B", rank * out, element_bytes=element_bytes, trains=True)
        return op.linear(self.tape, op.linear(self.tape, x, a, per_token(rank)), b, per_token(out))

    def _dora(self, x: Tensor, role: str, width: int, out: int) -> Tensor:
        """
        DoRA: adapter and base output scaled by a magnitude over the norm of the whole adapted matrix.

        With dropout the base is multiplied once more, by a copy of its weight in the adapter's dtype, which stays.
        """
        recipe, tape = self.recipe, self.tape
        result = self.base(x, role, out)
        kept = result.element_bytes
        x = op.cast(tape, x, recipe.adapter_bytes)
        x = op.dropout(tape, x, active=recipe.dropout)
        whole = op.matrix(tape, width * out, recipe.adapter_bytes)
        self._norm_of_adapted(whole, width)
        low = self._low_rank(x, role, width, out)
        base = op.product(tape, x, whole, per_token(out)) if recipe.dropout else result
        magnitude = self.weight(f"{role}.magnitude", out, element_bytes=recipe.adapter_bytes, trains=True)
        extra = op.add(tape, op.weighted(tape, base, magnitude), op.scale(tape, op.weighted(tape, low, magnitude)))
        del whole
        return op.cast(tape, op.add(tape, result, extra), kept)

    def _norm_of_adapted(self, whole: Tensor, width: int) -> None:
        """An identity matrix through the adapter, and the sum of both matrices, for a moment."""
        tape, element_bytes = self.tape, self.recipe.adapter_bytes
        identity = op.matrix(tape, width * width, element_bytes)
        delta = op.matrix(tape, whole.elements[0], element_bytes)
        scaled = op.matrix(tape, whole.elements[0], element_bytes)
        total = op.matrix(tape, whole.elements[0], element_bytes)
        del identity, delta, scaled, total

    def base(self, x: Tensor, role: str, out: int) -> Tensor:
        """The linear itself: plain, or 4-bit and dequantized."""
        recipe, tape = self.recipe, self.tape
        elements = width_of(x) * out
        if not recipe.four_bit:
            return op.linear(tape, x, self.weight(role, elements), per_token(out))
        kept = x.element_bytes
        x = op.cast(tape, x, recipe.compute_bytes)
        result = op.dequantized(
            tape,
            x,
            per_token(out),
            elements=elements,
            scales=elements // 64 * 4 if recipe.nested_scales else 0,
            keeps_input=recipe.keeps_inputs,
            copies=recipe.four_bit_copies,
        )
        return op.cast(tape, result, kept)

    def adapted_stack(self, x: Tensor, role: str, elements: int, out: int, *, experts: int, chosen: int) -> Tensor:
        """Adapters of a parameter: their product is added to the whole stack, and the sum is kept for backward."""
        recipe, tape = self.recipe, self.tape
        width = recipe.adapter_bytes
        a = self.weight(f"{role}.A", recipe.rank * experts * width_of(x) // chosen, element_bytes=width, trains=True)
        b = self.weight(f"{role}.B", recipe.rank * experts * out // chosen, element_bytes=width, trains=True)
        made = tape.node([a, b], [Out(gradient(p.elements * width)) for p in (a, b)])
        delta = op.scale(tape, tape.new(constant(elements), width, made))
        delta = op.cast(tape, delta, recipe.compute_bytes if recipe.four_bit else recipe.weight_bytes)
        unpacked = op.matrix(tape, elements, recipe.compute_bytes) if recipe.four_bit else None
        whole = op.shift(tape, delta)
        del unpacked, delta
        return op.matmul(tape, op.cast(tape, x, whole.element_bytes), whole, per_token(out))


def width_of(x: Tensor) -> int:
    """Elements per token. [elements]"""
    return x.elements[1]
