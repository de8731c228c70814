"""Models as lists and entries show them: what one filters by, and the architecture in counts and words."""

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from tonnage.architecture import describe_layers, parameters_by_component
from tonnage.architecture.checkpoint_format import weight_format_of
from tonnage.catalog.contents import Catalog
from tonnage.catalog.models import find_model
from tonnage.spec.facts import ModelFacts

Modality = Literal["text", "vision", "audio"]

_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx", "max_target_positions")
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


class ModelRow(Struct, frozen=True, kw_only=True):
    """A model as lists show it; its entry has the whole config."""

    id: str
    family: str
    model_type: str
    architectures: tuple[str, ...]
    parameters_total: int
    parameters_active: int | None
    max_position_embeddings: int | None
    """Context of the text model. [tokens]"""
    modalities: tuple[Modality, ...]
    mixture_of_experts: bool
    weight_format: str | None
    """Format of the checkpoint; None where the config does not say."""
    licence: str | None
    trust: str
    aliases: tuple[str, ...]
    same_architecture: tuple[str, ...]
    source: str
    as_of: str | None


class ModelEntry(Struct, frozen=True, kw_only=True):
    """One model whole: published facts, and the architecture as it is read from them."""

    id: str
    family: str
    model_type: str
    architectures: tuple[str, ...]
    layers: str
    """Layer map in words."""
    num_hidden_layers: int
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    modalities: tuple[Modality, ...]
    dtype: str
    weight_format: str
    parameters_total: int
    parameters_active: int | None
    parameters_by_component: dict[str, int]
    unknown_fields: tuple[str, ...]
    """Fields of the config that no law understands and that may matter."""
    published_parameters: int | None
    count_check: str
    count_explanation: str | None
    fields_fitted_to_count: tuple[str, ...]
    trust: str
    licence: str | None
    aliases: tuple[str, ...]
    same_architecture: tuple[str, ...]
    config: dict[str, Any]
    source: str
    as_of: str | None
    notes: str | None


def model_row(facts: ModelFacts) -> ModelRow:
    """
    Line of a list, without reading the architecture.

    Args:
        facts: The record.

    Returns:
        What one filters and sorts by.
    """
    text = facts.config.get("text_config") or facts.config
    return ModelRow(
        model_type=str(facts.config.get("model_type")),
        max_position_embeddings=next((text[key] for key in _CONTEXT if isinstance(text.get(key), int)), None),
        modalities=_modalities(facts),
        mixture_of_experts=bool(facts.parameters_by_component.get("routed_experts")),
        weight_format=facts.weight_format or _stated_format(facts.config, text),
        **_shared(facts, ModelRow, "model_type", "max_position_embeddings", "modalities", "weight_format"),
    )


def model_entry(catalog: Catalog, facts: ModelFacts) -> ModelEntry:
    """
    Entry of a model, its architecture read.

    Args:
        catalog: The facts it stands in.
        facts: The record.

    Returns:
        Published facts and what they amount to.
    """
    model = find_model(catalog, facts.id).model
    read = {
        name: getattr(model, name)
        for name in (
            "model_type", "num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings", "dtype",
            "parameters_total", "parameters_active", "unknown_fields", "trust",
        )
    }  # fmt: skip
    return ModelEntry(
        **read,
        layers=describe_layers(model),
        modalities=_modalities(facts),
        weight_format=model.weight_format or model.dtype,
        parameters_by_component={str(name): count for name, count in parameters_by_component(model).items()},
        **_shared(facts, ModelEntry, *read, "modalities", "weight_format", "parameters_by_component"),
    )


def _shared(facts: ModelFacts, shown: type[Struct], *made: str) -> dict[str, Any]:
    """Fields that a record and its view have in common, but for those made otherwise. [unitless]"""
    fields = asdict(facts)
    return {name: fields[name] for name in shown.__struct_fields__ if name in fields and name not in made}


def _modalities(facts: ModelFacts) -> tuple[Modality, ...]:
    """What goes in: text always, more where a tower holds parameters or a spectrogram is read."""
    counted, config = facts.parameters_by_component, facts.config
    found: list[Modality] = ["text"]
    if counted.get("vision") or config.get("vision_config"):
        found.append("vision")
    if counted.get("audio") or config.get("audio_config") or "num_mel_bins" in config:
        found.append("audio")
    return tuple(found)


def _stated_format(config: dict[str, Any], text: dict[str, Any]) -> str | None:
    quantization = config.get("quantization_config") or text.get("quantization_config")
    if quantization:
        return weight_format_of(quantization)
    stated = (c.get(key) for c in (config, text) for key in ("torch_dtype", "dtype"))
    return next((_DTYPES[word] for word in stated if word in _DTYPES), None)
