"""vLLM's releases: what its defaults are, what its profile run meets and what its budget counts, version by version."""

from typing import Literal

from msgspec import Struct

from tonnage.spec.engine import Release


class BatchTier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Default batch limits of a class of cards, largest first."""

    minimum_device_bytes: int
    """Smallest card of the tier, as NVML reports its total. [bytes]"""
    names: tuple[str, ...] = ()
    """Only cards whose name contains one of these, where the rule goes by name."""
    except_names: tuple[str, ...] = ()
    """Cards whose name contains one of these belong to the next tier."""
    max_num_batched_tokens: int
    max_num_seqs: int


AwqMatmul = Literal["split", "dequantize", "marlin"]


class NonTorch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Increase outside torch that a start-up log calls non-torch; measured constants, see the release's source. [bytes]"""

    single: int
    """One GPU of compute capability 9.0. [bytes]"""
    single_by_capability: dict[str, int] = {}
    """One GPU of a compute capability that has a measurement of its own. [bytes]"""
    single_other: int
    """One GPU of another kind. [bytes]"""
    unaligned_vocabulary: int = 0
    """More where the vocabulary is not a multiple of 16 (Hopper): the unaligned sampler kernel spills. [bytes]"""
    pipeline: int
    """Pipeline ranks without tensor parallelism. [bytes]"""
    tensor_nvlink: dict[str, int]
    """By tensor parallel size over NVLink; larger sizes take the last. [bytes]"""
    tensor_hopper: dict[str, int] = {}
    """The same on compute capability 9.0 and later, from the first size that is listed: more channels. [bytes]"""
    tensor_pcie: int
    """Tensor parallel ranks without NVLink. [bytes]"""
    spread_single: int
    """Half-width of the band of one GPU. [bytes]"""
    spread_tensor: int
    """Half-width of the band of several GPUs. [bytes]"""


