"""
The ladder of single changes that save memory, by the phase that fails, most harmless first.

A rung is only a proposal: what it saves and whether it is enough comes from a new estimate
(`estimate.diagnosis`). Order and wording follow the phase: at load the weights, at generation context and
concurrency, at the backward pass micro-batch and activations, at the step the optimizer.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tonnage.estimate.changes import effective, stated
from tonnage.estimate.placement import support
from tonnage.spec.card import SizingCard
from tonnage.spec.model import Model
from tonnage.spec.report import Estimate


class Rung(NamedTuple):
    """One change, not yet priced."""

    field: str
    """JSON pointer. [unitless]"""
    from_: Any
    to: Any
    cost: str
    search: bool = False
    """`to` is the smallest value worth trying; the largest that fits is looked for."""
    also: tuple[tuple[str, Any], ...] = ()
    """Fields that only make sense together with this one."""


class Scene(NamedTuple):
    """What a rung looks at."""

    card: SizingCard
    estimate: Estimate
    model: Model

    def value(self, pointer: str) -> Any:
        """Stated or assumed value of a field."""
        return effective(self.card, self.estimate, pointer)


Proposal = Callable[[Scene], Iterator[Rung]]

SMALLER_FORMATS: dict[str | None, tuple[str, ...]] = {
    "llama.cpp": ("gguf-q8-0", "gguf-q6-k", "gguf-q5-k-m", "gguf-q4-k-m", "gguf-q3-k-m"),
    "ollama": ("gguf-q8-0", "gguf-q6-k", "gguf-q5-k-m", "gguf-q4-k-m", "gguf-q3-k-m"),
    "transformers": ("bnb-int8", "bnb-nf4"),
    "mlx": ("mlx-8bit-g64", "mlx-6bit-g64", "mlx-4bit-g64"),
    None: ("fp8-per-channel-dynamic", "awq-w4-g128"),
}
"""What each engine is usually given next, largest first; one that saves nothing is dropped after its estimate."""

SMALLER_CACHES: dict[str | None, tuple[str, ...]] = {
    "llama.cpp": ("q8_0", "q4_0"),
    "ollama": ("q8_0", "q4_0"),
    "transformers": ("kv-int8-per-token-head", "kv-quanto-4"),
    "mlx": (),
}
"""Cache types below the model's own; engines that are not named read fp8."""
ATTENTION_PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj"}

SERVING_PHASES = {
    "load": ("formats", "tensor", "pipeline", "images", "layers"),
    "profile": ("chunk", "sequences", "images", "tensor", "formats"),
    "kv_allocation": ("length", "utilization", "kv_dtype", "sequences", "concurrency", "eager", "images", "formats", "tensor",
                      "pipeline"),
    "cuda_graph": ("utilization_down", "eager", "sequences", "length", "kv_dtype", "formats", "tensor"),
    "prefill": ("chunk", "flash", "length", "concurrency", "batch", "kv_dtype", "formats", "tensor", "pipeline", "layers"),
    "decode": ("concurrency", "batch", "length", "kv_dtype", "sequences", "formats", "tensor", "pipeline", "layers"),
}  # fmt: skip
_ACTIVATIONS = ("length", "activations_offload", "targets", "method", "sharding")
TRAINING_PHASES = {
    "load": ("weight_dtype", "method", "sharding", "ranks", "tensor"),
    "forward": ("micro_batch", "checkpointing", "loss", "attention", *_ACTIVATIONS),
    "backward": ("micro_batch", "checkpointing", "attention", "loss", *_ACTIVATIONS),
    "optimizer_step": (
        "optimizer",
        "implementation",
        "in_backward",
        "sharding",
        "ranks",
        "optimizer_offload",
        "master",
    ),
    "evaluation": ("micro_batch", "loss", "length", "sharding"),
    "export": ("weight_dtype", "sharding"),
    "merge": ("weight_dtype", "sharding"),
}
WHOLE_TRAINING_LADDER = (
    "micro_batch", "checkpointing", "attention", "loss", "implementation", "optimizer", "in_backward", "master", "weight_dtype",
    "sharding", "ranks", "optimizer_offload", "activations_offload", "length", "targets", "method", "tensor",
)  # fmt: skip
_SERVING_ALIASES = {"idle": "decode", "generation": "decode", "forward": "prefill"}
_TRAINING_ALIASES = {"profile": "forward", "prefill": "forward", "decode": "evaluation", "generation": "evaluation"}


def ladder(scene: Scene, phase: str) -> tuple[Rung, ...]:
    """
    Changes for a phase, in the order they are worth trying.

    Args:
        scene: Card, estimate and model.
        phase: Phase that failed, or that peaks.

    Returns:
        For training the rungs of the phase come first and the whole ladder follows.
    """
    if scene.card.training is not None:
        own = TRAINING_PHASES.get(_TRAINING_ALIASES.get(phase, phase), ())
        names = dict.fromkeys((*own, *WHOLE_TRAINING_LADDER))
    elif scene.card.serving is not None:
        names = dict.fromkeys(SERVING_PHASES.get(_SERVING_ALIASES.get(phase, phase), SERVING_PHASES["kv_allocation"]))
    else:
        names = dict.fromkeys(("formats", "tensor", "pipeline"))
    return tuple(rung for name in names for rung in PROPOSALS[name](scene))


