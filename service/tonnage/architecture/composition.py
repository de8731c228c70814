"""A whole model from its parts: decoder, encoder, towers, and what stands outside the layers."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from tonnage.architecture.fields import Fields
from tonnage.architecture.layers import layer_groups
from tonnage.architecture.tables import PartRow, Table, tables
from tonnage.architecture.tensors import from_rows
from tonnage.errors import ContradictoryWorkload
from tonnage.spec.model import Component, LayerGroup, Tensor, Vision

TOWERS: dict[str, Component] = {"audio": "audio", "vision": "vision"}


class Reading(Struct, frozen=True, kw_only=True):
    """What a config says, before it is summed up as a `Model`."""

    fields: Fields
    text: Fields
    encoder: Fields | None
    layers: tuple[LayerGroup, ...]
    outside: tuple[Tensor, ...]
    vision: Vision | None


def compose(fields: Fields) -> Reading:
    """Read every part that the table of `fields` names; a table without parts is one stack."""
    parts = _parts(fields)
    encoder = parts.get("encoder")
    text = parts.get("text") or encoder or fields
    text.require()
    layers = layer_groups(text)
    outside = stack_tensors(text)
    if encoder is not None and encoder is not text:
        encoder.require()
        layers = (*layer_groups(encoder), *layers)
        outside = [*stack_tensors(encoder), *outside]
    whole = fields.knowing(parts)
    for name, component in TOWERS.items():
        if name in parts:
            outside = [*tower_tensors(parts[name], component), *outside]
    if parts:
        outside += stack_tensors(whole)
    return Reading(
        fields=fields,
        text=text,
        encoder=encoder,
        layers=layers,
        outside=tuple(outside),
        vision=_vision(whole, parts["vision"]) if "vision" in parts else None,
    )


def _parts(fields: Fields) -> dict[str, Fields]:
    rows = fields.table.parts.items()
    return {name: _part(fields, row) for name, row in rows if fields.evaluate(row.when)}


def _part(fields: Fields, row: PartRow) -> Fields:
    config = fields.config
    for key in row.keys:
        if key == "":
            return fields.as_table(_table(row, config))
        nested = _nested(fields, key)
        if nested is None:
            continue
        pointer = f"{fields.pointer}/{key.replace('.', '/')}"
        fields.read.add(key.partition(".")[0])
        given = fields.given | _tying(fields, nested, _nested(fields, key.rpartition(".")[0]) or {})
        return Fields(_table(row, nested), nested, nested=True, pointer=pointer, given=given)
    nothing: dict[str, Any] = {}
    pointer = f"{fields.pointer}/{row.keys[0]}"
    given = fields.given | _tying(fields, nothing, nothing)
    return Fields(tables()[row.table], nothing, nested=True, pointer=pointer, given=given)


def _nested(fields: Fields, path: str) -> Mapping[str, Any] | None:
    """Config at a dotted path, None when a step of it is absent."""
    found: Any = fields.config
    for step in path.split(".") if path else ():
        found = found.get(step)
        if found is None:
            return None
        if not isinstance(found, Mapping):
            raise ContradictoryWorkload(f"{path} must be an object", pointer=f"{fields.pointer}/{step}")
    return found  # type: ignore[no-any-return]


def _tying(fields: Fields, part: Mapping[str, Any], around: Mapping[str, Any]) -> dict[str, bool]:
    """The whole config, or what is around the part, says whether embeddings are tied; in some types the part may too."""
    stated = fields.config.get("tie_word_embeddings", around.get("tie_word_embeddings"))
    if stated is None:
        return {}
    return {"tie_word_embeddings": bool(stated or (fields.flag("ties_by_text") and part.get("tie_word_embeddings")))}


def _table(row: PartRow, nested: Mapping[str, Any]) -> Table:
    known = tables()
    stated = nested.get("model_type")
    if row.fixed or not isinstance(stated, str) or stated not in known or known[stated].parts:
        return known[row.table]
    return known[stated]


def stack_tensors(fields: Fields) -> list[Tensor]:
    """Tensors of one part that stand outside its layers."""
    return from_rows(fields, (*fields.table.outside_tensors, *fields.table.outside_more))


def tower_tensors(fields: Fields, component: Component) -> list[Tensor]:
    """All tensors of an encoder tower: its layers flattened, each tensor once with the number of layers as copies."""
    fields.require()
    prefix = fields.name("layers")
    layered = [
        msgspec.structs.replace(
            tensor,
            name=f"{prefix}.{tensor.name}",
            component=component,
            experts=tensor.experts * group.count,
        )
        for group in (layer_groups(fields) if fields["num_hidden_layers"] else ())
        for tensor in group.layer.tensors
    ]
    outside = [
        tensor if tensor.component == "projector" else msgspec.structs.replace(tensor, component=component)
        for tensor in stack_tensors(fields)
    ]
    return [*outside, *layered]


def _vision(whole: Fields, tower: Fields) -> Vision | None:
    if not tower["num_hidden_layers"]:
        return None
    return Vision(
        hidden_size=tower.integer("hidden_size"),
        intermediate_size=tower.count("intermediate_size"),
        num_hidden_layers=tower.integer("num_hidden_layers"),
        num_attention_heads=tower.count("num_attention_heads"),
        patch_size=tower.count("patch_size"),
        image_size=tower.count("image_size"),
        gated=tower.flag("gated"),
        temporal_patch_size=tower.count("temporal_patch_size") or 1,
        spatial_merge_size=tower.count("spatial_merge_size") or whole.count("spatial_merge_size") or 1,
        tokens_per_image=whole.count("tokens_per_image"),
        output_hidden_size=whole.count("vision_output_size"),
        deepstack_levels=tower.count("deepstack_levels"),
        unread_layers=whole.count("unread_layers"),
        layer=next((group.layer for group in layer_groups(tower)), None),
        config=dict(tower.config),
    )
