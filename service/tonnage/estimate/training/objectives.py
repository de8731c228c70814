"""What preference and reinforcement objectives add: longer batches, reference and reward models, their loss."""

from typing import NamedTuple

from tonnage.estimate.training.methods import ADAPTER_METHODS
from tonnage.estimate.training.settings import Settings
from tonnage.laws.loss import LogitBytes


class Objective(NamedTuple):
    """One objective's difference from plain supervised training."""

    sequences: int = 1
    """Sequences per example in one forward pass: chosen and rejected. [unitless]"""
    frozen_models: int = 0
    """Further copies of the base model without gradients: reference, reward. [unitless]"""
    own_models: int = 0
    """Those of them that remain with adapters, where the reference is the model without them. [unitless]"""
    trained_models: int = 1
    """Models with gradients and states: the policy, PPO's value model. [unitless]"""
    loss: LogitBytes | None = None
    """Bytes per logit where the objective has a loss of its own. [bytes]"""
    generates: bool = False
    keeps_scores: bool = False
    """The scores of every generated token are kept until all are there."""
    scores: bool = False
    """The head gives one number."""
    unknowns: tuple[str, ...] = ()


def objective_of(job: Settings) -> Objective:
    """
    The objective's share.

    Source:
        huggingface/trl@f2cd57710 trl/trainer/{dpo,orpo,kto,reward,ppo,grpo}_trainer.py: chosen and rejected in one forward
        pass; log-probabilities row by row without upcast (6 forward, 8 backward); the reference is the model with adapters
        disabled where there are any; packed rows hold both (ms-swift@v3.5.0);
        GRPO without reference by default (beta 0 since 0.18)
    """
    objective = _OBJECTIVES.get(job.objective, Objective())
    if job.packed and job.release.code == "transformers":
        objective = objective._replace(sequences=1)
    if job.objective in ("dpo", "kto") and not job.libraries.at_least("transformers", "4.46"):
        objective = objective._replace(loss=_PREFERENCE_WHOLE)
    if job.objective == "grpo" and job.card.framework == "trl" and not job.libraries.at_least("trl", "0.18"):
        objective = objective._replace(frozen_models=1)
    if job.card.cross_entropy == "fused_linear" and not objective.scores:
        objective = objective._replace(loss=None)
    if job.method in ADAPTER_METHODS:
        return objective._replace(frozen_models=objective.own_models)
    return objective


_GENERATION = ("a colocated generation engine and its share of the card", "length of completions against prompts")
_PREFERENCE: LogitBytes = (6, 4, 8, 2)
_PREFERENCE_WHOLE: LogitBytes = (18, 8, 16, 4)
"""Log-softmax over all logits in fp32, while the policy's logits stay for metrics: trl before row-wise log-softmax."""
_MISMATCHED: LogitBytes = (10, 8, 12, 2)
"""The same beside the logits of policy and reference for the mismatched completions, without gradient (2 each)."""
_POLICY: LogitBytes = (4, 2, 8, 2)
_OBJECTIVES = {
    "dpo": Objective(2, 1, loss=_PREFERENCE),
    "orpo": Objective(2, loss=_PREFERENCE),
    "kto": Objective(1, 1, loss=_MISMATCHED),
    "reward": Objective(2, loss=(0, 0, 0, 2), scores=True),
    "ppo": Objective(1, 2, 1, trained_models=2, loss=_POLICY, generates=True, keeps_scores=True, unknowns=_GENERATION),
    "grpo": Objective(1, 0, loss=_POLICY, generates=True, unknowns=_GENERATION),
}