def _halved(pointer: str, cost: str, smallest: int = 1) -> Proposal:
    def proposal(scene: Scene) -> Iterator[Rung]:
        value = scene.value(pointer)
        if isinstance(value, int) and not isinstance(value, bool) and value > smallest and _has(scene.card, pointer):
            yield Rung(pointer, value, smallest, cost, search=True)

    return proposal


def _set(pointer: str, to: Any, cost: str, unless: tuple[Any, ...] = ()) -> Proposal:
    def proposal(scene: Scene) -> Iterator[Rung]:
        value = scene.value(pointer)
        if value != to and value not in unless and _has(scene.card, pointer):
            yield Rung(pointer, value, to, cost)

    return proposal


def _has(card: SizingCard, pointer: str) -> bool:
    """Whether the card's engine has such a field."""
    *parents, name = pointer.strip("/").split("/")
    node: Any = card
    for parent in parents:
        node = getattr(node, parent, None)
    return hasattr(node, name)


def _formats(scene: Scene) -> Iterator[Rung]:
    have = stated(scene.card, "/weights/format") or scene.model.weight_format or scene.model.dtype
    if scene.card.training is not None:
        return
    cost = "quality has to be measured again; what the format leaves in 16 bit stays so"
    for name in SMALLER_FORMATS.get(_engine(scene.card), SMALLER_FORMATS[None]):
        if name != have:
            yield Rung("/weights/format", have, name, cost, also=(("/weights/bytes", None),))


def _doubled(pointer: str, kind: str, cost: str) -> Proposal:
    def proposal(scene: Scene) -> Iterator[Rung]:
        training = scene.card.training
        kinds = support(engine=_engine(scene.card), framework=None if training is None else training.framework)
        if getattr(kinds, kind):
            value = stated(scene.card, pointer) or 1
            yield Rung(pointer, value, value * 2, cost)

    return proposal


def _more_ranks(scene: Scene) -> Iterator[Rung]:
    """Twice the data-parallel ranks; copies alone save nothing, so the states are sharded over them."""
    training = scene.card.training
    if training is None:
        return
    have = scene.card.placement.data_parallel_size
    sharded = scene.value("/training/sharding") not in {None, "none", "ddp"}
    also = () if sharded else (("/training/sharding", "zero3"),)
    yield Rung("/placement/data_parallel_size", have, have * 2, "more GPUs; the batch of a step doubles", also=also)


def _targets(scene: Scene) -> Iterator[Rung]:
    training = scene.card.training
    if training is None or training.lora is None or training.method == "full":
        return
    have = training.lora.target_modules
    if have is None or set(have) - ATTENTION_PROJECTIONS:
        few = sorted(ATTENTION_PROJECTIONS)
        yield Rung("/training/lora/target_modules", have, few, "fewer adapters: quality has to be measured again")


def _engine(card: SizingCard) -> str | None:
    return None if card.serving is None else str(card.serving.__struct_config__.tag)


def _text_only(scene: Scene) -> Iterator[Rung]:
    if scene.model.vision is not None and scene.card.serving is not None:
        have = stated(scene.card, "/serving/multimodal/language_model_only") or False
        if not have:
            yield Rung(
                "/serving/multimodal/language_model_only", False, True, "no images: another task if they are needed"
            )


def _kv_dtype(scene: Scene) -> Iterator[Rung]:
    serving = scene.card.serving
    if serving is None or str(scene.value("/serving/kv_cache_dtype")).startswith(
        ("fp8", "q8", "q4", "int8", "kv-fp8", "kv-int8")
    ):
        return
    for target in SMALLER_CACHES.get(_engine(scene.card), ("fp8",)):
        yield Rung(
            "/serving/kv_cache_dtype",
            serving.kv_cache_dtype,
            target,
            "small change of the output; needs support by the GPU",
        )


def _utilization(scene: Scene) -> Iterator[Rung]:
    value = scene.value("/serving/gpu_memory_utilization")
    if isinstance(value, (int, float)) and value < 0.95 and scene.estimate.claimed_bytes is not None:
        yield Rung("/serving/gpu_memory_utilization", value, 0.95, "leaves less for graphs and other processes")


def _utilization_down(scene: Scene) -> Iterator[Rung]:
    value = scene.value("/serving/gpu_memory_utilization")
    if isinstance(value, (int, float)) and scene.estimate.claimed_bytes is not None:
        for lower in (0.9, 0.85, 0.8):
            if lower < value - 0.01:
                yield Rung(
                    "/serving/gpu_memory_utilization",
                    value,
                    lower,
                    "a smaller cache: fewer or shorter requests at once",
                )


def _method(scene: Scene) -> Iterator[Rung]:
    training = scene.card.training
    if training is None:
        return
    cost = "another training: quality has to be measured again"
    rank = (("/training/lora/rank", 16),) if training.lora is None else ()
    if training.method == "full":
        yield Rung("/training/method", "full", "lora", cost, also=rank)
    if training.method in {"full", "lora", "dora", "rslora"}:
        base = (("/weights/format", "bnb-nf4"), ("/weights/bytes", None), ("/training/weight_dtype", None))
        yield Rung("/training/method", training.method, "qlora", f"{cost}; base in 4 bit", also=(*rank, *base))


