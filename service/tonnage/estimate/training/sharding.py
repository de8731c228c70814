"""What one data-parallel rank holds and gathers under each kind of sharding."""

from typing import NamedTuple

from tonnage.estimate.training.settings import FSDP, TRAINERS, Settings
from tonnage.laws import gradients
from tonnage.laws import training_sharding as laws


class Sizes(NamedTuple):
    """The model part of one pipeline stage and tensor-parallel rank, before data parallelism cuts it. [bytes]"""

    weights: int
    """All weights, adapters and saved modules aside."""
    adapters: int
    master: int
    states: int
    gradients: int
    trainable: int
    """Trainable parameters. [unitless]"""
    block_gathered: int
    """Largest layer in the compute dtype, as gathered. [bytes]"""
    block_trainable: int
    """Trainable parameters of the largest layer. [unitless]"""
    vocabulary: int
    """Elements of embedding or head on the rank. [elements]"""
    hidden_size: int
    tables: int = 2
    """Embedding, and a head that is a tensor of its own. [unitless]"""
    routed: int = 0
    """Those of the trainable parameters that lie in experts. [unitless]"""


class Held(NamedTuple):
    """What a rank holds beside activations. [bytes]"""

    weights: int
    adapters: int
    master: int
    states: int
    gradients_before: int
    """Gradients that are there when backward begins."""
    gradients_done: float
    """Part of a finished layer's gradients that stays. [fraction]"""
    buckets: int
    """Buffers of reduction and prefetch."""
    live_forward: int
    """Gathered parameters while a layer runs forward."""
    live_tail: int
    """Gathered parameters at head and loss."""
    live_backward: int
    """Gathered parameters, unsharded gradients and their reduction while a layer runs backward."""
    step: int
    """Temporaries of the optimizer step that sharding adds."""
    gradients_after: int
    """Gradients when the step begins."""
    permanent: int = 0
    """Buffers that stay between steps."""
    load: int = 0
    """Most that loading holds, where more than the resident weights."""
    held_units: int = 0
    """Per layer that backward has passed: its parameters, where they stay gathered."""
    held_inputs: int = 0
    """Per layer that backward has passed: gradient of its input, where hooks keep both. [bytes/token]"""


def held(settings: Settings, sizes: Sizes) -> Held:
    """What a rank holds under the settings' sharding."""
    kind = settings.sharding
    if kind in ("zero1", "zero2"):
        return _zero12(settings, sizes)
    if kind == "zero3":
        return _zero3(settings, sizes)
    if kind in FSDP:
        return _fsdp(settings, sizes)
    if kind == "distributed_optimizer":
        return _distributed_optimizer(settings, sizes)
    return _replicated(settings, sizes)


def paged_share(settings: Settings, states: int) -> int:
    """
    A rank's part of the states in unified memory.

    Args:
        settings: Of the job.
        states: Of everything that trains. [bytes]

    Returns:
        Managed memory of one rank. [bytes]
    """
    replicated = settings.sharding in ("none", "ddp")
    return states if replicated else laws.shard(amount=states, ranks=settings.shards)


def _replicated(settings: Settings, sizes: Sizes) -> Held:
    buckets = gradients.ddp_buckets(gradient_bytes=sizes.gradients) if settings.sharding == "ddp" else 0
    before = sizes.gradients if settings.gradients_stay else 0
    return Held(
        weights=0 if settings.offload_parameters else sizes.weights,
        adapters=sizes.adapters,
        master=0 if settings.offload_optimizer else sizes.master,
        states=0 if settings.offload_optimizer else sizes.states,
        gradients_before=0 if settings.in_backward else before,
        gradients_done=0.0 if settings.in_backward else 1.0,
        buckets=buckets,
        live_forward=0,
        live_tail=0,
        live_backward=0,
        step=0,
        gradients_after=0 if settings.in_backward else sizes.gradients,
        load=_loaded(settings, sizes),
    )


