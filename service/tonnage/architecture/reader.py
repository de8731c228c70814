"""config.json or GGUF header -> `Model`: the front door of this package."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tonnage.architecture.checkpoint_format import weight_format_of
from tonnage.architecture.composition import Reading
from tonnage.architecture.counts import active_parameters, count_by_component
from tonnage.architecture.fields import Fields
from tonnage.architecture.generic import generic_table, unknown_fields
from tonnage.architecture.gguf_header import config_of, content_key, header_content, probably_tied, stored_format
from tonnage.architecture.prediction import prediction_layers, prediction_tensors
from tonnage.architecture.published import Comparison, best_reading, quantization_of
from tonnage.architecture.stated import DTYPES, refuse_odd_values
from tonnage.architecture.tables import class_code, tables
from tonnage.errors import ContradictoryWorkload, MissingFact
from tonnage.kept import Kept, weigh
from tonnage.spec.model import ClassCode, Model

Trust = Literal["exact", "checked", "recalled", "generic", "count"]
KEPT = 1024
"""Models kept in process by content; the oldest goes first. [unitless]"""

_HELD_PER_MODEL, _HELD_PER_BYTE, _HELD_PER_TENSOR, _HELD_PER_LAYER = 12_000, 12, 1_500, 200
"""What all caches together hold of an architecture, by trials on described ones of every shape. [bytes]"""
_GGUF_DTYPES = {"bf16": "bf16", "fp32": "fp32", "gguf-f16": "fp16"}
_kept: Kept[bytes, Model] = Kept(KEPT)


def read_config(
    config: Mapping[str, Any],
    *,
    id: str | None = None,  # noqa: A002
    revision: str | None = None,
    parameters: int | None = None,
    source: str = "config",
    trust: Trust | None = None,
) -> Model:
    """
    Architecture of a Hugging Face config.json.

    Args:
        config: The literal config.json, or the keys of it that shape the model.
        id: Repository id to report.
        revision: Revision to report.
        parameters: Published count; decides between readings (with or without head) and sets the trust. [unitless]
        source: Where the config comes from.
        trust: Trust to report instead of the derived one.

    Returns:
        The model; the same object for the same content.

    Raises:
        MissingFact: Keys without which the architecture is not defined; `pointer` is /model/config/<key>.
        ContradictoryWorkload: Values that cannot be, such as a layer list of the wrong length.
    """
    key = content_key(config, id, revision, parameters, source, trust)
    model = _kept.get(key)
    if model is None:
        model = msgspec.structs.replace(_read(config, parameters), id=id, revision=revision, source=source)
        model = _keep(key, model if trust is None else msgspec.structs.replace(model, trust=trust))
    return model


def _keep(key: bytes, model: Model) -> Model:
    kinds = sum(len(group.layer.tensors) for group in model.layers)
    weigh(
        _HELD_PER_MODEL
        + _HELD_PER_BYTE * len(key)
        + _HELD_PER_TENSOR * kinds
        + _HELD_PER_LAYER * model.num_hidden_layers
    )
    return _kept.keep(key, model)


def _read(config: Mapping[str, Any], parameters: int | None) -> Model:
    model_type = config.get("model_type")
    if model_type is None:
        raise MissingFact(
            "the config lacks model_type: without it the architecture is not defined",
            pointer="/model/config/model_type",
        )
    if not isinstance(model_type, str):
        raise ContradictoryWorkload(
            f"model_type must be a text such as 'llama', not {model_type!r:.60}", pointer="/model/config/model_type"
        )
    refuse_odd_values(config)
    table = tables().get(model_type)
    known = table is not None
    reading, comparison = best_reading(Fields(table or generic_table(config), config, given=_task(config)), parameters)
    if not known:
        unread = unknown_fields(reading)
        comparison = msgspec.structs.replace(
            comparison, trust="generic", unknown_fields=(*comparison.unknown_fields, *unread)
        )
    return _model(reading, comparison, model_type, config)


def _task(config: Mapping[str, Any]) -> dict[str, Any]:
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        return {}
    name = architectures[0]
    if name.endswith(("LMHeadModel", "DoubleHeadsModel")):
        return {"task": "CausalLM"}
    if name.endswith("EncoderModel"):
        return {"task": "EncoderModel"}
    return {"task": name.rpartition("For")[2] if "For" in name else "Model"}


def _model(reading: Reading, comparison: Comparison, model_type: str, config: Mapping[str, Any]) -> Model:
    text = reading.text
    counts = count_by_component(reading.layers, reading.outside)
    dtype = _dtype(config, text.config)
    quantization = quantization_of(reading)
    return Model(
        family=reading.fields.table.family or model_type,
        model_type=model_type,
        dtype=dtype,
        parameters_total=sum(counts.values()),
        parameters_active=active_parameters(reading.layers, reading.outside),
        hidden_size=text.integer("hidden_size"),
        vocab_size=text.count("vocab_size"),
        max_position_embeddings=text.count("max_position_embeddings"),
        tie_word_embeddings=text.flag("tied"),
        layers=reading.layers,
        outside=reading.outside,
        extra_checkpoint=prediction_tensors(text),
        mtp_layers=prediction_layers(text),
        vision=reading.vision,
        rope_scaling=_rope_scaling(text),
        quantization_config=quantization,
        weight_format=weight_format_of(quantization),
        max_source_positions=reading.encoder.count("max_position_embeddings") if reading.encoder else 0,
        code=class_code().get(model_type, ClassCode()),
        config=dict(config),
        trust=comparison.trust,
        notes=(*comparison.notes, *_from_class(text), *_not_counted(reading.fields)),
        unknown_fields=comparison.unknown_fields,
    )


def _from_class(text: Fields) -> tuple[str, ...]:
    taken = sorted(text.taken - {"max_position_embeddings"})
    where = "the config" if text.pointer == "/model/config" else text.pointer.rpartition("/")[2]
    return (f"{where} leaves to its class: {', '.join(taken)}",) if taken else ()


def _not_counted(fields: Fields) -> tuple[str, ...]:
    others = [key for key in fields.table.uncounted if fields.config.get(key)]
    return (f"not counted, a model of its own: {', '.join(others)}",) if others else ()


def _rope_scaling(text: Fields) -> dict[str, Any] | None:
    stated = text["rope_scaling"]
    if not isinstance(stated, dict) or stated.get("rope_type", stated.get("type")) in ("default", None):
        nested = isinstance(stated, dict) and any(isinstance(value, dict) for value in stated.values())
        return stated if nested else None
    return stated


def _dtype(*configs: Mapping[str, Any]) -> str:
    stated = [c.get(key) for c in configs for key in ("torch_dtype", "dtype")]
    words = [str(word).removeprefix("torch.") for word in stated if word]
    return next((DTYPES[word] for word in words if word in DTYPES), "bf16")


def read_gguf(
    metadata: Mapping[str, Any],
    *,
    id: str | None = None,  # noqa: A002
    parameters: int | None = None,
) -> Model:
    """
    Architecture of the metadata key/values of a GGUF header.

    Args:
        metadata: Key/values such as general.architecture, llama.block_count and tokenizer.ggml.tokens.
        id: Name to report.
        parameters: Published count; decides whether the head is tied. [unitless]

    Returns:
        The model; the same object for the same content.

    Raises:
        MissingFact: Keys without which the architecture is not defined; `pointer` is /model/gguf/<key>.
        Unsupported: A general.architecture that is not known.
    """
    key = content_key(header_content(metadata), id, parameters)
    model = _kept.get(key)
    if model is None:
        model = _keep(key, msgspec.structs.replace(_read_gguf(metadata, parameters), id=id, source="GGUF header"))
    return model


def _read_gguf(metadata: Mapping[str, Any], parameters: int | None) -> Model:
    config = config_of(metadata)
    untied, tied = (read_config({"tie_word_embeddings": tied, **config}) for tied in (False, True))
    confirmed = next((model for model in (untied, tied) if model.parameters_total == parameters), None)
    model = confirmed or (tied if _probably_tied(untied) else untied)
    if confirmed is None and untied is not tied:
        words = "tied" if model.tie_word_embeddings else "untied"
        note = f"the header does not say whether the head is tied: taken as {words}"
        model = msgspec.structs.replace(model, notes=(*model.notes, note))
    stored = stored_format(metadata)
    return msgspec.structs.replace(
        model,
        weight_format=stored,
        dtype=_GGUF_DTYPES.get(stored or "", model.dtype),
        trust="checked" if confirmed is None else "exact",
    )


def _probably_tied(untied: Model) -> bool:
    by_default = tables()[untied.model_type].defaults.get("tie_word_embeddings")
    table = untied.vocab_size * untied.hidden_size
    return bool(by_default) or probably_tied(untied_total=untied.parameters_total, table=table)


def count_only(parameters: int, trainable_parameters: int | None = None) -> Model:
    """Model of which only the count is known."""
    return Model(parameters_total=parameters, trainable_parameters=trainable_parameters, source="count", trust="count")
