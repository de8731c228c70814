"""Phases beside the training step: samples generated for it, evaluation, saving, merging of adapters."""

from collections.abc import Iterable

from msgspec.structs import replace

from tonnage.estimate.training.objectives import Objective
from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.training.profile import forward_without_gradients
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.settings import FSDP, Settings
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.sizes import Rank
from tonnage.estimate.training.step import Batch, Moment, moment
from tonnage.estimate.training.tape import Form, value
from tonnage.laws import adapters, kv_cache, loss
from tonnage.spec.model import Model
from tonnage.spec.workload import Workload

EVALUATED = 8
"""per_device_eval_batch_size of the Hugging Face Trainer. [unitless]"""
_IN_A_STEP = frozenset({"load", "forward", "backward", "optimizer_step"})
_TRAINER = frozenset({"transformers", "trl", "peft", "llama-factory"})


def named_phases(workload: Workload) -> tuple[str, ...]:
    """Phases outside a step that a failure or a measurement of the card names."""
    if workload.failure is None and not workload.measurements:
        return ()
    failed = (workload.failure.phase,) if workload.failure is not None else ()
    phases = (*failed, *(m.phase for m in workload.measurements))
    return tuple(sorted({phase for phase in phases if phase is not None} - _IN_A_STEP))


def other_moments(
    job: Settings, model: Model, recipe: Recipe, objective: Objective, *, named: Iterable[str], holds: Held, rank: Rank
) -> list[Moment]:
    """
    Highest points of phases outside the step: generation where the objective asks for it, others where the card names them.

    Args:
        job: The job.
        model: Architecture.
        recipe: What decides the tensors of its step.
        objective: What the objective adds.
        named: Phases that a failure or a measurement of the card names.
        holds: What the rank holds.
        rank: The rank.

    Returns:
        One moment each.
    """
    wanted = set(named) | ({"generation"} if objective.generates else set())
    found = []
    if "generation" in wanted:
        found.append(_generation(job, model, objective, holds))
    if "evaluation" in wanted:
        found.append(_evaluation(job, model, recipe, holds, rank))
    if "export" in wanted:
        gathered = holds.live_forward if job.sharding in FSDP or job.sharding == "zero3" else 0
        found.append(moment("export", "one gathered layer", live=gathered))
    if "merge" in wanted and not job.trains_base:
        found.append(_merge(job))
    return found


def _generation(job: Settings, model: Model, objective: Objective, holds: Held) -> Moment:
    """
    generate() between steps: the samples of a whole optimizer step at once, keys and values in 16 bit.

    PPO keeps the scores of every generated token in fp32 (huggingface/trl@f2cd57710 trl/trainer/utils.py generate).
    """
    if job.card.vllm_gpu_memory_utilization is not None:
        return moment("generation", "samples of the colocated engine", live=holds.live_forward)
    samples = job.micro_batch_size * max(1, job.gradient_accumulation_steps)
    tokens = samples * job.sequence_length
    rows = tokens // 2 if objective.keeps_scores else samples
    scores = loss.generated_scores(vocab_size=model.vocab_size, rows=rows)
    return moment(
        "generation",
        "keys and values of generated samples",
        logits=scores,
        live=holds.live_forward,
        cache=tokens * _cache_per_token(model) // job.tensor_parallel_size,
    )


@per_model()
def _cache_per_token(model: Model) -> int:
    """Keys and values of one token as DynamicCache holds them, latent ones expanded. [bytes/token]"""
    return sum(
        group.count
        * kv_cache.full_attention(
            num_key_value_heads=attention.num_key_value_heads,
            key_bytes=2 * attention.head_dim,
            value_bytes=2 * attention.v_head_dim,
        )
        for group in model.layers
        if (attention := group.layer.attention) is not None
    )


def _evaluation(job: Settings, model: Model, recipe: Recipe, holds: Held, rank: Rank) -> Moment:
    """Forward without gradients on the Trainer's larger batch; nothing is kept."""
    batch = EVALUATED if job.card.framework in _TRAINER else job.micro_batch_size
    tokens = batch * job.sequence_length // job.context_parallel_size
    padded = -(-job.sequence_length // 128) * 128 * batch
    measures = Batch(tokens, job.sequence_length, padded, tokens).measures
    points = inference_points(model, replace(recipe, checkpointing="none"))
    activations = max((value(point, measures) for point in points), default=0)
    each = round(recipe.loss[0] * model.vocab_size // job.tensor_parallel_size)
    logits = loss.at_moment(bytes_per_scored_token=each, scored_tokens=tokens) if rank.last else 0
    return moment(
        "evaluation", "forward without gradients", activations=activations, logits=logits, live=holds.live_forward
    )


@per_model()
def inference_points(model: Model, recipe: Recipe) -> tuple[Form, ...]:
    """Highest points of a layer's forward pass without gradients, above its input's predecessor."""
    return forward_without_gradients(model, recipe)


def _merge(job: Settings) -> Moment:
    """merge_and_unload, one linear at a time."""
    largest = max((a.in_features * a.out_features for a in job.adapters), default=0)
    product = adapters.merged(elements=largest, adapter_bytes=job.adapter_bytes, quantized=job.quantized)
    return moment("merge", "product of one adapter", scratch=product)
