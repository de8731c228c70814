"""
The sizing card: what a caller says, in the field's own names.

These Structs are the wire types of POST /estimate and the first part of POST /fit. Unknown fields
are refused, strings are never numbers. Serving names are vLLM's, training names Hugging Face's or
Megatron's; `docs/terms.md` lists each with its unit.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tonnage.units import BILLION, SIZE_PATTERN

Count = Annotated[int, Meta(ge=1, le=1_000_000_000_000_000)]
Small = Annotated[int, Meta(ge=1, le=65_536)]
Parts = Annotated[int, Meta(ge=1, le=1024)]
MAX_GPUS = 65_536
"""Every rank of a placement is looked at. [unitless]"""
Tokens = Annotated[int, Meta(ge=0, le=BILLION)]
PositiveTokens = Annotated[int, Meta(ge=1, le=BILLION)]
ByteCount = Annotated[int, Meta(ge=0, le=1_000_000_000_000_000_000, description="bytes")]
SizeText = Annotated[
    str, Meta(pattern=SIZE_PATTERN, max_length=40, description="number with an explicit unit: 6 GiB, 24 GB")
]
Size = ByteCount | SizeText
Fraction = Annotated[float, Meta(gt=0, le=1)]
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._/:+@ -]*$(?!\n)"
VERSION_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$(?!\n)"
Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=NAME_PATTERN)]
Version = Annotated[str, Meta(min_length=1, max_length=40, pattern=VERSION_PATTERN)]
Note = Annotated[str, Meta(max_length=2000)]

PhaseOfFailure = Literal[
    "load", "profile", "kv_allocation", "cuda_graph", "prefill", "decode", "idle", "generation",
    "forward", "backward", "optimizer_step", "evaluation", "export", "merge",
]  # fmt: skip


class ModelCard(Struct, frozen=True, forbid_unknown_fields=True):
    """A model by id, by its literal config.json, by GGUF header, or by its count alone: exactly one of these."""

    id: Name | None = None
    revision: Name | None = None
    config: dict[str, Any] | None = None
    parameters: Count | None = None
    """With `config` or `gguf`: a check value. Alone: all that is known. [unitless]"""
    trainable_parameters: Annotated[int, Meta(ge=0, le=1_000_000_000_000_000)] | None = None
    gguf: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        given = [k for k in ("id", "config", "gguf") if getattr(self, k) is not None]
        if len(given) > 1:
            raise ValueError(f"give exactly one of id, config, gguf; got {' and '.join(given)}")
        if not given and self.parameters is None:
            raise ValueError("give one of id, config, gguf or parameters")
        if self.revision is not None and self.id is None:
            raise ValueError("revision belongs to id")
        if self.trainable_parameters is not None and given:
            raise ValueError("trainable_parameters belongs to a bare parameter count")


class WeightsCard(Struct, frozen=True, forbid_unknown_fields=True):
    """Format of the weights; `bytes` is the size of a known file and overrides the computed one."""

    format: Name | None = None
    bytes: Size | None = None


class KvTypes(Struct, frozen=True, forbid_unknown_fields=True):
    """Cache types of keys and values apart (llama.cpp -ctk, -ctv)."""

    k: Name
    v: Name


class ServingLora(Struct, frozen=True, forbid_unknown_fields=True):
    """Adapter slots an engine keeps beside the weights."""

    max_loras: Small = 1
    max_lora_rank: Small = 16
    target_modules: Annotated[list[Name], Meta(max_length=64)] | None = None


class Speculative(Struct, frozen=True, forbid_unknown_fields=True):
    """Speculative decoding: method in the engine's spelling, draft model by catalogue id or as an object."""

    method: Name
    model: Name | ModelCard | None = None
    num_speculative_tokens: Small = 1


