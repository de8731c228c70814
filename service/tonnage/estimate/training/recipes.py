"""From a job's settings to the recipe of its step."""

from math import inf
from typing import Literal

from tonnage.estimate.training.losses import FUSED, logit_bytes, path_name
from tonnage.estimate.training.objectives import Objective
from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.settings import FSDP, Settings
from tonnage.estimate.training.states import is_four_bit, upcasts
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Model

_UNPADDED = ("flash_attention", "flash", "flex", "xformers", "sage")
_FOREIGN = frozenset({"c_attn", "w1", "w2"})
"""Module names of checkpoints that bring their own model code (Qwen-1)."""


def recipe_of(settings: Settings, model: Model, form: WeightFormat, objective: Objective) -> Recipe:
    """
    What decides which tensors a step makes.

    Args:
        settings: The job.
        model: Architecture.
        form: Format of the weights as loaded.
        objective: What the objective adds.

    Returns:
        The key under which the model's step is remembered; of the micro-batch it depends on whether
        it is a single sequence, and on `masks_windows`.
    """
    quantized = is_four_bit(form)
    stream = (
        4 if settings.fp32_stream or upcasts(settings, form) else min(settings.weight_bytes, _engine_width(settings))
    )
    name = path_name(settings)
    head_width = settings.compute_bytes if settings.autocast else stream
    return Recipe(
        trains=settings.trains_base,
        weight_bytes=min(settings.weight_bytes, _engine_width(settings)),
        norm_bytes=stream,
        autocast=settings.compute_bytes if settings.autocast else 0,
        four_bit=quantized,
        quantized_head=form.quantizes_lm_head,
        plain_experts=form.plain_experts,
        stacked_experts=quantized and not settings.libraries.experts_are_linears,
        compute_bytes=settings.compute_bytes,
        four_bit_copies=settings.release.four_bit_copies,
        keeps_inputs=quantized and (settings.libraries.keeps_four_bit_inputs or form.id == "bnb-int8"),
        nested_scales=form.nested_block is not None,
        adapted=frozenset(a.role for a in settings.adapters),
        scales=settings.method == "ia3",
        # a prefix trains too, so that backward reaches every layer
        virtual_tokens=settings.virtual_tokens or min(settings.prefix_tokens, 1),
        rank=settings.rank,
        adapter_bytes=settings.adapter_bytes,
        dropout=settings.dropout,
        dora=settings.method == "dora",
        saved_modules=settings.saved_modules,
        attention=_attention(settings),
        kernel="sdpa" if settings.attention == "sdpa" else "flash",
        masks_windows=masks_windows(settings, model),
        single=settings.micro_batch_size == 1,
        norm="fused" if liger(settings) else settings.release.norm,
        fused_gate=liger(settings),
        checkpointing=_checkpointing(settings),
        accumulates=settings.gradients_stay or settings.in_backward,
        expands_keys=settings.release.expands_keys,
        code=settings.release.code,
        loss=objective.loss or logit_bytes(settings, name, head_width, remote_code(settings, model)),
        fused_loss=name in FUSED and objective.loss is None,
        compiled_chunks=name == "fused_by_free_memory",
        scores=objective.scores,
        compiled=settings.compiled,
        fp8=settings.card.compute_dtype is not None and settings.card.compute_dtype.startswith("fp8"),
        every_second=not settings.libraries.at_least("torch", "2.8"),
        gradient_bytes=max(settings.gradient_bytes if settings.sharding == "none" else 2, 2),
        offload_stash=settings.release.offload_stash if settings.offload_activations else 0,
        tensor_parallel_size=settings.tensor_parallel_size,
        sequence_parallel=settings.sequence_parallel and settings.tensor_parallel_size > 1,
    )


_LIGER = frozenset({"transformers", "trl", "peft", "deepspeed", "ms-swift", "llama-factory"})


def liger(settings: Settings) -> bool:
    """
    Whether Liger's kernels replace norms and gates too: a fused loss is had by its patch of the whole model.

    Source: huggingface/transformers@v4.46.0 src/transformers/training_args.py use_liger_kernel; linkedin/Liger-Kernel
    src/liger_kernel/transformers/monkey_patch.py
    """
    return settings.cross_entropy == "fused_linear" and settings.card.framework in _LIGER


def closed_form(recipe: Recipe) -> bool:
    """Whether a step is made of fused kernels that no eager code describes."""
    fused = recipe.compiled or recipe.code in ("torchtitan", "megatron") or recipe.checkpointing == "selective"
    return fused or recipe.tensor_parallel_size > 1


def _engine_width(settings: Settings) -> int:
    """Sharded engines compute on gathered parameters of the compute dtype, without autocast. [bytes]"""
    gathered = settings.sharding in FSDP or (settings.sharding not in ("none", "ddp") and not settings.autocast)
    return settings.compute_bytes if gathered else 4


def _attention(settings: Settings) -> Literal["flash", "masked", "eager"]:
    name = settings.attention
    if name == "eager":
        return "eager"
    if any(part in name for part in _UNPADDED) or settings.packed:
        return "flash"
    padded = settings.varying and settings.micro_batch_size > 1 and settings.release.code == "transformers"
    return "masked" if padded else "flash"


def masks_windows(settings: Settings, model: Model) -> bool:
    """Flash kernels know windows; PyTorch's own attention takes a mask for them."""
    if settings.attention != "sdpa" or settings.release.code != "transformers":
        return False
    return _smallest_window(model) < settings.sequence_length


@per_model()
def _smallest_window(model: Model) -> float:
    """Infinite where no layer has a window. [tokens]"""
    windows = [g.layer.attention.window for g in model.layers if g.layer.attention is not None]
    return min((window for window in windows if window is not None), default=inf)


def _checkpointing(settings: Settings) -> Literal["none", "full", "reentrant", "selective"]:
    if settings.gradient_checkpointing == "full":
        return "reentrant" if settings.release.reentrant else "full"
    return "selective" if settings.gradient_checkpointing == "selective" else "none"


def remote_code(settings: Settings, model: Model) -> bool:
    """The checkpoint's own classes run: a model type of theirs, or adapter targets that only they have."""
    if model.code.own_code:
        return True
    lora = settings.card.lora
    names = set(lora.target_modules or ()) if lora is not None else set()
    return bool(names & _FOREIGN) and settings.release.code == "transformers" and not _has_modules(model, names)


def _has_modules(model: Model, names: set[str]) -> bool:
    tensors = model.layers[0].layer.tensors if model.layers else ()
    own = {part for t in tensors for part in t.name.split(".")}
    return bool(names & own & _FOREIGN)
