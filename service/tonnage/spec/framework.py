"""
What a training framework does by itself, by version: defaults of omitted fields and the code it runs.

Records stand in `catalog/data/frameworks/<framework>.toml`. A field of the card that is stated always wins; what is
omitted takes the value here and is listed in `assumptions`.
"""

from typing import Literal

from msgspec import Struct, field

from tonnage.spec.engine import Release

LossPath = Literal[
    "causal_upcast", "causal_shifted", "causal_held", "causal_bf16", "fabric", "chunked_float", "chunked_compiled", "full_eager",
    "full_compiled", "full_compiled_online", "chunked_titan", "chunked_hidden", "fused_linear", "fused_by_free_memory",
    "vocab_parallel",
    "vocab_parallel_eager",
]  # fmt: skip
"""How logits become a loss: see the functions of `laws/loss.py`."""


class Defaults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values of the card's own fields when the card leaves them open."""

    optimizer_implementation: Literal["fused", "foreach", "for_loop"] = "foreach"
    micro_batch_size: int = 1
    sequence_length: int = 2048
    sequence_lengths: Literal["fixed", "varying"] = "varying"
    packed: bool = False
    gradient_accumulation_steps: int = 1
    gradient_checkpointing: Literal["none", "selective", "full"] = "none"
    offload_activations: bool = False
    """Where the card does not say how it checkpoints."""
    attn_implementation: str = "sdpa"
    cross_entropy: Literal["full", "chunked", "fused_linear"] = "full"
    compile: bool = False
    sharding: Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp", "distributed_optimizer"] = "ddp"
    """With more than one data-parallel rank; with one it is none."""
    weight_dtype: str | None = None
    """None: the checkpoint's own."""
    compute_dtype: str | None = None
    """None: that of the weights."""
    lora_rank: int = 8
    virtual_tokens: int = 20
    """Of prompts and prefixes, which PEFT has no default for: its documentation's examples. [tokens]"""
    lora_dropout: float = 0.0
    lora_target_modules: tuple[str, ...] = ()
    """Empty: PEFT's choice for the model type."""


class Losses(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Code path of each value of `cross_entropy`."""

    full: LossPath = "causal_upcast"
    chunked: LossPath = "chunked_hidden"
    fused_linear: LossPath = "fused_linear"
    compiled: LossPath | None = None
    """Of `full` under compile; None: the same."""
    compiled_chunked: LossPath | None = None


class WithoutBf16(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a framework does on a card that does not compute in bf16."""

    full_weight_dtype: str | None = None
    """Of weights that train, where the card does not say; None: as elsewhere."""
    fp32_stream: tuple[str, ...] = ()
    """Model types whose layers compute in fp32 beside 16-bit weights, because fp16 would overflow."""


class FrameworkRelease(Release, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One range of versions of a framework."""

    optimizer: str = "adamw"
    """Catalogue id of the default optimizer."""
    defaults: Defaults = Defaults()
    losses: Losses = Losses()
    without_bf16: WithoutBf16 = WithoutBf16()
    libraries: dict[str, str] = field(default_factory=dict)
    """Versions of torch, transformers, peft, bitsandbytes that were current; the card's `library_versions` win."""
    code: Literal["transformers", "litgpt", "torchtune", "torchtitan", "megatron"] = "transformers"
    """Whose model classes run."""
    norm: Literal["python", "fused"] = "python"
    """RMSNorm as separate operators, or one kernel."""
    mixed_precision: Literal["autocast", "when_dtypes_differ", "never"] = "when_dtypes_differ"
    """Whether forward runs under torch.autocast in 16 bit."""
    adapter_dtype: Literal["peft", "base", "fp32"] = "peft"
    """peft: by PEFT's version; base: as the weights."""
    four_bit_upcast: bool = True
    """prepare_model_for_kbit_training leaves norms, embeddings and head in fp32."""
    quantizes_stacked_experts: bool = False
    """Experts that are one tensor are quantized on loading too; otherwise bitsandbytes replaces linears only."""
    tables_upcast_at_load: bool = False
    """Embedding and head pass through fp32 while the model is loaded."""
    four_bit_casts: bool = False
    """After that adapters, embeddings and head go back to 16 bit; norms, and so the stream, stay fp32."""
    four_bit_copies: int = 1
    """16-bit copies of one matrix while it is dequantized (2: through another 16-bit type). [unitless]"""
    double_quantized: bool = False
    """4-bit bases are double-quantized whatever the card's format says."""
    stale_fraction: float = 0.0
    """Tokens of the previous micro-batch still held, as a part of the current one's (a loop that keeps outputs)."""
    unties_head: bool = False
    """The head is a tensor of its own even where the checkpoint ties it."""
    expands_keys: bool = False
    """Keys and values are repeated for all query heads."""
    reentrant: bool = False
    """use_reentrant of torch.utils.checkpoint."""
    selective: Literal["operators", "attention", "sublayer"] = "operators"
    """What `gradient_checkpointing = selective` keeps: listed operators, all but core attention, all but the MLP."""
    fsdp: Literal["fsdp1", "fsdp1_flat", "fsdp2"] = "fsdp1"
    """fsdp1_flat: one flat parameter per block with frozen weights, whose gradients are allocated too."""
    embedding_resharded: bool = False
    """The embedding has its own unit and is resharded after forward."""
    fp32_embedding_states: bool = False
    """8-bit optimizers keep fp32 states for embeddings (an override of the Hugging Face Trainer)."""
    offload_stash: int = 2
    """Layers whose kept tensors stay on the GPU when activations are offloaded. [layers]"""
    lengths: Literal["capped", "dropped", "bucketed", "longest_first"] = "capped"
    """What becomes of longer samples: cut at the cap, dropped, batched by length, or sorted longest first."""
    fills_caps: bool = False
    """Its published figures are of data whose samples reach any cap, so that a stated length is taken to be reached."""
    packs_whole: bool = False
    """Packing puts whole samples into batches up to the length and cuts none: lengths still vary."""
    reserved_ratio: float = 0.0
    """Measured ratio of reserved to allocated of this framework's sharded runs; 0: by regime."""
    freezes_towers: bool = False
    """Vision towers and projectors do not train unless told to."""
    drops_autocast_under_deepspeed: bool = True


RELEASE = FrameworkRelease
