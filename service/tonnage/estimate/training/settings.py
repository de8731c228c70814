"""A training card with every open field filled: by the framework's version, by the method, by what must hold together."""

from typing import Any

from msgspec import Struct

from tonnage.errors import ContradictoryWorkload, MissingFact
from tonnage.estimate.training.adapters import adapters_of
from tonnage.estimate.training.bases import refuse_base
from tonnage.estimate.training.libraries import Libraries
from tonnage.estimate.training.methods import ADAPTER_METHODS, LIGHT_METHODS, PROMPT_METHODS
from tonnage.estimate.training.reader import Reader
from tonnage.estimate.training.targets import Adapted
from tonnage.spec.card import Training
from tonnage.spec.framework import FrameworkRelease
from tonnage.spec.model import Model
from tonnage.spec.report import Assumption
from tonnage.spec.workload import Workload

SHARDED = frozenset({"zero1", "zero2", "zero3", "fsdp", "fsdp_grad_op", "hsdp", "distributed_optimizer"})
ZERO = frozenset({"zero1", "zero2", "zero3"})
TRAINERS = frozenset({"trl", "axolotl", "llama-factory", "ms-swift"})
"""Frameworks that wrap a model as accelerate does; scripts of their own may checkpoint inside or outside FSDP."""
FSDP = frozenset({"fsdp", "fsdp_grad_op", "hsdp"})
DTYPE_BYTES = {
    "fp32": 4,
    "float32": 4,
    "tf32": 4,
    "bf16": 2,
    "bfloat16": 2,
    "fp16": 2,
    "float16": 2,
    "half": 2,
    "fp8": 2,
}
_HALF = ("fp16", "float16", "half")
_PRECISION_ALIASES = {"fp8_e4m3": 2, "fp8_e5m2": 2}


