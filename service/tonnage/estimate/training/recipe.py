"""What decides which tensors a step makes, apart from the batch: one record per method and settings."""

from typing import Literal

from msgspec import Struct


class Recipe(Struct, frozen=True, kw_only=True):
    """Widths, adapters and code paths of one run, the key under which a model's step is remembered."""

    trains: bool
    """The base model trains; otherwise it is frozen and adapters do."""
    weight_bytes: int
    """Width of plain weights of the base. [bytes]"""
    norm_bytes: int
    """Width of norms, embedding and head. [bytes]"""
    autocast: int = 0
    """Width that autocast computes in, 0 without. [bytes]"""
    four_bit: bool = False
    """Linears inside layers are dequantized on use."""
    quantized_head: bool = False
    plain_experts: bool = False
    """Stacked experts are not quantized with the linears."""
    stacked_experts: bool = False
    """Quantized experts are one tensor, which a parametrization dequantizes as an ordinary one."""
    compute_bytes: int = 2
    """Width that 4-bit linears compute in. [bytes]"""
    four_bit_copies: int = 1
    keeps_inputs: bool = False
    """4-bit linears keep their input for backward (bitsandbytes before 0.43.2)."""
    nested_scales: bool = False
    adapted: frozenset[str] = frozenset()
    """Roles of the linears that carry an adapter."""
    rank: int = 0
    scales: bool = False
    """Adapters are vectors that scale (IA3), not pairs of matrices."""
    virtual_tokens: int = 0
    """Trained embeddings before the input. [tokens]"""
    adapter_bytes: int = 4
    dropout: bool = False
    dora: bool = False
    saved_modules: frozenset[str] = frozenset()
    """Roles trained in full beside adapters: embed, head."""
    attention: Literal["flash", "masked", "eager"] = "flash"
    kernel: Literal["flash", "sdpa"] = "flash"
    """Which library's kernels: PyTorch's own have conditions that flash-attn has not."""
    masks_windows: bool = False
    """Sliding windows shorter than the sequence need a mask (scaled_dot_product_attention)."""
    single: bool = True
    """One sequence per micro-batch: views where several sequences need copies."""
    norm: Literal["python", "fused"] = "python"
    fused_gate: bool = False
    """Activation and product of a gated feed-forward are one kernel (Liger)."""
    checkpointing: Literal["none", "full", "reentrant", "selective"] = "none"
    accumulates: bool = False
    """Gradients of earlier micro-batches are there already."""
    expands_keys: bool = False
    code: str = "transformers"
    loss: tuple[float, float, float, int] = (10, 4, 12, 4)
    """Bytes per logit: at the end of forward, kept for backward, at the start of backward, flowing gradient."""
    fused_loss: bool = False
    """Head and loss are one kernel."""
    compiled_chunks: bool = False
    """It is compiled with its chunks: a gradient takes the place of its logits, that of the head is added up."""
    scores: bool = False
    """The head gives one number (reward models)."""
    compiled: bool = False
    fp8: bool = False
    every_second: bool = True
    """Selective checkpointing by operator keeps every second product of the block."""
    gradient_bytes: int = 2
    """Width of a layer's gradients before they are sharded. [bytes]"""
    offload_stash: int = 0
    """Layers whose kept tensors stay on the GPU while the others' are on the host; 0: no offload. [layers]"""
    tensor_parallel_size: int = 1
    sequence_parallel: bool = False
    input_gradients: bool = True
    """The embedding's output requires grad though nothing below trains (enable_input_require_grads)."""
