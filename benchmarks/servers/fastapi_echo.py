"""FastAPI with pydantic models of the same wire types, in its own idiom."""

from typing import Annotated, Any, Literal, Union

import msgspec
from benchmarks.servers.question import prebuilt
from fastapi import FastAPI
from msgspec import inspect
from pydantic import BaseModel, ConfigDict, Field, create_model

from tonnage.spec.card import SizingCard
from tonnage.spec.report import Estimate

_made: dict[type, type[BaseModel]] = {}


def model_of(struct: type) -> type[BaseModel]:
    """pydantic model with the same fields and bounds."""
    info = inspect.type_info(struct)
    if struct not in _made:
        fields: dict[str, Any] = {}
        if info.tag_field is not None:
            fields[info.tag_field] = (Literal[info.tag], ...)
        for field in info.fields:
            default = ... if field.required else None
            kind = type_of(field.type)
            fields[field.encode_name.rstrip("_")] = (kind if field.required else kind | None, default)
        extra = "forbid" if info.forbid_unknown_fields else "allow"
        _made[struct] = create_model(struct.__name__, __config__=ConfigDict(extra=extra, strict=True), **fields)
    return _made[struct]


def type_of(kind: Any) -> Any:
    match kind:
        case inspect.Metadata():
            return type_of(kind.type)
        case inspect.StructType():
            return model_of(kind.cls)
        case inspect.UnionType():
            parts = [type_of(part) for part in kind.types]
            tagged = all(isinstance(p, inspect.StructType) for p in kind.types) and kind.types[0].tag_field
            union = Union[tuple(parts)]  # noqa: UP007
            return Annotated[union, Field(discriminator=kind.types[0].tag_field)] if tagged else union
        case inspect.LiteralType():
            return Literal[tuple(kind.values)]
        case inspect.IntType():
            return Annotated[int, Field(ge=kind.ge, le=kind.le)]
        case inspect.FloatType():
            return Annotated[float, Field(ge=kind.ge, le=kind.le, gt=kind.gt, lt=kind.lt)]
        case inspect.BoolType():
            return bool
        case inspect.StrType():
            return Annotated[str, Field(min_length=kind.min_length, max_length=kind.max_length)]
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
            return list[type_of(kind.item_type)]
        case inspect.DictType():
            return dict[str, type_of(kind.value_type)]
        case inspect.NoneType():
            return None
    return Any


Card = model_of(SizingCard)
Answer = model_of(Estimate)
ANSWER = Answer.model_validate(msgspec.to_builtins(prebuilt()), strict=False)
app = FastAPI(openapi_url=None)


@app.post("/estimate")
async def echo(card: Card) -> Answer:  # noqa: ARG001  (reading it is the point)
    return ANSWER
