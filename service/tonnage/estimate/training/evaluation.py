"""The evaluation loop between training steps: forward without gradients, and the logits it keeps for metrics."""

from msgspec.structs import replace

from tonnage.estimate.training.caching import cache_per_token
from tonnage.estimate.training.objectives import Objective
from tonnage.estimate.training.per_model import per_model
from tonnage.estimate.training.profile import forward_without_gradients
from tonnage.estimate.training.recipe import Recipe
from tonnage.estimate.training.settings import Settings
from tonnage.estimate.training.sharding import Held
from tonnage.estimate.training.sizes import Rank
from tonnage.estimate.training.step import Batch, Moment, moment
from tonnage.estimate.training.tape import Form, value
from tonnage.laws import evaluation as laws
from tonnage.laws import loss
from tonnage.spec.card import Evaluation
from tonnage.spec.model import Model

BATCH = 8
"""per_device_eval_batch_size of the Hugging Face Trainer. [unitless]"""
_TRAINER = frozenset({"transformers", "trl", "peft", "llama-factory"})
_LOOP = _TRAINER | {"axolotl", "ms-swift", "unsloth"}
"""Frameworks whose evaluation is the Trainer's, which may keep logits for metrics."""


def evaluation(job: Settings, model: Model, recipe: Recipe, objective: Objective, *, holds: Held, rank: Rank) -> Moment:
    """
    The highest point of an evaluation on the training GPUs.

    Args:
        job: The job.
        model: Architecture.
        recipe: What decides the tensors of its step.
        objective: What the objective adds.
        holds: What the rank holds.
        rank: The rank.

    Returns:
        Either a forward pass beside the logits kept so far, or these while the last ones are joined to them.
    """
    asked = job.card.evaluation or Evaluation()
    samples = samples_of(job)
    length = asked.sequence_length or job.sequence_length
    batch = _measures(job, samples * objective.sequences, length)
    ahead = _forward(job, model, recipe, batch, holds=holds, rank=rank)
    if not keeps_logits(job) or not rank.last:
        return ahead
    kept = _kept_batches(job, asked, samples)
    each = _logits(job, model, recipe, batch) * job.ranks
    before = laws.kept_before(batch_bytes=each, batches=kept)
    ahead = ahead._replace(predictions=before, total=ahead.total + before)
    joined = moment(
        "evaluation",
        f"logits of {kept} batches, joined",
        live=holds.live_forward,
        predictions=laws.joining(batch_bytes=each, batches=kept),
    )
    return max(ahead, joined, key=_total)


def open_evaluation(job: Settings) -> tuple[str, ...]:
    """What is not known of an evaluation that the card describes."""
    asked = job.card.evaluation
    if asked is None or not keeps_logits(job) or asked.samples or asked.eval_accumulation_steps:
        return ()
    return (
        "logits kept for metrics are those of one batch: state evaluation.samples or evaluation.eval_accumulation_steps",
    )


def keeps_logits(job: Settings) -> bool:
    """Whether logits are kept: the Trainer does so where metrics are computed from them."""
    asked = job.card.evaluation
    return asked is not None and asked.prediction_loss_only is False and job.card.framework in _LOOP


def samples_of(job: Settings) -> int:
    """Samples of an evaluation batch on one GPU. [unitless]"""
    stated = job.card.evaluation.per_device_eval_batch_size if job.card.evaluation is not None else None
    return stated or (BATCH if job.card.framework in _TRAINER else job.micro_batch_size)


def _kept_batches(job: Settings, asked: Evaluation, samples: int) -> int:
    return laws.batches(
        samples=asked.samples or 0,
        per_device_batch_size=samples,
        ranks=job.ranks,
        accumulation_steps=asked.eval_accumulation_steps or 0,
    )


def _measures(job: Settings, samples: int, length: int) -> Batch:
    tokens = samples * (length + job.virtual_tokens) // job.context_parallel_size
    padded = -(-length // 128) * 128 * samples
    return Batch(tokens, length, padded, tokens)


def _logits(job: Settings, model: Model, recipe: Recipe, batch: Batch) -> int:
    """Logits of a batch as the model returns them: in fp32 under mixed precision (accelerate). [bytes]"""
    if recipe.scores:
        return 4 * batch.tokens // batch.length
    width = 4 if job.autocast else recipe.norm_bytes
    return loss.at_moment(bytes_per_scored_token=width * model.vocab_size, scored_tokens=batch.scored)


def _forward(job: Settings, model: Model, recipe: Recipe, batch: Batch, *, holds: Held, rank: Rank) -> Moment:
    measures = batch.measures
    points = inference_points(model, replace(recipe, checkpointing="none", dropout=False), rank.last)
    highest = max(points, key=lambda point: value(point, measures), default=(0, 0, 0, 0, 0, 0))
    logits = highest[5] * batch.scored
    cached = 0
    if not job.libraries.at_least("transformers", "5.0") and job.card.framework in _TRAINER:
        cached = batch.tokens * cache_per_token(model) // job.tensor_parallel_size
    return moment(
        "evaluation",
        "forward without gradients",
        activations=value(highest, measures) - logits,
        logits=logits,
        live=holds.live_forward,
        cache=cached,
    )


@per_model()
def inference_points(model: Model, recipe: Recipe, scored: bool) -> tuple[Form, ...]:
    """Highest points of a forward pass without gradients, with head and loss where the rank has them."""
    return forward_without_gradients(model, recipe, scored=scored)


def _total(moment: Moment) -> int:
    return moment.total