class GraphSize(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Constants of the capture law of a release (`laws.cuda_graphs`), fitted to start-up logs."""

    base: int
    """Capture-stream workspaces and the first graph. [bytes]"""
    per_node: int
    """Graph nodes of one layer and one captured size, all modes together. [bytes]"""
    per_size: int = 0
    """Of every captured size whatever the layers. [bytes]"""
    hidden_buffers: float
    """Hidden-sized buffers of the largest captured batch that the graph pool keeps. [unitless]"""
    mlp_buffers: float = 0.0
    """The same of the MLP's width on a rank. [unitless]"""
    expert_buffers: float = 0.0
    """Hidden-sized buffers for every token and expert of it. [unitless]"""
    mixture_of_experts: int = 0
    lora_per_node: int = 0
    """More of a layer and a captured size with adapters: their own kernels. [bytes]"""
    bitsandbytes: int = 0
    recurrent_tuning: int = 0
    """At most, where recurrent layers compile and tune kernels of theirs only when captured. [bytes]"""
    per_reduction: int = 0
    """Of one captured all-reduce without NVLink and custom kernel; measured. [bytes]"""
    estimate_factor: float = 0.0
    """The engine's own estimate over the size this law gives for the V1 runner. [unitless]"""
    v2_estimate_factor: float = 1.0
    """The same for the V2 runner. [unitless]"""
    v2_factor: float = 1.0
    """Graphs of the V2 runner over those of the V1 runner. [unitless]"""
    v2_modules: int = 0
    """At most, what a first capture of the V2 runner brings beside its graphs. [bytes]"""
    may_give_back: bool = False
    """The printed change of free memory also holds what warm-up left in the allocator and capture gave back."""
    warm_spread: float = 1.0
    """High end over the law where the compiled graph comes from a cache, if that is more than the spread. [unitless]"""
    spread: float
    """The truth is between the law / spread and the law x spread. [unitless]"""


class Core(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one of the two engine cores counts, and its measured constants."""

    reserved_in_budget: bool = False
    """The profile counts what the allocator reserves, not what tensors use."""
    context_in_budget: bool = False
    """The budget counts the device context as non-torch."""
    communicator_in_budget: bool = False
    """The baseline is taken before NCCL starts: its buffers are non-torch."""
    non_torch: NonTorch
    graphs: GraphSize
    graphs_rocm: GraphSize | None = None
    """Of AMD's cards, whose graphs keep the arguments of every kernel."""
    graphs_other: GraphSize | None = None
    """Of cards that are not for data centres (compute capability 8.6, 8.9, 12.0), which keep less; as the rest if there are
    none."""


V0Feature = Literal[
    "lora", "pipeline", "quantized_kv", "fp32", "recurrent", "speculative", "draft_model", "offload", "amd"
]
"""Settings and models that a release with both engine cores still gives to V0."""
ModelRunnerV2 = Literal["none", "listed_plain", "listed", "listed_or_dense", "all"]


class Vllm(Release, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One release of vLLM."""

    engine_core: Literal["v0", "v1"]
    v0_below_compute_capability: str | None = None
    """Older cards still run the V0 engine; "0.0" in versions that have none."""
    v0_weight_formats: tuple[str, ...] = ()
    """Families of weight formats that still run the V0 engine."""
    v0_model_types: tuple[str, ...] = ()
    v0_counts_adapters: bool = True
    """The V0 engine's budget counts adapter slots; else they are loaded between the printed weights and the profile."""
    v0_features: tuple[V0Feature, ...] = ()
    v1_quantized_kv_majors: tuple[int, ...] = ()
    """Compute capabilities whose V1 attention reads a quantized cache. [major number]"""
    gpu_memory_utilization: float
    tiers: tuple[BatchTier, ...]
    v0_chunked_prefill_tokens: int = 0
    """Batch of the V0 engine once chunked prefill switches itself on above 32,768 tokens, 0 where it never does. [tokens]"""
    block_size: int = 16
    mla_block_sizes: dict[str, int] = {}  # noqa: RUF012  (a Struct: every record gets its own)
    """Block of MLA layers by major compute capability; block_size on others. [tokens]"""
    mla_row_multiple: int = 1
    """Bytes that a token's latent is padded to a multiple of. [bytes]"""
    flashinfer_attention_below: int = 0
    """Cards below this compute capability have no FlashAttention and take FlashInfer's kernels. [major number]"""
    mla_cache: Literal["latent", "heads", "heads_of_256"] = "latent"
    """What MLA layers cache: the latent, or every head, values as wide as keys, or both padded to 256 elements."""
    swap_space_gib: float = 0
    """Pinned host memory per GPU for swapped sequences. [GiB]"""

    v0: Core
    v1: Core | None = None
    host_growth: tuple[int, int, int] = (0, 0, 0)
    """What the engine's processes grow by in host memory while they start, which counts where it is the GPU's memory too:
    least, usual, most. [bytes]"""
    consumed_accounting: bool = False
    """The budget is charged by free memory: runner buffers count, and the printed activation includes the graph estimate."""
    fusion_workspace: Literal["none", "granular", "exact"] = "none"
    """FlashInfer's all-reduce fusion: off, each buffer rounded to the multicast granularity, or as requested."""

    model_types_after: dict[str, str] = {}  # noqa: RUF012  (a Struct: every record gets its own)
    """Models without a class up to and including a version."""
    model_types_until: dict[str, str] = {}  # noqa: RUF012  (a Struct: every record gets its own)
    """Models whose class was removed after a version."""
    unsupported_model_types: tuple[str, ...] = ()
    """Models that no version has a class for, nor a way to run another's."""
    runs_transformers_classes: bool = False
    """Models without a class of their own may run by Transformers' class."""
    replaces_bfloat16: bool = False
    """dtype "auto" becomes float16 on cards without bfloat16."""

    sampler: Literal["sort", "triton", "flashinfer"]
    flashinfer_optional: bool = False
    """FlashInfer's sampler takes the place of the V1 engine's sort where it is installed or asked for."""
    model_runner_v2: ModelRunnerV2 = "none"
    v2_model_types: tuple[str, ...] = ()
    v2_speculators: tuple[str, ...] = ()
    """Methods of speculative decoding that the V2 runner has, beside prediction layers; others run V1."""
    v2_samples_with_parameters: bool = False
    """The V2 dummy sampler runs the fp32 pipeline too."""
    v2_profiles_encoder: bool = True
    encoder_outputs_fill_budget: bool = False
    """What the tower gives for a profiled item is copied into a tensor of the whole encoder budget."""
    qwen3_video_token_places: float = 1.0
    """Places in a request that the processor counts for a token of a Qwen3-VL video, its time stamps included. [tokens]"""
    benchmarks_lookup: bool = False
    """Compiling inside the profile run benchmarks fused kernels, that of the token embedding with a table of its own."""

    cudagraph_mode: Literal["none", "decode", "piecewise", "full_and_piecewise"]
    captures_by_requests: bool = True
    """The largest default capture is twice max_num_seqs, as far as the limit goes; else it is the limit."""
    cudagraph_specialize_lora: bool = False
    """With adapters enabled every size is captured twice, with and without them."""
    capture_step_above_256: int = 16
    capture_limit: int = 512
    capture_limits_by_model_type: dict[str, int] = {}  # noqa: RUF012  (a Struct: every record gets its own)
    """Models whose largest capture the engine sets itself, whatever max_num_seqs (in steps of 16 from 256). [requests]"""
    capture_limit_blackwell: int | None = None
    """Largest capture on data-centre Blackwell (compute capability 10.x). [requests]"""
    graph_estimate: Literal["none", "v1", "all"] = "none"
    """Whose estimate of graph memory is taken out of the budget: nobody's, the V1 runner's, every runner's."""

    absorbs_matrices: bool = False
    """MLA keeps products of its projections instead of copies."""
    local_rope_model_types: tuple[str, ...] = ()
    """Models whose sliding-window layers have a rotary table of their own."""
    lora_vocabulary_model_types: tuple[str, ...] = ()
    """Models whose embedding and head get adapter slots too (embedding_modules of their class)."""
    lora_experts: bool = False
    """Routed experts get adapter slots."""
    mrope_positions_factor: int = 1
    """Multimodal rotary tables reserve so many times the positions. [unitless]"""
    mrope_model_types: tuple[str, ...] = ()
    """Models whose rotary table is multimodal whether or not their configuration says so."""
    rebinding_model_types: tuple[str, ...] = ()
    """Models whose MLP gives its input up as it goes; others keep gate and up projection alive (matters when not compiled)."""
    reduces_out_of_place: bool = False
    """Large all-reduces write into a new tensor."""
    triton_kernels_bundled: bool = False
    """The package brings Triton's kernels for MXFP4 experts; else Marlin runs unless they are installed as well."""
    mxfp4_trtllm_multiple: int = 256
    """Expert width that the FlashInfer TRT-LLM kernel of MXFP4 pads to. [elements]"""
    moe_chunk_tokens: int = 0
    """Tokens of one expert pass, 0 without chunking. [tokens]"""
    moe_workspace_persistent: bool = True
    moe_backends: dict[str, str]
    """Expert kernel by "<family>:<major compute capability>", the family alone for the rest; ":ep" if experts are dealt out."""

    printed_tokens: Literal["blocks", "groups", "concurrency"]
    """How "GPU KV cache size" is computed: blocks x block, blocks // groups x block, concurrency x max_model_len."""
    hybrid_kv: Literal["none", "sliding", "chunked"]
    """Layers that get groups of their own: none (every layer counts as full), sliding windows, also chunked-local."""
    compressed_block: Literal["none", "tuples", "packed", "widest"] = "none"
    """What a block costs where layers compress their past: unknown, a page of every size for the deepest group's layers,
    for each size as many as a group has, or the widest group."""
    concurrency_by_bytes: bool = False
    """The printed concurrency weighs such layers' blocks by bytes."""
    quantizes_compressed_cache: bool = False
    """Such layers' cache is fp8 without being told; before, it does not start."""
    recurrent_prefix_cache: Literal["none", "opt_in", "default"] = "none"
    """Prefix caching beside recurrent layers: not there, off unless asked for, on."""
    every_state_model_types: tuple[str, ...] = ()
    """Models whose prefix cache keeps a state for every block; others keep the last ones only."""
    checkpointed_states: tuple[str, ...] = ()
    """Kinds of recurrent layers with one more state for a prefill's checkpoint."""
    refuses_few_states: bool = False
    """With full graphs it does not start when max_num_seqs exceeds the blocks for recurrent states; before, it captured less."""
    in_flight_batches: bool = False
    """Windows also reserve the batches in flight (asynchronous scheduling)."""
    concurrency_by_tokens: bool = False
    """The printed concurrency is tokens by length, not blocks by the blocks of a request; in V0 always."""
    awq_matmul: AwqMatmul
    """How many tokens are multiplied with AWQ weights: in parts that are summed, with a matrix written out, or by Marlin."""
    awq_scaled_zeros: bool = False
    """AWQ runs on Machete where the GPU has it (9.0), which keeps zeros multiplied with their scales, in 16 bit."""
    expands_bitsandbytes_scales: bool = False
    """Double-quantized constants are expanded to fp32 at load."""


RELEASE = Vllm
