"""Phases beside the training step: samples generated for it, evaluation, saving, merging of adapters."""

from collections.abc import Iterable

from tonnage.estimate.training.caching import cache_per_token
from tonnage.estimate.training.evaluation import evaluation
from tonnage.estimate.training.objectives import Objective
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.saving import export, merge
from tonnage.estimate.training.settings import Settings
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.sizes import Rank
from tonnage.estimate.training.step import Moment, moment
from tonnage.laws import loss
from tonnage.spec.card import Training
from tonnage.spec.model import Model
from tonnage.spec.workload import Workload

_IN_A_STEP = frozenset({"load", "forward", "backward", "optimizer_step"})


def named_phases(workload: Workload) -> tuple[str, ...]:
    """Phases outside a step that the card describes, or that a failure or a measurement of it names."""
    described = _described(workload.training)
    if workload.failure is None and not workload.measurements:
        return described
    failed = (workload.failure.phase,) if workload.failure is not None else ()
    phases = (*described, *failed, *(m.phase for m in workload.measurements))
    return tuple(sorted({phase for phase in phases if phase is not None} - _IN_A_STEP))


def _described(card: Training | None) -> tuple[str, ...]:
    if card is None or (card.evaluation is None and card.export is None):
        return ()
    saved = ("export",) if card.export is not None else ()
    merged = ("merge",) if card.export is not None and card.export.merge else ()
    return (*(("evaluation",) if card.evaluation is not None else ()), *saved, *merged)


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
        named: Phases that the card describes, or that a failure or a measurement of it names.
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
        found.append(evaluation(job, model, recipe, objective, holds=holds, rank=rank))
    if "export" in wanted:
        found.append(export(job, model, rank.sizes))
    if "merge" in wanted and not job.trains_base:
        found.append(merge(job))
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
        cache=tokens * cache_per_token(model) // job.tensor_parallel_size,
    )
