"""
An answer in the media type a caller asked for.

JSON and MessagePack are made here; what people read is made by `tonnage.render`, one function per answer.
"""

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from tonnage.api.answers import Answer, content_type, msgpack_answer
from tonnage.api.negotiation import JSON, MARKDOWN, MSGPACK, SVG, TEXT
from tonnage.api.query import refusal

_RENDERERS = {TEXT: "table", SVG: "svg", MARKDOWN: "markdown"}

_SVG_POLICY = (
    b"content-security-policy",
    b"default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'",
)
"""The picture carries its own style and nothing that runs."""

encode_json = msgspec.json.Encoder().encode


@cache
def renderer(media_type: str, subject: str) -> Callable[[Any], str] | None:
    """
    The function that writes one kind of answer in one media type.

    Args:
        media_type: One of those that people read.
        subject: "estimate" or "fit".

    Returns:
        Function from the answer to text, None when there is none.
    """
    name = f"tonnage.render.{_RENDERERS[media_type]}"
    if importlib.util.find_spec(name) is None:
        return None
    found: Callable[[Any], str] | None = getattr(importlib.import_module(name), subject, None)
    return found


@cache
def offers(subject: str) -> tuple[str, ...]:
    """Media types that one kind of answer can be had in, the default first."""
    return (JSON, MSGPACK, *(media_type for media_type in _RENDERERS if renderer(media_type, subject)))


def chosen_fields(given: dict[str, str], struct: type[msgspec.Struct]) -> tuple[str, ...]:
    """
    Fields of an answer that a caller wants, taken out of the other parameters.

    Args:
        given: Values by parameter name; `fields` is taken out.
        struct: Type of the answer.

    Returns:
        Names, empty for the whole answer.

    Raises:
        ProblemError: 422 for a field that the answer has not.
    """
    names = tuple(name.strip() for name in given.pop("fields").split(",")) if "fields" in given else ()
    for name in names:
        if name not in struct.__struct_fields__:
            known = ", ".join(struct.__struct_fields__)
            raise refusal("fields", f"the answer has no field {name!r}, but {known}")
    return names


def shown(value: Any, fields: tuple[str, ...]) -> Any:
    """The answer, or the chosen part of it. [unitless]"""
    return {name: getattr(value, name) for name in fields} if fields else value


def answer_in(media_type: str, subject: str, value: Any, fields: tuple[str, ...] = ()) -> Answer:
    """
    The answer a caller gets.

    Args:
        media_type: One of `offers(subject)`.
        subject: "estimate" or "fit".
        value: The answer itself.
        fields: Those wanted of it; empty for all. People always read the whole.

    Returns:
        Response in that media type.
    """
    if media_type == JSON:
        return Answer(encode_json(shown(value, fields)))
    if media_type == MSGPACK:
        return msgpack_answer(shown(value, fields))
    write = renderer(media_type, subject)
    assert write is not None  # noqa: S101  (offers() lists only those that exist)
    answer = Answer(write(value).encode(), content_type(media_type))
    if media_type == SVG:
        answer.policy = _SVG_POLICY
    return answer