class Multimodal(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits per prompt; 0 everywhere loads the language model only."""

    images_per_prompt: Annotated[int, Meta(ge=0, le=4096)] | None = None
    videos_per_prompt: Annotated[int, Meta(ge=0, le=4096)] | None = None
    audios_per_prompt: Annotated[int, Meta(ge=0, le=4096)] | None = None
    language_model_only: bool = False
    encoder_tp_mode: Literal["weights", "data"] | None = None


class ServingCommon(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="engine"):
    """Fields that every engine knows, in vLLM's words. None: that version's own default."""

    engine_version: Version | None = None
    dtype: Name | None = None
    max_model_len: PositiveTokens | None = None
    max_num_seqs: Small | None = None
    max_num_batched_tokens: PositiveTokens | None = None
    kv_cache_dtype: Name | KvTypes = "auto"
    gpu_memory_utilization: Fraction | None = None
    kv_cache_memory_bytes: Size | None = None
    block_size: Small | None = None
    enforce_eager: bool | None = None
    concurrency: Small | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    shared_prefix_tokens: Tokens | None = None
    lora: ServingLora | None = None
    speculative: Speculative | None = None
    multimodal: Multimodal | None = None


CaptureSizes = Annotated[list[Small], Meta(min_length=1, max_length=512)]


class Vllm(ServingCommon, frozen=True, tag="vllm"):
    """vLLM's own flags."""

    cudagraph_capture_sizes: CaptureSizes | None = None
    cudagraph_max_capture_size: Annotated[int, Meta(ge=0, le=65_536)] | None = None
    enable_prefix_caching: bool | None = None
    enable_expert_parallel: bool | None = None
    swap_space: Annotated[float, Meta(ge=0, le=100_000, description="GiB per GPU, vLLM's own unit")] | None = None
    cpu_offload_gb: Annotated[float, Meta(ge=0, le=100_000, description="GiB per GPU, vLLM's own unit")] | None = None
    use_v2_model_runner: Annotated[bool, Meta(description="VLLM_USE_V2_MODEL_RUNNER")] | None = None


class Sglang(ServingCommon, frozen=True, tag="sglang"):
    """SGLang's own flags; `gpu_memory_utilization` is its mem_fraction_static, `max_num_seqs` its max_running_requests."""

    cuda_graph_max_bs: Small | None = None
    disable_cuda_graph: bool | None = None
    chunked_prefill_size: PositiveTokens | None = None
    page_size: Small | None = None
    disable_radix_cache: bool | None = None
    enable_dp_attention: bool | None = None
    dp_size: Annotated[int, Meta(ge=1, le=65_536, description="groups of DP attention")] | None = None


class LlamaCpp(ServingCommon, frozen=True, tag="llama.cpp"):
    """llama.cpp's own flags; `max_model_len` is -c, the total over the slots."""

    n_gpu_layers: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    n_batch: Small | None = None
    n_ubatch: Small | None = None
    n_parallel: Annotated[int, Meta(ge=1, le=4096)] | None = None
    kv_unified: bool | None = None
    flash_attn: bool | None = None
    cpu_moe_layers: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    tensor_split: Annotated[list[Annotated[float, Meta(ge=0)]], Meta(min_length=1, max_length=64)] | None = None
    swa_full: bool | None = None
    no_kv_offload: bool | None = None


class Ollama(ServingCommon, frozen=True, tag="ollama"):
    """Ollama on top of llama.cpp; `max_model_len` is num_ctx, per slot."""

    n_gpu_layers: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    n_ubatch: Small | None = None
    n_batch: Small | None = None
    n_parallel: Annotated[int, Meta(ge=1, le=4096)] | None = None
    flash_attn: bool | None = None


class TensorRtLlm(ServingCommon, frozen=True, tag="tensorrt-llm"):
    """TensorRT-LLM's own flags."""

    max_batch_size: Small | None = None
    max_num_tokens: PositiveTokens | None = None
    free_gpu_memory_fraction: Fraction | None = None
    backend: Literal["pytorch", "tensorrt"] | None = None


class Transformers(ServingCommon, frozen=True, tag="transformers"):
    """Hugging Face generate(): one batch at a time."""

    batch_size: Small | None = None
    attn_implementation: Name | None = None
    cache_implementation: Name | None = None


class Tgi(ServingCommon, frozen=True, tag="tgi"):
    """Text Generation Inference's own flags; `max_num_batched_tokens` is its max_batch_prefill_tokens."""

    max_batch_total_tokens: PositiveTokens | None = None


class Mlx(ServingCommon, frozen=True, tag="mlx"):
    """mlx-lm on Apple silicon."""

    batch_size: Small | None = None
    prefill_step_size: PositiveTokens | None = None


Serving = Vllm | Sglang | LlamaCpp | Ollama | TensorRtLlm | Transformers | Tgi | Mlx

Framework = Literal[
    "transformers", "trl", "torchtune", "torchtitan", "litgpt", "axolotl", "llama-factory", "ms-swift",
    "unsloth", "deepspeed", "megatron", "peft",
]  # fmt: skip
Objective = Literal["pretrain", "sft", "dpo", "orpo", "kto", "reward", "ppo", "grpo"]
Method = Literal[
    "full", "lora", "qlora", "dora", "rslora", "galore", "q-galore", "apollo", "lisa", "badam", "ia3",
    "prompt-tuning", "prefix-tuning",
]  # fmt: skip
Sharding = Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_grad_op", "hsdp", "distributed_optimizer"]


class TrainingLora(Struct, frozen=True, forbid_unknown_fields=True):
    """Adapter of a fine-tuning run (PEFT's words; `rank` is its r)."""

    rank: Small | None = None
    alpha: Annotated[float, Meta(gt=0)] | None = None
    target_modules: Annotated[list[Name], Meta(min_length=1, max_length=64)] | None = None
    dtype: Name | None = None
    dropout: Annotated[float, Meta(ge=0, lt=1)] | None = None
    modules_to_save: Annotated[list[Name], Meta(max_length=16)] | None = None
    trainable_parameters: Count | None = None


class Offload(Struct, frozen=True, forbid_unknown_fields=True):
    """What lives on the host between uses."""

    parameters: bool = False
    optimizer: bool = False
    activations: bool = False
    device: Literal["cpu", "nvme"] = "cpu"
    """Where parameters and optimizer states go: the host, or a disk of it (DeepSpeed's ZeRO-3)."""


class Images(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Images in the samples of a vision-language model; their tokens count as part of `sequence_length`."""

    per_sample: Small = 1
    height: Small | None = None
    """Of an image as the tower gets it, in pixels; towers of one image size take theirs."""
    width: Small | None = None
    freeze_vision_tower: bool | None = None
    """Whether the tower does not train; None: the framework's default, and always with adapters."""
    freeze_multi_modal_projector: bool | None = None
    """The same of what leads from the tower to the decoder (aligner, merger)."""


class Evaluation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Evaluation between training steps, on the same GPUs (the Hugging Face Trainer's words)."""

    per_device_eval_batch_size: Small | None = None
    prediction_loss_only: bool | None = None
    """False: logits are kept, for metrics made of them. None: only the loss is, as without compute_metrics."""
    eval_accumulation_steps: Small | None = None
    """Batches after which kept logits move to the host; None: at the end of the evaluation."""
    samples: Annotated[int, Meta(ge=1, le=BILLION)] | None = None
    """Samples of the evaluation set, over all GPUs."""
    sequence_length: PositiveTokens | None = None
    """Longest sample of the set; None: that of the training data."""


class Export(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Saving at checkpoints and at the end."""

    merge: bool = False
    """Adapters are merged into the model first (PEFT's merge_and_unload)."""
    state_dict_type: Literal["full", "sharded"] | None = None
    """full: gathered to the host of one rank (FSDP's FULL_STATE_DICT, ZeRO-3's 16-bit weights). None: the framework's."""
    optimizer: bool = False
    """Optimizer states are gathered with the weights."""


class Training(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fine-tuning or pre-training job. None: the framework's own default for that version."""

    framework: Framework = "transformers"
    framework_version: Version | None = None
    library_versions: dict[Name, Version] = {}
    objective: Objective = "sft"
    num_generations: Small | None = None
    method: Method = "full"
    lora: TrainingLora | None = None
    weight_dtype: Name | None = None
    compute_dtype: Name | None = None
    gradient_dtype: Name | None = None
    master_weights: bool | None = None
    optimizer_implementation: Literal["fused", "foreach", "for_loop"] | None = None
    optimizer: Name | None = None
    optimizer_in_backward: bool | None = None
    micro_batch_size: Small | None = None
    sequence_length: PositiveTokens | None = None
    sequence_lengths: Literal["fixed", "varying"] | None = None
    packed: bool | None = None
    gradient_accumulation_steps: Small | None = None
    gradient_checkpointing: Literal["none", "selective", "full"] | None = None
    attn_implementation: Name | None = None
    cross_entropy: Literal["full", "chunked", "fused_linear"] | None = None
    sequence_parallel: bool | None = None
    virtual_pipeline_model_parallel_size: Small | None = None
    """Model chunks of each pipeline stage (Megatron's interleaved schedule); None or 1: one."""
    vllm_gpu_memory_utilization: Fraction | None = None
    """Part of the card that a vLLM in the same process takes for samples (TRL's `vllm_mode = colocate`); None: generate()."""
    vllm_enable_sleep_mode: bool | None = None
    """Whether that engine gives its memory back while the model trains."""
    compile: bool | None = None
    sharding: Sharding | None = None
    offload: Offload = Offload()
    images: Images | None = None
    """Images of the samples; None: none, or none that are looked at."""
    evaluation: Evaluation | None = None
    """An evaluation between steps; None: there is none, or none that decides."""
    export: Export | None = None
    """Saving of the model; None: it is not looked at."""


class Placement(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which GPU and how the model is laid over several; GPUs = tensor x pipeline x data x context."""

    gpu: Name | None = None
    tensor_parallel_size: Parts = 1
    pipeline_parallel_size: Parts = 1
    data_parallel_size: Small = 1
    expert_parallel_size: Small = 1
    context_parallel_size: Parts = 1

    def __post_init__(self) -> None:
        if self.gpus > MAX_GPUS:
            raise ValueError(f"a placement is over at most {MAX_GPUS} GPUs, not {self.gpus}")

    @property
    def gpus(self) -> int:
        """GPUs used; expert parallelism lives inside them. [unitless]"""
        return (
            self.tensor_parallel_size
            * self.pipeline_parallel_size
            * self.data_parallel_size
            * self.context_parallel_size
        )


class ReserveFraction(Struct, frozen=True, forbid_unknown_fields=True):
    """Reserve as a part of the derived expected amount."""

    fraction: Annotated[float, Meta(ge=0, le=10)]


class Measurement(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A peak the caller measured, with its counter; counters are never mixed."""

    counter: Literal["allocated", "reserved", "device"]
    peak_bytes: Size
    phase: PhaseOfFailure | None = None
    gpu: Name | None = None
    scope: Literal["process", "gpu"] = "process"
    note: Note = ""


class Failure(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run that failed: in which phase, and what the engine printed."""

    phase: PhaseOfFailure | None = None
    requested_bytes: Size | None = None
    free_bytes: Size | None = None
    message: Annotated[str, Meta(max_length=20_000)] | None = None


class SizingCard(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One workload on one placement."""

    model: Name | ModelCard
    weights: WeightsCard = WeightsCard()
    serving: Serving | None = None
    training: Training | None = None
    placement: Placement = Placement()
    reserve: Size | ReserveFraction = 0
    measurements: Annotated[list[Measurement], Meta(max_length=32)] = []
    failure: Failure | None = None

    def __post_init__(self) -> None:
        if self.serving is not None and self.training is not None:
            raise ValueError("a card is for serving or for training, not both")