class Settings(Struct, frozen=True, kw_only=True):
    """One job, resolved."""

    card: Training
    release: FrameworkRelease
    libraries: Any
    method: str
    objective: str
    sharding: str
    ranks: int
    """Data-parallel ranks. [unitless]"""
    shards: int
    """Ranks that share states: data x context parallel. [unitless]"""
    tensor_parallel_size: int
    pipeline_parallel_size: int
    context_parallel_size: int
    expert_parallel_size: int
    sequence_parallel: bool
    micro_batch_size: int
    sequence_length: int
    varying: bool
    packed: bool
    gradient_accumulation_steps: int
    gradient_checkpointing: str
    attention: str
    cross_entropy: str
    compiled: bool
    weight_bytes: int
    """Width of trainable or plain weights as loaded. [bytes]"""
    compute_bytes: int
    autocast: bool
    fp32_stream: bool
    """Layers compute in fp32 beside 16-bit weights: no bf16 here, and fp16 would overflow."""
    quantized: bool
    """Linears of the base are stored in a quantized format."""
    adapters: tuple[Adapted, ...]
    rank: int
    adapter_bytes: int
    dropout: bool
    saved_modules: frozenset[str]
    gradient_bytes: int
    """Width of trainable parameters' gradients. [bytes]"""
    master: bool
    """An fp32 copy of 16-bit trainable weights is kept."""
    implementation: str
    in_backward: bool
    offload_parameters: bool
    offload_optimizer: bool
    offload_activations: bool
    assumptions: tuple[Assumption, ...]

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on one GPU. [tokens]"""
        return self.tokens_of(self.sequence_length)

    def tokens_of(self, length: int) -> int:
        """Tokens of a micro-batch on one GPU whose longest sequence has so many. [tokens]"""
        return -(-self.micro_batch_size * (length + self.virtual_tokens) // self.context_parallel_size)

    @property
    def virtual_tokens(self) -> int:
        """Trained embeddings before the input of each sequence. [tokens]"""
        return self.rank if self.method == "prompt-tuning" else 0

    @property
    def prefix_tokens(self) -> int:
        """Trained keys and values before those of each sequence. [tokens]"""
        return self.rank if self.method == "prefix-tuning" else 0

    @property
    def frozen_parts(self) -> frozenset[str]:
        """Components that do not train though the base does."""
        images, usual = self.card.images, self.release.freezes_towers
        tower = images.freeze_vision_tower if images is not None else None
        projector = images.freeze_multi_modal_projector if images is not None else None
        frozen = {"vision": usual if tower is None else tower, "projector": usual if projector is None else projector}
        return frozenset(name for name, is_frozen in frozen.items() if is_frozen)

    @property
    def offload_to_nvme(self) -> bool:
        """Whether what DeepSpeed offloads lies on a disk; the host holds buffers of its swappers."""
        return self.card.offload.device == "nvme" and self.sharding == "zero3"

    @property
    def gradients_stay(self) -> bool:
        """
        Whether gradients are there when backward begins: of earlier micro-batches, or zeroed rather than freed.

        Source: pytorch/pytorch@v2.0.0 torch/optim/optimizer.py (zero_grad: set_to_none is the default from here on)
        """
        zeroed = self.release.code == "transformers" and not self.libraries.at_least("torch", "2.0")
        return self.gradient_accumulation_steps > 1 or zeroed

    @property
    def defers_reduction(self) -> bool:
        """
        Whether gradients of earlier micro-batches wait unsharded (`no_sync`), as the Trainer has it with FSDP1.

        Source: huggingface/accelerate@v1.15.0 docs/source/concept_guides/gradient_synchronization.md; sharded with FSDP2:
        tests/measured/decisions.json#ax-gptoss20-fft-8x48
        """
        old = self.release.code == "transformers" and self.release.fsdp == "fsdp1"
        return old and self.sharding in FSDP and self.gradient_accumulation_steps > 1

    @property
    def trains_base(self) -> bool:
        """Whether the base model itself trains."""
        return not _adapts(self.method)


def settings(workload: Workload) -> Settings:
    """
    The job of a workload with every open field filled.

    Args:
        workload: Resolved card with a training part.

    Returns:
        Settings, and the assumptions made for them.

    Raises:
        MissingFact: The card has no training part or the framework no profile.
        ContradictoryWorkload: An adapter for full fine-tuning, a merge of none, or a base that cannot be trained so.
    """
    card, release = workload.training, workload.profile
    if card is None or not isinstance(release, FrameworkRelease):
        raise MissingFact("no profile of the training framework", pointer="/training/framework")
    _refuse(card)
    refuse_base(card.method, workload.weight_format)
    read = Reader(card, release.defaults, card.framework)
    libraries = Libraries(card.library_versions, release.libraries)
    placement = workload.placement
    quantized = workload.weight_format.kind != "plain"
    method = "qlora" if card.method == "lora" and quantized else card.method
    sharding = _sharding(card, read, placement.data_parallel_size * placement.context_parallel_size)
    trains_base = not _adapts(method)
    without = release.without_bf16 if workload.gpu is not None and not workload.gpu.computes_bf16 else None
    fp32_stream = without is not None and workload.model.model_type in without.fp32_stream
    raised = _width(without.full_weight_dtype) if without is not None and trains_base else None
    weight = _weight_bytes(workload, card, release, raised)
    compute = _compute_bytes(card, release, 2 if raised and not fp32_stream else weight, quantized)
    adapters, rank, dropout = adapters_of(workload, card, read, release, libraries)
    autocast = not fp32_stream and _autocast(
        card, release, sharding, weight=weight, compute=compute, quantized=quantized
    )
    adapter = _adapter_bytes(card, release, libraries, sharding, weight=weight, quantized=quantized)
    return Settings(
        card=card,
        release=release,
        libraries=libraries,
        method=method,
        objective=card.objective,
        sharding=sharding,
        ranks=placement.data_parallel_size,
        shards=_shards(sharding, read, placement.data_parallel_size) * placement.context_parallel_size,
        tensor_parallel_size=placement.tensor_parallel_size,
        pipeline_parallel_size=placement.pipeline_parallel_size,
        context_parallel_size=placement.context_parallel_size,
        expert_parallel_size=placement.expert_parallel_size,
        sequence_parallel=card.sequence_parallel
        if card.sequence_parallel is not None
        else placement.tensor_parallel_size > 1,
        micro_batch_size=read("micro_batch_size"),
        sequence_length=read("sequence_length"),
        varying=_varies(card, read, release),
        packed=bool(read("packed")),
        gradient_accumulation_steps=card.gradient_accumulation_steps or release.defaults.gradient_accumulation_steps,
        gradient_checkpointing=read("gradient_checkpointing"),
        attention=card.attn_implementation or _attention(read, release, workload.model),
        cross_entropy=read("cross_entropy"),
        compiled=bool(card.compile if card.compile is not None else release.defaults.compile),
        weight_bytes=weight,
        compute_bytes=compute,
        autocast=autocast,
        fp32_stream=fp32_stream,
        quantized=quantized,
        adapters=adapters,
        rank=rank,
        adapter_bytes=adapter,
        dropout=dropout,
        saved_modules=_saved_modules(card),
        gradient_bytes=_gradient_bytes(card, weight, trains_base, adapter, sharding),
        master=_master(card, sharding, weight if trains_base else adapter, compute),
        implementation=card.optimizer_implementation or release.defaults.optimizer_implementation,
        in_backward=bool(card.optimizer_in_backward),
        offload_parameters=card.offload.parameters,
        offload_optimizer=card.offload.optimizer,
        offload_activations=card.offload.activations or _offloads_by_default(card, read),
        assumptions=tuple(read.assumptions),
    )


def _sharding(card: Training, read: Reader, ranks: int) -> str:
    if card.sharding is not None:
        if card.sharding in SHARDED and ranks == 1 and card.sharding not in ("zero1", "zero2", "zero3"):
            return "none"
        return card.sharding if ranks > 1 or card.sharding in ZERO else "none"
    if ranks == 1:
        return "none"
    return str(read.assume("sharding", read.defaults.sharding, read.why))


def _varies(card: Training, read: Reader, release: FrameworkRelease) -> bool:
    """Whether batches differ in length; packing makes them alike, unless whole samples are put together."""
    stated = read("sequence_lengths") == "varying"
    return release.packs_whole if card.packed else stated


def _offloads_by_default(card: Training, read: Reader) -> bool:
    """Whether block inputs go to the host though the card is silent: a framework whose own checkpointing does that."""
    if card.gradient_checkpointing is not None or not read.defaults.offload_activations:
        return False
    return bool(read.assume("offload.activations", True, read.why))


def _attention(read: Reader, release: FrameworkRelease, model: Model) -> str:
    """
    The framework's default; operators of their own where PyTorch's kernel cannot do what the model wants.

    Source: huggingface/transformers@v5.24.0 `_supports_sdpa = False` (soft-capped scores, sinks), classes without an interface
    """
    name = release.defaults.attn_implementation
    if name == "sdpa" and release.code == "transformers":
        layers = [g.layer.attention for g in model.layers if g.layer.attention is not None]
        if model.code.attention_written_out or any(a.softcap or a.sinks for a in layers):
            return str(
                read.assume("attn_implementation", "eager", "these classes have no scaled_dot_product_attention")
            )
    return str(read("attn_implementation"))


HOST = 8
"""GPUs of a host, within which hybrid sharding cuts. [unitless]"""


def _shards(sharding: str, read: Reader, ranks: int) -> int:
    """Data-parallel ranks that share states; hybrid sharding copies them from host to host."""
    if sharding != "hsdp" or ranks <= HOST:
        return ranks
    return int(read.assume("sharding", HOST, "hsdp shards within a host of 8 GPUs and copies between hosts"))


def _width(name: str | None) -> int | None:
    if name is None:
        return None
    return DTYPE_BYTES.get(name, _PRECISION_ALIASES.get(name, 2))


def _refuse(card: Training) -> None:
    if card.lora is not None and card.method == "full":
        raise ContradictoryWorkload(
            "an adapter is described but method is full, which trains none: state method lora, qlora or dora",
            pointer="/training/method",
        )
    if card.export is not None and card.export.merge and (card.method in PROMPT_METHODS or not _adapts(card.method)):
        raise ContradictoryWorkload(
            f"merge is asked for but method {card.method} trains nothing that is merged into weights: "
            "leave it out, or state method lora, qlora, dora, rslora or ia3",
            pointer="/training/export/merge",
        )


def _adapts(method: str) -> bool:
    return method in ADAPTER_METHODS or method in LIGHT_METHODS


def _weight_bytes(workload: Workload, card: Training, release: FrameworkRelease, raised: int | None = None) -> int:
    stated = _width(card.weight_dtype)
    if stated is not None or raised is not None:
        return stated or raised or 2
    usual = _width(release.defaults.weight_dtype)
    form = workload.weight_format
    return usual or (form.block_bytes if form.kind == "plain" else 2)


def _compute_bytes(card: Training, release: FrameworkRelease, weight: int, quantized: bool) -> int:
    stated = _width(card.compute_dtype)
    if stated is not None:
        return stated
    return _width(release.defaults.compute_dtype) or (2 if quantized else weight)


def _autocast(
    card: Training, release: FrameworkRelease, sharding: str, *, weight: int, compute: int, quantized: bool
) -> bool:
    """Whether forward runs under torch.autocast: a 16-bit engine of DeepSpeed or FSDP's mixed precision replaces it."""
    if compute >= 4 or release.mixed_precision == "never":
        return False
    if sharding in ZERO or (sharding in FSDP and release.code != "transformers"):
        return False
    if card.method == "full" and card.weight_dtype in _HALF and weight == compute:
        # the scaler beside autocast refuses fp16 gradients: pytorch/pytorch@v2.8.0 torch/amp/grad_scaler.py _unscale_grads_
        return False
    if release.mixed_precision == "autocast":
        return True
    return weight > compute or (quantized and card.compute_dtype is not None)


