"""
What an architecture is: layers as they differ, tensors as they are stored, in Hugging Face names.

A `Model` is made once per config by `tonnage.architecture` and shared by every estimate. Every law
that needs a dimension finds it here; nothing below this module reads a config.json.
"""

from typing import Any, Literal

from msgspec import Struct

Component = Literal[
    "embedding", "lm_head", "attention", "mlp", "router", "routed_experts", "shared_experts", "norm",
    "ssm", "vision", "projector", "audio", "mtp", "other",
]  # fmt: skip

Shard = Literal["column", "row", "kv", "vocab", "replicated", "expert_column", "expert_row"]
"""
How tensor parallelism cuts a tensor:
column: out_features / tp; row: in_features / tp; kv: out_features by KV head, heads replicated when
tp > KV heads (`Tensor.heads` counts them); vocab: rows padded to 64 and cut; replicated: whole on every rank;
expert_*: `Tensor.experts` of them; by tp each is cut as column or row, by ep whole experts are dealt out.
A fused q, k, v matrix is `column` with `kv_out_features` of its rows cut as `kv` over `heads`.
"""


class Tensor(Struct, frozen=True, kw_only=True):
    """One stored tensor, or `experts` identical ones."""

    name: str
    """Name below the layer (or below the model when outside layers), such as "self_attn.q_proj.weight"."""
    component: Component
    out_features: int
    """Rows of a matrix, length of a vector. [elements]"""
    in_features: int = 1
    """Columns of a matrix; 1 for a vector. For convolutions the product of the rest. [elements]"""
    experts: int = 1
    """Identical copies: the experts of an MoE matrix, or the layers of a tower outside the decoder. [unitless]"""
    shard: Shard = "replicated"
    heads: int = 0
    """KV heads of a `kv` tensor or of the `kv_out_features` of a fused one. [unitless]"""
    kv_out_features: int = 0
    """Rows of a fused q, k, v matrix that belong to keys and values. [elements]"""
    role: str = ""
    """What it does, whatever its name: q, k, v, o, qkv, gate, up, down, gate_up, router, norm, in_proj, conv..."""
    linear: bool = False
    """A matmul weight of an nn.Linear (or expert matrix): what weight formats may quantize and adapters may target."""
    fixed_dtype: str | None = None
    """Kept in this dtype whatever the model's is (A_log, router corrections)."""
    parameter: bool = True
    """False for a buffer that is stored but not trained or counted."""

    @property
    def elements(self) -> int:
        """Elements of all copies. [elements]"""
        return self.out_features * self.in_features * self.experts


class Attention(Struct, frozen=True, kw_only=True):
    """Attention of one layer."""

    kind: Literal["full", "sliding", "chunked", "mla", "cross", "encoder"]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None
    """Window of a sliding or chunk of a chunked layer. [tokens]"""
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    qk_nope_head_dim: int | None = None
    index_head_dim: int | None = None
    """Sparse-attention indexer (DeepSeek V3.2 DSA): width of its key per token; None without one."""
    index_n_heads: int | None = None
    index_topk: int | None = None
    kv_shared: bool = False
    """Reads the cache of an earlier layer and keeps none (Gemma 3n/4)."""
    k_eq_v: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    qkv_bias: bool = False
    fused_qkv: bool = False
    """q, k, v come from one stored matrix (Phi-3, GPT-NeoX, Qwen-1)."""
    output_gate: bool = False
    """q projection is twice as wide: half is a gate (Qwen3-Next, Qwen3.5)."""
    softcap: bool = False
    rotary: Literal["none", "rope", "partial", "alibi", "learned"] = "rope"
    rotary_dim: int = 0
    rope_concat: bool = False
    """Rotary output is joined by `cat` (Phi, StableLM, GPT-NeoX, GLM): the attention input is copied."""
    sinks: bool = False
    compress_ratio: int = 0
    """DeepSeek-V4: tokens per compressed cache entry, 0 without compression."""


class Recurrent(Struct, frozen=True, kw_only=True):
    """A layer whose cache is a state per sequence, not per token."""

    kind: Literal["mamba1", "mamba2", "gated_delta", "kda", "lightning", "short_conv", "rwkv"]
    conv_channels: int
    """Channels of the causal convolution (all its parts), 0 without one. [elements]"""
    conv_kernel: int
    state_heads: int
    state_rows: int
    state_columns: int
    """SSM state is state_heads x state_rows x state_columns. [elements]"""
    n_groups: int = 1
    num_key_heads: int = 0
    key_head_dim: int = 0
    num_value_heads: int = 0
    value_head_dim: int = 0
    inner_size: int = 0
    """Width of the layer's inner stream (mamba d_inner, GDN value width). [elements]"""
    chunk_size: int = 0


class Mlp(Struct, frozen=True, kw_only=True):
    """Dense feed-forward of one layer."""

    intermediate_size: int
    """Width of one half when gated. [elements]"""
    gated: bool
    activation: str = "silu"
    fused_gate_up: bool = False


