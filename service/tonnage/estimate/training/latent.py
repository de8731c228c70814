"""
Multi-head latent attention on the tape.

Source:
    huggingface/transformers@v5.24.0 src/transformers/models/deepseek_v3/modeling_deepseek_v3.py DeepseekV3Attention
    (expand_kv copies keys; interleaved rotary)
"""

from typing import TYPE_CHECKING

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.tape import Tape, Tensor, per_token
from tonnage.spec.model import Attention

if TYPE_CHECKING:
    from tonnage.estimate.training.eager import Block


def latent_queries_keys_values(block: "Block", x: Tensor, attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys with the shared rotary part, values that are a view of the expanded latent."""
    tape, heads = block.tape, attention.num_attention_heads
    rotary, plain = attention.qk_rope_head_dim or 0, attention.qk_nope_head_dim or 0
    rank, value = attention.kv_lora_rank or 0, attention.v_head_dim
    q = _queries(block, x, attention, heads * (plain + rotary))
    q_pass, q_rot = op.split(tape, q, per_token(heads * plain), per_token(heads * rotary))
    compressed = block.project(x, "kv_a", rank + rotary)
    latent, k_rot = op.split(tape, compressed, per_token(rank), per_token(rotary))
    latent = block.norm(latent, "kv", elements=rank)
    q_rot, k_rot = _interleaved(tape, q_rot, block.stream_bytes), _interleaved(tape, k_rot, block.stream_bytes)
    q = op.concatenate(tape, q_pass, q_rot)
    expanded = block.project(latent, "kv_b", heads * (plain + value))
    k_pass, v = op.split(tape, expanded, per_token(heads * plain), per_token(heads * value))
    k = op.filled(tape, per_token(heads * (plain + rotary)), k_pass, k_rot)
    return q, k, v


def _queries(block: "Block", x: Tensor, attention: Attention, width: int) -> Tensor:
    rank = attention.q_lora_rank
    if rank is None:
        return block.project(x, "q", width)
    low = block.norm(block.project(x, "q_a", rank), "q", elements=rank)
    return block.project(low, "q_b", width)


def _interleaved(tape: Tape, x: Tensor, width: int) -> Tensor:
    """Even and odd elements turned against each other, four products and two sums of half the width."""
    half = per_token(x.elements[1] // 2)
    even, odd = op.part(tape, x, half), op.part(tape, x, half)
    first = op.add(tape, op.turn(tape, even, width), op.turn(tape, odd, width))
    second = op.add(tape, op.turn(tape, odd, width), op.turn(tape, even, width))
    return op.concatenate(tape, first, second)