def _sharding(scene: Scene) -> Iterator[Rung]:
    training, ranks = scene.card.training, scene.card.placement.data_parallel_size
    if training is None or ranks < 2:
        return
    ladder = ("zero1", "zero2", "zero3", "fsdp") if training.framework != "torchtitan" else ("fsdp",)
    have = scene.value("/training/sharding") or "none"
    strength = {
        "none": 0,
        "ddp": 0,
        "zero1": 1,
        "distributed_optimizer": 1,
        "zero2": 2,
        "fsdp_grad_op": 2,
        "zero3": 3,
        "fsdp": 3,
        "hsdp": 3,
    }
    for name in ladder:
        if strength[name] > strength.get(have, 0):
            yield Rung("/training/sharding", have, name, "more communication")


def _optimizer(scene: Scene) -> Iterator[Rung]:
    have = scene.value("/training/optimizer")
    for name in ("adamw_8bit", "paged_adamw_8bit", "adafactor", "sgd"):
        if have != name and not (str(have).endswith("8bit") and name == "adamw_8bit"):
            yield Rung("/training/optimizer", have, name, "another optimizer: convergence has to be checked")


def _several(*proposals: Proposal) -> Proposal:
    def proposal(scene: Scene) -> Iterator[Rung]:
        for one in proposals:
            yield from one(scene)

    return proposal


PROPOSALS: dict[str, Proposal] = {
    "formats": _formats,
    "tensor": _doubled(
        "/placement/tensor_parallel_size", "tensor", "one more step of GPUs with a fast link between them"
    ),
    "pipeline": _doubled("/placement/pipeline_parallel_size", "pipeline", "more GPUs; latency grows with the stages"),
    "layers": _halved("/serving/n_gpu_layers", "layers on the host: much slower", smallest=0),
    "chunk": _several(
        _halved("/serving/max_num_batched_tokens", "longer prefill, lower throughput", smallest=512),
        _halved("/serving/chunked_prefill_size", "longer prefill", smallest=512),
        _halved("/serving/n_ubatch", "slower prompt processing", smallest=64),
        _halved("/serving/max_num_tokens", "longer prefill, lower throughput", smallest=512),
    ),
    "flash": _several(
        _set("/serving/flash_attn", True, "none where the GPU supports it"),
        _set("/serving/attn_implementation", "flash_attention_2", "needs the package and a 16-bit dtype", ("sdpa",)),
    ),
    "length": _several(
        _halved("/serving/max_model_len", "shorter requests: a different need if the length is required", smallest=256),
        _halved(
            "/training/sequence_length", "shorter samples: a different task if the length is required", smallest=256
        ),
    ),
    "sequences": _several(
        _halved("/serving/max_num_seqs", "fewer requests at once"),
        _halved("/serving/cuda_graph_max_bs", "larger batches run without graphs"),
        _halved("/serving/max_batch_size", "fewer requests at once"),
        _halved("/serving/n_parallel", "fewer requests at once"),
    ),
    "concurrency": _halved(
        "/serving/concurrency", "fewer requests at once: a different need if the number is required"
    ),
    "batch": _halved("/serving/batch_size", "fewer sequences at once"),
    "kv_dtype": _kv_dtype,
    "eager": _several(
        _set("/serving/enforce_eager", True, "decoding slower without graphs"),
        _set("/serving/disable_cuda_graph", True, "decoding slower without graphs"),
    ),
    "utilization": _utilization,
    "utilization_down": _utilization_down,
    "images": _several(
        _halved("/serving/multimodal/images_per_prompt", "fewer images per prompt", smallest=0), _text_only
    ),
    "micro_batch": _halved("/training/micro_batch_size", "more accumulation steps for the same batch"),
    "checkpointing": _set("/training/gradient_checkpointing", "full", "about a third more compute"),
    "attention": _set(
        "/training/attn_implementation", "flash_attention_2", "needs the package and a 16-bit dtype", ("sdpa",)
    ),
    "loss": _set("/training/cross_entropy", "fused_linear", "needs the fused kernel (Liger, CCE)"),
    "implementation": _set("/training/optimizer_implementation", "fused", "none where the optimizer has it"),
    "optimizer": _optimizer,
    "in_backward": _set("/training/optimizer_in_backward", True, "no gradient accumulation or clipping over the whole"),
    "master": _set("/training/master_weights", False, "updates below the 16-bit grain are lost"),
    "weight_dtype": _set(
        "/training/weight_dtype", "bf16", "parameters without fp32 copies: stability has to be checked", ("fp16",)
    ),
    "sharding": _sharding,
    "optimizer_offload": _set("/training/offload/optimizer", True, "slower steps; host memory for the states"),
    "activations_offload": _set("/training/offload/activations", True, "slower steps; host memory for the activations"),
    "method": _method,
    "targets": _targets,
    "ranks": _more_ranks,
}
