"""
One decoder layer as Hugging Face's classes write it, on the tape.

The lines mirror the order of the original: what a local variable holds, and for how long, decides the peak.

Source:
    huggingface/transformers@v5.24.0 src/transformers/models/{llama,qwen3,gemma2,phi,phi3,gpt_neox,olmo2}/modeling_*.py,
    integrations/sdpa_attention.py
"""

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.feeding import FeedForward
from tonnage.estimate.training.latent import latent_queries_keys_values
from tonnage.estimate.training.linears import width_of
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.recurrent import recurrent_mix
from tonnage.estimate.training.tape import Tape, Tensor, per_token
from tonnage.spec.model import Attention, Layer, Model


class Block(FeedForward):
    """A layer's forward pass; calling it again, as checkpointing does, uses the same weights."""

    def __init__(self, tape: Tape, layer: Layer, model: Model, recipe: Recipe) -> None:
        super().__init__(tape, layer, model, recipe)
        self.narrow_softmax = model.code.softmax_as_wide_as_scores or any(
            g.layer.attention is not None and g.layer.attention.sinks for g in model.layers
        )
        self.rotates_wide = model.code.layer_norm_in_python
        self.casts_softmax = not model.code.attends_with_softmax
        self.drops_stream = _drops(model, _STREAM_DROPOUTS)
        self.drops_scores = _drops(model, _SCORE_DROPOUTS)

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
        if self.layer.cross_attention is not None:
            h = self._crossed(h, self.layer.cross_attention)
        if self.layer.mlp is not None or self.layer.moe is not None:
            del residual
            h = self._fed(h, wrapped=wrapped)
        del weights
        return h

    def _crossed(self, x: Tensor, attention: Attention) -> Tensor:
        """Attention to an encoder's output, taken to be as long."""
        h = self.norm(x, "cross")
        h, weights = self._attention(h, attention)
        h = op.dropout(self.tape, h, active=self.drops_stream)
        del weights
        return op.add(self.tape, x, h)

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
        turned = int(width_of(x) * fraction)
        rest = width_of(x) - turned
        moving = op.part(self.tape, x, per_token(turned))
        still = op.part(self.tape, x, per_token(rest))
        return op.concatenate(self.tape, self._rotate(moving), still)

    def _rotate(self, x: Tensor) -> Tensor:
        tape, width = self.tape, self.stream_bytes
        return op.add(tape, op.turn(tape, x, width), op.turn(tape, self._half_turned(x), width))

    def _half_turned(self, x: Tensor) -> Tensor:
        tape, half = self.tape, per_token(width_of(x) // 2)
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
        if recipe.attention == "eager" or (recipe.attention == "flash" and not half and width_of(k) != width_of(q)):
            return self._eager(q, k, v, attention)
        if recipe.autocast:
            q, k, v = (op.cast(tape, t, recipe.autocast) for t in (q, k, v))
        masked = recipe.attention == "masked" or (recipe.masks_windows and attention.kind == "sliding")
        if not masked and half and attention.v_head_dim == head_dim and attention.kind != "mla":
            if recipe.expands_keys and width_of(k) != width_of(q):
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
        if attention.sinks:
            weights = self._beside_sinks(weights)
        width = q.element_bytes if self.narrow_softmax else 4
        weights = op.softmax(tape, weights, element_bytes=width)
        if self.casts_softmax:
            weights = op.cast(tape, weights, q.element_bytes)
        weights = op.dropout(tape, weights, active=self.drops_scores)
        rows = v if copies > 1 or self.recipe.single else op.copy(tape, v)
        out = op.matmul(tape, weights, rows, per_token(heads * attention.v_head_dim))
        del rows
        return op.copy(tape, out), weights

    def _beside_sinks(self, scores: Tensor) -> Tensor:
        """A column for the sink of each head joined on, and the largest score taken off."""
        joined = op.concatenate(self.tape, scores)
        return op.shift(self.tape, joined)

    def _scores(self, q: Tensor, k: Tensor, heads: int, laid_out: bool, copies: int) -> Tensor:
        tape = self.tape
        left = q if laid_out else op.copy(tape, q)
        right = k if copies > 1 or laid_out else op.copy(tape, k)
        product = op.matmul(tape, left, right, op.pairs(heads))
        del left, right
        return op.scale(tape, product)


_STREAM_DROPOUTS = ("resid_pdrop", "residual_dropout", "hidden_dropout", "dropout", "hidden_dropout_prob")
_SCORE_DROPOUTS = ("attn_pdrop", "attention_dropout", "attention_probs_dropout_prob")


def _drops(model: Model, keys: tuple[str, ...]) -> bool:
    stated = [p for key in keys if isinstance(p := model.config.get(key), int | float)]
    return any(p > 0 for p in stated) if stated else model.code.drops_by_default