def _loaded(settings: Settings, sizes: Sizes) -> int:
    """Most that loading holds: tables that pass through fp32 on their way into a frozen model. [bytes]"""
    if not settings.release.tables_upcast_at_load or settings.trains_base:
        return 0
    return sizes.weights + laws.upcast_tables(elements=sizes.vocabulary, tables=sizes.tables)


def _zero12(settings: Settings, sizes: Sizes) -> Held:
    ranks, on_gpu = settings.shards, not settings.offload_optimizer
    accumulates = settings.gradient_accumulation_steps > 1
    two = settings.sharding == "zero2"
    share = 1 / ranks if two else 1.0
    kept = laws.shard(amount=sizes.gradients, ranks=ranks) if two else sizes.gradients
    step = (laws.zero2_step if two else laws.zero1_step)(trainable=sizes.trainable, ranks=ranks)
    return Held(
        weights=sizes.weights,
        adapters=sizes.adapters,
        master=laws.shard(amount=sizes.master, ranks=ranks) if on_gpu else 0,
        states=laws.shard(amount=sizes.states, ranks=ranks) if on_gpu else 0,
        gradients_before=kept if accumulates and on_gpu else 0,
        gradients_done=share if on_gpu or not two else 0.0,
        buckets=laws.zero_buckets(bucket=_bucket(settings)),
        live_forward=0,
        live_tail=0,
        live_backward=0,
        step=max(0, step - kept) if on_gpu else 0,
        gradients_after=kept if on_gpu else 0,
    )


def _bucket(settings: Settings) -> int:
    """reduce_bucket_size: DeepSpeed's own, or that of the configurations Transformers is published with. [elements]"""
    return laws.ZERO_BUCKET if settings.card.framework == "deepspeed" else laws.PUBLISHED_BUCKET


def _zero3(settings: Settings, sizes: Sizes) -> Held:
    ranks = settings.shards
    weights = 0 if settings.offload_parameters else laws.shard(amount=sizes.weights + sizes.adapters, ranks=ranks)
    on_gpu = not (settings.offload_optimizer or settings.offload_parameters)
    automatic = settings.card.framework != "deepspeed"
    prefetch = laws.zero3_prefetch(hidden_size=sizes.hidden_size, automatic=automatic)
    head = laws.gathered_unit(parameters=sizes.vocabulary, element_bytes=2)
    small_head = sizes.vocabulary < laws.ZERO_SUB_GROUP
    return Held(
        weights=weights,
        adapters=0,
        master=laws.shard(amount=sizes.master, ranks=ranks) if on_gpu else 0,
        states=laws.shard(amount=sizes.states, ranks=ranks) if on_gpu else 0,
        gradients_before=0,
        gradients_done=0.0,
        buckets=prefetch,
        live_forward=2 * sizes.block_gathered,
        live_tail=head + (2 * sizes.block_gathered if small_head else 0),
        live_backward=2 * sizes.block_gathered,
        step=laws.zero3_step(trainable=sizes.trainable, ranks=ranks) if on_gpu else 0,
        gradients_after=0,
        permanent=(2 * laws.shard(amount=sizes.trainable, ranks=ranks) if on_gpu else 0)
        + laws.zero3_reduce_bucket(hidden_size=sizes.hidden_size, automatic=automatic),
        load=0 if automatic else sizes.weights + sizes.adapters + weights,
    )


