"""
One decoder layer as Hugging Face's classes write it, on the tape.

The lines mirror the order of the original: what a local variable holds, and for how long, decides the peak.

Source:
    huggingface/transformers@v5.24.0 src/transformers/models/{llama,qwen3,gemma2,phi,phi3,gpt_neox,olmo2}/modeling_*.py,
    integrations/sdpa_attention.py; huggingface/peft@v0.21.2 src/peft/tuners/lora/layer.py Linear.forward, bnb.py
    Linear4bit.forward, variants.py DoraLinearVariant
"""

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.latent import latent_queries_keys_values
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.recurrent import recurrent_mix
from tonnage.estimate.training.tape import Out, Parameter, Tape, Tensor, constant, gradient, per_token
from tonnage.spec.model import Attention, Layer, Mlp, Model, Moe


class Block:
    """A layer's forward pass; calling it again, as checkpointing does, uses the same weights."""

    def __init__(self, tape: Tape, layer: Layer, model: Model, recipe: Recipe) -> None:
        self.tape = tape
        self.layer = layer
        self.hidden = model.hidden_size
        self.norm_kind = norm_kind(layer, model)
        self.narrow_softmax = model.model_type == "gpt2"
        self.rotates_wide = model.model_type in _WIDE
        self.recipe = recipe
        self.drops_stream = _any_positive(model, _STREAM_DROPOUTS)
        self.drops_scores = _any_positive(model, _SCORE_DROPOUTS)
        self.weights: dict[str, Parameter] = {}

    def __call__(self, x: Tensor) -> Tensor:
        """The block's output for its input."""
        if self.layer.parallel:
            return self._parallel(x)
        if self.layer.post_norm:
            return self._normed_after(x)
        return self._sequential(x)

    def _sequential(self, x: Tensor) -> Tensor:
        if self.layer.attention is None and self.layer.recurrent is None:
            return self._fed(x, wrapped=False)
        wrapped = self.layer.norms >= 4
        residual = x
        h = self.norm(x, "1")
        h, weights = self.mix(h)
        h = op.dropout(self.tape, h, active=self.drops_stream)
        if wrapped:
            h = self.norm(h, "2")
        h = op.add(self.tape, residual, h)
        if self.layer.mlp is not None or self.layer.moe is not None:
            del residual
            h = self._fed(h, wrapped=wrapped)
        del weights
        return h

    def _fed(self, x: Tensor, *, wrapped: bool) -> Tensor:
        residual = h = x
        del x
        h = self.norm(h, "3")
        h = self.feed(h)
        h = op.dropout(self.tape, h, active=self.drops_stream)
        if wrapped:
            h = self.norm(h, "4")
        return op.add(self.tape, residual, h)

    def _normed_after(self, x: Tensor) -> Tensor:
        residual = x
        h, weights = self.mix(x)
        h = self.norm(h, "1")
        h = op.add(self.tape, residual, h)
        residual = h
        h = self.feed(h)
        h = self.norm(h, "2")
        h = op.add(self.tape, residual, h)
        del weights
        return h

    def _parallel(self, x: Tensor) -> Tensor:
        first = self.norm(x, "1")
        mixed, weights = self.mix(first)
        second = self.norm(x, "2") if self.layer.norms > 1 else first
        fed = self.feed(second)
        h = op.add(self.tape, op.add(self.tape, mixed, fed), x)
        del weights
        return h

    def drop_casts(self) -> None:
        """The end of an autocast region, for this block's weights."""
        for weight in self.weights.values():
            weight.cast = None

    # ---- parts ----

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
        return self._dora(x, role, _width(x), out) if self.recipe.dora else self._adapted(x, role, out)

    def _carries(self, role: str) -> bool:
        """Whether a linear has an adapter; one on a part of a fused matrix works on the whole."""
        adapted = self.recipe.adapted
        return role in adapted or (role == "qkv" and not adapted.isdisjoint(("q", "k", "v")))

    def _scaled(self, x: Tensor, role: str, out: int) -> Tensor:
        """IA3: a vector over the output, over the input of the feed-forward's last linear."""
        tape, width = self.tape, self.recipe.adapter_bytes
        if role == "down":
            kept = x.element_bytes
            scale = self.weight(f"{role}.scale", _width(x), element_bytes=width, trains=True)
            return self.base(op.cast(tape, op.weighted(tape, x, scale), kept), role, out)
        result = self.base(x, role, out)
        scale = self.weight(f"{role}.scale", out, element_bytes=width, trains=True)
        return op.cast(tape, op.weighted(tape, result, scale), result.element_bytes)

    def _adapted(self, x: Tensor, role: str, out: int) -> Tensor:
        recipe, tape, width = self.recipe, self.tape, _width(x)
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
        elements = _width(x) * out
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

    # ---- attention ----

    def mix(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The layer's attention, with the attention matrix where the eager path returns it."""
        attention, recurrent = self.layer.attention, self.layer.recurrent
        if recurrent is not None:
            mixed = recurrent_mix(self, x, recurrent)
            if attention is None:
                return mixed, None
            attended, weights = self._attention(x, attention)
            return op.add(self.tape, mixed, attended), weights
        if attention is None:
            return op.negate(self.tape, x), None
        return self._attention(x, attention)

    def _attention(self, x: Tensor, attention: Attention) -> tuple[Tensor, Tensor | None]:
        heads, head_dim = attention.num_attention_heads, attention.head_dim
        if attention.kind == "mla":
            q, k, v = latent_queries_keys_values(self, x, attention)
        else:
            q, k, v = self._queries_keys_values(x, attention)
        if attention.rotary in ("rope", "partial") and attention.kind != "mla":
            q, k = self._rotated(q, k, attention)
        out, weights = self.attend(q, k, v, attention)
        out = op.view(out, per_token(heads * (attention.v_head_dim or head_dim)))
        return self.project(out, "o", self.hidden), weights

    def _queries_keys_values(self, x: Tensor, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        width = attention.num_attention_heads * attention.head_dim
        kv_width = attention.num_key_value_heads * attention.head_dim
        if attention.fused_qkv:
            qkv = self.project(x, "qkv", width + 2 * kv_width)
            return self._pieces(qkv, (width, kv_width, kv_width), attention)
        q = self.project(x, "q", width)
        if attention.qk_norm == "full":
            q = self.norm(q, "q", elements=width)
        elif attention.qk_norm == "head":
            q = self.norm(q, "q", elements=attention.head_dim, rows=attention.num_attention_heads)
        k = self.project(x, "k", kv_width)
        if attention.qk_norm == "full":
            k = self.norm(k, "k", elements=kv_width)
        elif attention.qk_norm == "head":
            k = self.norm(k, "k", elements=attention.head_dim, rows=attention.num_key_value_heads)
        v = self.project(x, "v", kv_width)
        return q, k, v

    def _pieces(self, qkv: Tensor, widths: tuple[int, int, int], attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        forms = [per_token(width) for width in widths]
        if attention.rotary == "partial" or attention.rotary in ("learned", "alibi"):
            q, k, v = op.split(self.tape, qkv, *forms)
        else:
            q, k, v = (op.part(self.tape, qkv, form) for form in forms)
        return q, k, v

    def _rotated(self, q: Tensor, k: Tensor, attention: Attention) -> tuple[Tensor, Tensor]:
        if attention.rope_concat:
            turned = attention.rotary_dim / attention.head_dim
            return self._rotated_part(q, turned), self._rotated_part(k, turned)
        if self.rotates_wide:
            return self._rotated_wide(q, k)
        rotated = self._rotate(q)
        return rotated, self._rotate(k)

    def _rotated_wide(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Cohere rotates in fp32."""
        tape, kept = self.tape, q.element_bytes
        q, k = op.cast(tape, q, 4), op.cast(tape, k, 4)
        q, k = self._rotate(q), self._rotate(k)
        q = op.cast(tape, q, kept)
        return q, op.cast(tape, k, kept)

    def _rotated_part(self, x: Tensor, fraction: float) -> Tensor:
        turned = int(_width(x) * fraction)
        rest = _width(x) - turned
        moving = op.part(self.tape, x, per_token(turned))
        still = op.part(self.tape, x, per_token(rest))
        return op.concatenate(self.tape, self._rotate(moving), still)

    def _rotate(self, x: Tensor) -> Tensor:
        tape, width = self.tape, self.stream_bytes
        return op.add(tape, op.turn(tape, x, width), op.turn(tape, self._half_turned(x), width))

    def _half_turned(self, x: Tensor) -> Tensor:
        tape, half = self.tape, per_token(_width(x) // 2)
        first, second = op.part(tape, x, half), op.part(tape, x, half)
        return op.concatenate(tape, op.negate(tape, second), first)

    @property
    def stream_bytes(self) -> int:
        """Width of the residual stream, which is that of the embedding. [bytes]"""
        return self.recipe.norm_bytes

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attention: Attention) -> tuple[Tensor, Tensor | None]:
        """The kernel, or the operators of the eager path."""
        recipe, tape = self.recipe, self.tape
        heads, head_dim = attention.num_attention_heads, attention.head_dim
        half = recipe.autocast or q.element_bytes < 4
        if recipe.attention == "eager" or (recipe.attention == "flash" and not half and _width(k) != _width(q)):
            return self._eager(q, k, v, attention)
        if recipe.autocast:
            q, k, v = (op.cast(tape, t, recipe.autocast) for t in (q, k, v))
        masked = recipe.attention == "masked" or (recipe.masks_windows and attention.kind == "sliding")
        if not masked and half and attention.v_head_dim == head_dim and attention.kind != "mla":
            if recipe.expands_keys and _width(k) != _width(q):
                copies = heads // attention.num_key_value_heads
                k, v = op.repeat(tape, k, copies), op.repeat(tape, v, copies)
            out = op.flash_attention(tape, q, k, v, heads=heads, head_dim=head_dim)
        else:
            copies = 1 if attention.kind == "mla" else heads // attention.num_key_value_heads
            if copies > 1:
                k, v = op.repeat(tape, k, copies), op.repeat(tape, v, copies)
            mask = tape.new(op.pairs(1), q.element_bytes) if masked else None
            out = op.efficient_attention(tape, q, k, v, heads=heads, value_width=attention.v_head_dim, mask=mask)
        return (op.copy(tape, out) if attention.rope_concat else out), None

    def _eager(self, q: Tensor, k: Tensor, v: Tensor, attention: Attention) -> tuple[Tensor, Tensor]:
        tape, heads = self.tape, attention.num_attention_heads
        copies = 1 if attention.kind == "mla" else heads // attention.num_key_value_heads
        laid_out = attention.rope_concat or self.recipe.single
        if copies > 1:
            k, v = op.repeat(tape, k, copies), op.repeat(tape, v, copies)
        weights = self._scores(q, k, heads, laid_out, copies)
        if attention.softcap:
            weights = op.scale(tape, weights)
            weights = op.from_result(tape, weights)
            weights = op.scale(tape, weights)
        weights = op.shift(tape, weights)
        width = q.element_bytes if self.narrow_softmax else 4
        weights = op.cast(tape, op.softmax(tape, weights, element_bytes=width), q.element_bytes)
        weights = op.dropout(tape, weights, active=self.drops_scores)
        rows = v if copies > 1 or self.recipe.single else op.copy(tape, v)
        out = op.matmul(tape, weights, rows, per_token(heads * attention.v_head_dim))
        del rows
        return op.copy(tape, out), weights

    def _scores(self, q: Tensor, k: Tensor, heads: int, laid_out: bool, copies: int) -> Tensor:
        tape = self.tape
        left = q if laid_out else op.copy(tape, q)
        right = k if copies > 1 or laid_out else op.copy(tape, k)
        product = op.matmul(tape, left, right, op.pairs(heads))
        del left, right
        return op.scale(tape, product)

    # ---- feed-forward ----

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
        gate, up = op.split(tape, both, per_token(width), per_token(width))
        return op.multiply(tape, op.activation(tape, gate), up)

    def _grouped(self, x: Tensor, role: str, elements: int, out: int) -> Tensor:
        """One product for all experts; a quantized stack is dequantized whole."""
        recipe, tape = self.recipe, self.tape
        if not recipe.adapted.isdisjoint((role, *_FUSED_EXPERTS.get(role, ()))):
            return self._adapted_stack(x, role, elements, out)
        if not recipe.four_bit:
            return op.grouped(tape, x, self.weight(role, elements), per_token(out))
        x = op.cast(tape, x, recipe.compute_bytes)
        return op.dequantized(
            tape, x, per_token(out), elements=elements, scales=0, keeps_input=recipe.keeps_inputs, copies=1
        )

    def _adapted_stack(self, x: Tensor, role: str, elements: int, out: int) -> Tensor:
        """Adapters of a parameter: their product is added to the whole stack, and the sum is kept for backward."""
        recipe, tape = self.recipe, self.tape
        experts = self.layer.moe.num_experts if self.layer.moe is not None else 1
        width, chosen = recipe.adapter_bytes, max(1, self.layer.moe.num_experts_per_tok if self.layer.moe else 1)
        a = self.weight(f"{role}.A", recipe.rank * experts * _width(x) // chosen, element_bytes=width, trains=True)
        b = self.weight(f"{role}.B", recipe.rank * experts * out // chosen, element_bytes=width, trains=True)
        made = tape.node([a, b], [Out(gradient(p.elements * width)) for p in (a, b)])
        delta = op.scale(tape, tape.new(constant(elements), width, made))
        delta = op.cast(tape, delta, recipe.compute_bytes if recipe.four_bit else recipe.weight_bytes)
        unpacked = op.matrix(tape, elements, recipe.compute_bytes) if recipe.four_bit else None
        whole = op.shift(tape, delta)
        del unpacked, delta
        return op.matmul(tape, op.cast(tape, x, whole.element_bytes), whole, per_token(out))

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
            return op.multiply(tape, up, op.activation(tape, gate))
        return op.multiply(tape, op.activation(tape, self.project(x, "gate", width)), self.project(x, "up", width))

    def _activated(self, x: Tensor, name: str) -> Tensor:
        """`gelu_new` in Python operators, everything else in one kernel; relu keeps its result."""
        if name == "relu":
            return op.from_result(self.tape, x)
        if name != "gelu_new" or self.recipe.code != "transformers":
            return op.activation(self.tape, x)
        tape = self.tape
        cube = op.scale(tape, op.power(tape, x))
        inner = op.from_result(tape, op.scale(tape, op.add(tape, x, cube)))
        del cube
        return op.multiply(tape, op.scale(tape, x), op.shift(tape, inner))


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
    return "layer_fp32" if model.model_type in _WIDE and layer.norm_kind == "layer" else layer.norm_kind


def _layer_norm_in_python(tape: Tape, x: Tensor, weight: Parameter) -> Tensor:
    kept = x.element_bytes
    h = op.cast(tape, x, 4)
    average = op.mean(tape, h)
    variance = op.mean(tape, op.power(tape, op.minus(tape, h, average)))
    h = op.multiply(tape, op.minus(tape, h, average), op.from_result(tape, op.shift(tape, variance)))
    return op.cast(tape, op.weighted(tape, h, weight, derived=True), kept)


_WIDE = frozenset({"cohere", "cohere2", "cohere2_moe"})
_FUSED_EXPERTS = {"expert_gate_up": ("expert_gate", "expert_up")}
_STREAM_DROPOUTS = ("resid_pdrop", "residual_dropout", "hidden_dropout", "dropout", "hidden_dropout_prob")
_SCORE_DROPOUTS = ("attn_pdrop", "attention_dropout", "attention_probs_dropout_prob")


def _any_positive(model: Model, keys: tuple[str, ...]) -> bool:
    return any(isinstance(p := model.config.get(key), float) and p > 0 for key in keys)


def _width(x: Tensor) -> int:
    """Elements per token. [elements]"""
    return x.elements[1]