class Moe(Struct, frozen=True, kw_only=True):
    """Mixture of experts of one layer."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    gated: bool = True
    shared_intermediate_size: int = 0
    """Width of all shared experts together, 0 without. [elements]"""
    shared_gate: bool = False
    hidden_size: int = 0
    """Width the experts work on when not the model's (latent MoE); 0: the model's. [elements]"""


class Layer(Struct, frozen=True, kw_only=True):
    """One kind of decoder (or encoder) layer. Hybrid layers may have attention and recurrent parts at once."""

    attention: Attention | None = None
    cross_attention: Attention | None = None
    recurrent: Recurrent | None = None
    mlp: Mlp | None = None
    moe: Moe | None = None
    norms: int = 2
    """Norms over the hidden size in the layer. [unitless]"""
    norm_kind: Literal["rms", "rms_fp32", "layer", "none"] = "rms"
    """rms_fp32 multiplies the weight in fp32 (Gemma, OLMo-2/3)."""
    post_norm: bool = False
    parallel: bool = False
    """Attention and MLP read the same normed input (GPT-J, Phi, Falcon, Cohere)."""
    role: Literal["decoder", "encoder"] = "decoder"
    tensors: tuple[Tensor, ...] = ()

    @property
    def elements(self) -> int:
        """Parameters of the layer. [unitless]"""
        return sum(t.elements for t in self.tensors if t.parameter)


class LayerGroup(Struct, frozen=True):
    """Identical layers and where they stand."""

    layer: Layer
    indices: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many layers. [unitless]"""
        return len(self.indices)


class Vision(Struct, frozen=True, kw_only=True):
    """The vision tower, as far as memory needs it. Its tensors stand in `Model.outside` as vision and projector."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    patch_size: int
    image_size: int = 0
    gated: bool = False
    temporal_patch_size: int = 1
    spatial_merge_size: int = 1
    tokens_per_image: int = 0
    """Tokens one largest image becomes, 0 when not known. [tokens]"""
    output_hidden_size: int = 0
    deepstack_levels: int = 0
    unread_layers: int = 0
    """Last layers whose output nothing reads (vision_feature_layer): they run, but backward has nothing to do there."""
    layer: Layer | None = None
    """One of its layers."""
    config: dict[str, Any] = {}


class ClassCode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the model's class is written where its config does not say: what a training step allocates depends on it."""

    attention_written_out: bool = False
    """Only operators of its own, no scaled_dot_product_attention (BLOOM, MPT)."""
    one_key_head: bool = False
    """One key head for all queries, which no attention kernel takes (Falcon)."""
    softmax_as_wide_as_scores: bool = False
    """Eager attention does not turn scores to fp32 (GPT-2)."""
    attends_with_softmax: bool = False
    """Eager attention drops out and multiplies what the softmax gave, without turning it to the width of queries (BERT)."""
    drops_by_default: bool = False
    """Dropout of the stream and of attention is 0.1 where the config does not say."""
    layer_norm_in_python: bool = False
    """LayerNorm and rotation written out in fp32 (Cohere)."""
    clamped_experts: bool = False
    """Experts clamp both halves and gate in operators of their own (gpt-oss)."""
    causal_mask_buffer: bool = False
    """A mask of all positions is a buffer (GPT-BigCode)."""
    dense_score_head: bool = False
    """The classification head is a dense layer and one over the labels, both PEFT's modules to save (RoBERTa, DistilBERT)."""
    own_code: bool = False
    """The checkpoint brings its classes (Qwen-1)."""
    lora_targets: tuple[str, ...] = ("q_proj", "v_proj")
    """Modules that PEFT adapts when not told: huggingface/peft@v0.21.2 src/peft/utils/constants.py."""
    ia3_targets: tuple[str, ...] = ()
    """Modules that IA3 scales when not told (there too), where they are not keys, values and the feed-forward's last."""


class Model(Struct, frozen=True, kw_only=True):
    """One architecture. With `layers` empty only `parameters_total` is known (a bare count)."""

    __hash__ = object.__hash__  # made once per config: results are remembered by identity, not by its content

    id: str | None = None
    revision: str | None = None
    family: str = "unknown"
    model_type: str = "unknown"
    dtype: str = "bf16"
    """dtype of the checkpoint: bf16, fp16 or fp32."""
    parameters_total: int
    parameters_active: int | None = None
    trainable_parameters: int | None = None
    hidden_size: int = 0
    vocab_size: int = 0
    max_position_embeddings: int = 0
    tie_word_embeddings: bool = False
    layers: tuple[LayerGroup, ...] = ()
    """Decoder layers, and encoder layers with role "encoder"; indices run per role."""
    outside: tuple[Tensor, ...] = ()
    """Tensors outside layers. First pipeline stage: embedding, vision, projector, audio; last: final norm, lm_head, mtp."""
    extra_checkpoint: tuple[Tensor, ...] = ()
    """Stored in the checkpoint but not part of the model as counted (MTP layers an engine skips, stored tied heads)."""
    mtp_layers: int = 0
    vision: Vision | None = None
    rope_scaling: dict[str, Any] | None = None
    quantization_config: dict[str, Any] | None = None
    weight_format: str | None = None
    """Catalogue id of the format the checkpoint is stored in, None: plain `dtype`."""
    code: ClassCode = ClassCode()
    embedding_multiplier_copies: int = 0
    max_source_positions: int = 0
    """Encoder length of an encoder-decoder model, 0 otherwise. [tokens]"""
    config: dict[str, Any] = {}
    """The config as given (text and vision keys as nested), for rules that name a key."""
    source: str = "config"
    trust: Literal["exact", "checked", "recalled", "generic", "count"] = "checked"
    """generic: read by the generic laws, never exact; count: only a parameter count."""
    unknown_fields: tuple[str, ...] = ()
    """Fields of the config that no law understands and that may matter."""
    notes: tuple[str, ...] = ()
    """What a reader of the answer should know of how the architecture was read."""
    licence: str | None = None

    @property
    def num_hidden_layers(self) -> int:
        """Decoder layers. [unitless]"""
        return sum(g.count for g in self.layers if g.layer.role == "decoder")

    @property
    def known(self) -> bool:
        """Whether the architecture is known, not only a count."""
        return bool(self.layers)