def _adapter_bytes(
    card: Training, release: FrameworkRelease, libraries: Libraries, sharding: str, *, weight: int, quantized: bool
) -> int:
    stated = _width(card.lora.dtype) if card.lora is not None else None
    if stated is not None:
        return stated
    sharded = sharding in ZERO or (sharding in FSDP and release.code == "transformers")
    if sharded or (quantized and release.four_bit_casts):
        return 2
    if release.adapter_dtype == "fp32":
        return 4
    if release.adapter_dtype == "base":
        return weight
    if libraries.adapters_follow == "fp32" or quantized:
        return 4
    return weight


def _saved_modules(card: Training) -> frozenset[str]:
    names = card.lora.modules_to_save if card.lora is not None else None
    if not names:
        return frozenset()
    roles = {"lm_head": "head", "output": "head", "embed_out": "head", "score": "score"}
    return frozenset(
        roles.get(name.rpartition(".")[2], "embed" if "emb" in name or name.endswith("wte") else name) for name in names
    )


def _gradient_bytes(card: Training, weight: int, trains_base: bool, adapter: int, sharding: str) -> int:
    width = weight if trains_base else adapter
    stated = _width(card.gradient_dtype)
    if sharding == "distributed_optimizer":
        # in fp32 unless told otherwise, adapters' too: Megatron-LM training/arguments.py (accumulate_allreduce_grads_in_fp32)
        return max(stated or 4, width)
    if stated is None or not trains_base or sharding in ZERO:
        return width
    return max(stated, width)


def _master(card: Training, sharding: str, width: int, compute: int) -> bool:
    if width >= 4:
        return False
    if sharding in ZERO or sharding == "distributed_optimizer":
        return True
    if card.master_weights is not None:
        return card.master_weights and compute < 4
    return card.framework in ("deepspeed", "megatron")
