"""Which adapters a training card describes, on which linears of its model."""

from tonnage.errors import ContradictoryWorkload
from tonnage.estimate.training.libraries import Libraries
from tonnage.estimate.training.methods import ADAPTER_METHODS, LIGHT_METHODS, PROMPT_METHODS
from tonnage.estimate.training.reader import Reader
from tonnage.estimate.training.targets import (
    ALL_LINEAR,
    Adapted,
    adapted_linears,
    default_targets,
    names_of_linears,
    scaled_targets,
    unmatched,
)
from tonnage.laws import adapters as laws
from tonnage.spec.card import Training
from tonnage.spec.framework import Defaults, FrameworkRelease
from tonnage.spec.model import Model
from tonnage.spec.workload import Workload


def adapters_of(
    workload: Workload, card: Training, read: Reader, release: FrameworkRelease, libraries: Libraries
) -> tuple[tuple[Adapted, ...], int, bool]:
    """
    Adapted linears, rank (of prompts: virtual tokens) and whether there is dropout.

    Args:
        workload: Resolved card.
        card: Its training part.
        read: Notes what is assumed.
        release: The framework's version.
        libraries: Versions beside it.

    Returns:
        No linears where the base model or prompts train.

    Raises:
        ContradictoryWorkload: No stated name is a linear of the model.
    """
    if card.method not in ADAPTER_METHODS and card.method not in LIGHT_METHODS:
        return (), 0, False
    lora, defaults, model = card.lora, release.defaults, workload.model
    targets = tuple(lora.target_modules) if lora is not None and lora.target_modules is not None else None
    stated = lora.rank if lora is not None else None
    if card.method in PROMPT_METHODS:
        return (), stated or _virtual_tokens(card, read, model), False
    rank = stated if stated is not None else read.assume("lora.rank", defaults.lora_rank, read.why)
    if targets is None:
        targets = _default_targets(card, defaults, model)
        read.assume("lora.target_modules", list(targets), read.why)
    dropout = lora.dropout if lora is not None else None
    if dropout is None and card.method in ADAPTER_METHODS:
        dropout = read.assume("lora.dropout", defaults.lora_dropout, read.why)
    # TEGroupedLinear carries a pair for each expert (NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/peft/lora.py)
    experts = libraries.experts_are_linears or release.code == "megatron"
    linears = adapted_linears(model, targets, experts)
    if lora is not None and lora.target_modules is not None and model.trust != "count":
        _named_linears(model, targets, linears, read, experts)
    elif not linears:
        linears = _other_linears(model, read, experts)
    return linears, rank, bool(dropout)


def _virtual_tokens(card: Training, read: Reader, model: Model) -> int:
    """Tokens of a prompt or prefix: by the stated count of what trains, else as examples have it. [tokens]"""
    trained = card.lora.trainable_parameters if card.lora is not None else None
    one = prompt_parameters(model, card.method)
    if trained is not None and trained >= one:
        tokens = trained // one
        return int(read.assume("lora.rank", tokens, f"virtual tokens that hold {trained} parameters"))
    why = f"virtual tokens of {read.why}s examples".replace("default of ", "")
    return int(read.assume("lora.rank", read.defaults.virtual_tokens, why))


def prompt_parameters(model: Model, method: str) -> int:
    """Parameters of one virtual token: an embedding, or keys and values in every layer. [unitless]"""
    if method == "prompt-tuning":
        return laws.prompt(virtual_tokens=1, hidden_size=model.hidden_size)
    return laws.prefix(
        virtual_tokens=1, num_hidden_layers=model.num_hidden_layers, key_value_width=key_value_width(model)
    )


def key_value_width(model: Model) -> int:
    """Width of one layer's keys. [elements]"""
    widths = (g.layer.attention for g in model.layers if g.layer.attention is not None)
    return next((a.num_key_value_heads * a.head_dim for a in widths), model.hidden_size)


def _named_linears(
    model: Model, targets: tuple[str, ...], linears: tuple[Adapted, ...], read: Reader, experts: bool
) -> None:
    """
    Refuse names of which none is a linear of the model, as PEFT does; note those that are not, which it passes over.

    Source: huggingface/peft@v0.21.2 src/peft/tuners/tuners_utils.py inject_adapter ("Target modules ... not found")
    """
    if not linears:
        raise ContradictoryWorkload(
            f"none of {_listed(targets)} is a linear of this model; its linears: {_listed(names_of_linears(model))}",
            pointer="/training/lora/target_modules",
        )
    missing = unmatched(model, targets, experts)
    if missing:
        others = [t for t in targets if t not in missing]
        read.assume("lora.target_modules", others, f"no linear of this model is called {_listed(missing)}")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _default_targets(card: Training, defaults: Defaults, model: Model) -> tuple[str, ...]:
    return scaled_targets(model) if card.method == "ia3" else defaults.lora_target_modules or default_targets(model)


def _other_linears(model: Model, read: Reader, experts: bool) -> tuple[Adapted, ...]:
    """Where no linear has one of the names: PEFT's own choice, else all linears."""
    for targets in (default_targets(model), (ALL_LINEAR,)):
        linears = adapted_linears(model, targets, experts)
        if linears:
            read.assume("lora.target_modules", list(targets), "none of the names is a linear of this model")
            return linears
    raise ContradictoryWorkload("no linear of this model can carry an adapter", pointer="/training/lora/target_modules")