def _fsdp(settings: Settings, sizes: Sizes) -> Held:
    ranks, flat = settings.shards, settings.release.fsdp == "fsdp1_flat"
    whole = sizes.weights + sizes.adapters
    on_gpu = not settings.offload_parameters
    staged = settings.pipeline_parallel_size > 1 and settings.release.fsdp == "fsdp2"
    keeps_whole = settings.sharding == "fsdp_grad_op" or staged
    unit, root = sizes.block_gathered, laws.gathered_unit(parameters=sizes.vocabulary, element_bytes=2)
    resharded = settings.release.embedding_resharded
    outer = 0 if resharded else 2 * root
    trained = whole if flat else sizes.gradients
    gradients_shard = laws.shard(amount=trained, ranks=ranks)
    deferred = on_gpu and (settings.defers_reduction or staged)
    before = gradients_shard if settings.gradient_accumulation_steps > 1 and on_gpu else 0
    if deferred:
        width = 4 if staged and settings.weight_bytes == 4 else settings.compute_bytes
        before = laws.deferred_gradients(parameters=sizes.trainable, element_bytes=width)
    copies = laws.flat_unit_copies(shard_bytes=laws.shard(amount=whole, ranks=ranks)) if flat else 0
    return Held(
        weights=laws.shard(amount=sizes.weights, ranks=ranks) if on_gpu else 0,
        adapters=laws.shard(amount=sizes.adapters, ranks=ranks) if on_gpu else 0,
        master=laws.shard(amount=sizes.master, ranks=ranks) if on_gpu else 0,
        states=laws.shard(amount=sizes.states, ranks=ranks) if on_gpu and not settings.offload_optimizer else 0,
        gradients_before=before,
        gradients_done=1 / ranks if on_gpu and not deferred else 0.0,
        buckets=0,
        live_forward=whole if keeps_whole else 2 * unit + outer,
        live_tail=whole if keeps_whole else max(root, outer) + (0 if resharded else unit),
        live_backward=(whole if keeps_whole else 2 * unit + outer) + _reduction(settings, sizes, flat),
        step=0,
        gradients_after=gradients_shard if on_gpu else 0,
        permanent=copies,
        load=laws.summoned(parameters=whole // 2, element_bytes=2, ranks=ranks) + copies if flat else 0,
        held_inputs=_held_inputs(settings, sizes),
        held_units=unit if _never_reshards(settings) else 0,
    )


def _never_reshards(settings: Settings) -> bool:
    """
    Whether units of a frozen base stay gathered until backward ends.

    Source: pytorch/pytorch@v2.1.0 torch/distributed/fsdp/_runtime_utils.py _register_post_backward_reshard_only_hook (new there)
    """
    old = settings.release.fsdp == "fsdp1" and not settings.libraries.at_least("torch", "2.1")
    return old and not settings.trains_base


def _held_inputs(settings: Settings, sizes: Sizes) -> int:
    recomputed = settings.release.reentrant and settings.gradient_checkpointing == "full"
    hooked = settings.card.framework in TRAINERS and settings.release.fsdp == "fsdp1"
    if settings.trains_base or not hooked or not recomputed:
        return 0
    return laws.hooked_inputs(hidden_size=sizes.hidden_size, element_bytes=settings.compute_bytes)


def _reduction(settings: Settings, sizes: Sizes, flat: bool) -> int:
    """Gradients of a unit on their way into shards; in one flat unit frozen weights get them too."""
    if flat:
        return 2 * sizes.block_gathered
    return (
        laws.reduced_unit(
            parameters=sizes.block_trainable,
            gradient_bytes=settings.compute_bytes,
            reduce_bytes=4 if settings.weight_bytes == 4 else settings.compute_bytes,
        )
        - sizes.block_trainable * settings.compute_bytes
    )


def _distributed_optimizer(settings: Settings, sizes: Sizes) -> Held:
    replicas = max(1, settings.shards // settings.expert_parallel_size)
    states = laws.distributed_optimizer_states(parameters=sizes.trainable - sizes.routed, ranks=settings.shards)
    states += laws.distributed_optimizer_states(parameters=sizes.routed, ranks=replicas)
    return Held(
        weights=sizes.weights,
        adapters=sizes.adapters,
        master=states // 3,
        states=states - states // 3,
        gradients_before=sizes.gradients,
        gradients_done=0.0,
        buckets=0,
        live_forward=0,
        live_tail=0,
        live_backward=0,
        step=0,
        gradients_after=sizes.gradients,
    )
