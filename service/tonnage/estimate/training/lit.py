"""
litgpt's layer: one fused projection of queries, keys and values, adapters on its parts, keys and values repeated.

Source:
    Lightning-AI/litgpt@4571b2f2 litgpt/model.py CausalSelfAttention, apply_rope; litgpt/lora.py LoRAQKVLinear (zero_pad:
    index_copy keeps the adapter's output), LoRALinear
"""

from msgspec.structs import replace

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.eager import Block
from tonnage.estimate.training.tape import Tensor, per_token
from tonnage.spec.model import Attention, Mlp


class LitBlock(Block):
    """A layer as litgpt writes it."""

    def _queries_keys_values(self, x: Tensor, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
        tape, heads, groups = self.tape, attention.num_attention_heads, attention.num_key_value_heads
        width, kv_width = heads * attention.head_dim, groups * attention.head_dim
        qkv = self._projected(x, width, kv_width)
        q, k, v = op.split(tape, qkv, per_token(width), per_token(kv_width), per_token(kv_width))
        if heads != groups:
            k, v = op.repeat(tape, k, heads // groups), op.repeat(tape, v, heads // groups)
            if groups > 1:
                q = op.copy(tape, q)
        return q, k, v

    def _projected(self, x: Tensor, width: int, kv_width: int) -> Tensor:
        """The fused product, and adapters on those of its parts that have one."""
        tape, recipe = self.tape, self.recipe
        pretrained = self.base(x, "qkv", width + 2 * kv_width)
        sizes = {"q": width, "k": kv_width, "v": kv_width}
        adapted = [sizes[role] for role in sizes if role in recipe.adapted or "qkv" in recipe.adapted]
        if not adapted:
            return pretrained
        dropped = op.dropout(tape, x, active=recipe.dropout)
        rank, element_bytes = recipe.rank * len(adapted), recipe.adapter_bytes
        a = self.weight("qkv.A", rank * self.hidden, element_bytes=element_bytes, trains=True)
        b = self.weight("qkv.B", recipe.rank * sum(adapted), element_bytes=element_bytes, trains=True)
        low = op.linear(tape, dropped, a, per_token(rank))
        pieces = op.linear(tape, low, b, per_token(sum(adapted)))
        if len(adapted) < len(sizes):
            pieces = self._zero_padded(op.copy(tape, pieces), width + 2 * kv_width)
        return op.add(tape, pretrained, op.scale(tape, pieces))

    def _zero_padded(self, pieces: Tensor, width: int) -> Tensor:
        tape = self.tape
        zeros = tape.new(per_token(width), pieces.element_bytes)
        placed = op.placed(tape, pieces, per_token(width))
        del zeros
        return placed

    def _inner(self, x: Tensor, mlp: Mlp) -> Tensor:
        """Gate and up are modules of their own whatever the checkpoint fuses."""
        return super()._inner(x, replace(mlp, fused_gate_up=False))

    def project(self, x: Tensor, role: str, out: int) -> Tensor:
        """A linear with its adapter, by the name it has where the checkpoint fuses it."""
        fused = role in ("gate", "up") and "gate_up" in self.recipe.adapted and role not in self.recipe.adapted
        return self._adapted(x, role, out) if fused else super().project(x, role, out)

    def _rotated(self, q: Tensor, k: Tensor, attention: Attention) -> tuple[Tensor, Tensor]:
        turned = attention.rotary_dim / attention.head_dim if attention.rotary_dim else 1.0
        return self._rotated_part(q, turned), self._rotated_part(k, turned)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attention: Attention) -> tuple[Tensor, Tensor | None]:
        """The kernel, whose output is copied into the layout of the projection."""
        heads, head_dim = attention.num_attention_heads, attention.head_dim
        out = op.flash_attention(self.tape, q, k, v, heads=heads, head_dim=head_dim)
        return op.copy(self.tape, out), None
