"""
Request bodies into Structs, strictly.

Strings are never numbers, unknown fields are refused, an integral float is an integer (JSON Schema's rule). The
happy path is one call of msgspec; everything that explains a refusal happens only once something is wrong.
"""

import json
import math
import re
import types
import typing
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from tonnage.api.near_names import near
from tonnage.api.problems import INVALID, MALFORMED, TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, FieldError, ProblemError
from tonnage.api.repeated_keys import refuse_repeated_keys
from tonnage.spec.card import NAME_PATTERN, VERSION_PATTERN
from tonnage.spec.fit import (
    CAPABILITY_PATTERN,
    CURRENCY_PATTERN,
    DATE_PATTERN,
    DURATION_PATTERN,
    MONEY_PATTERN,
    RATE_PATTERN,
)
from tonnage.units import SIZE_PATTERN, parse_size

T = TypeVar("T")

JSON_TYPES = (b"application/json", b"application/x-ndjson")
MAX_DEPTH = 64
"""Nesting of a body. [levels]"""
MAX_PARTS = 100_000
"""Objects and lists of a body, each of which takes far more memory than its two characters. [unitless]"""
_EXACT_FLOAT = 2**53
_MAX_SHOWN = 100
"""Longest part of a caller's text that an answer repeats. [characters]"""

_PATH = re.compile(r"^(?P<detail>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_SURROGATES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_UNKNOWN_FIELD = re.compile(r"^Object contains unknown field `(.*)`$", re.DOTALL)
_MISSING_FIELD = re.compile(r"^Object missing required field `(.*)`$", re.DOTALL)
_BAD_ENUM = re.compile(r"^Invalid (?:enum )?value '(.*)'$", re.DOTALL)

_NOT_A_SIZE = f"Expected `str` matching regex {SIZE_PATTERN!r}"
_FORMS = {
    f"Expected `str` matching regex {pattern!r}": words
    for pattern, words in {
        MONEY_PATTERN: "an amount with its currency, such as '500 USD'",
        DURATION_PATTERN: "hours as a number, or a length such as '3 days' or '2 weeks'",
        RATE_PATTERN: "bytes per second, or a rate such as '2 TB/s'",
        DATE_PATTERN: "a date such as '2026-09-01'",
        NAME_PATTERN: "a name: letters, digits and . _ / : + @ - after the first, such as 'Qwen/Qwen3-8B'",
        VERSION_PATTERN: "a version or a date, such as '0.19.0' or '2026-09'",
        CURRENCY_PATTERN: "a currency by its three capitals, such as 'USD'",
        CAPABILITY_PATTERN: "a compute capability such as '8.9'",
    }.items()
}
"""What a text with a form of its own should have looked like, by msgspec's complaint."""

_FREE_FORM = frozenset({"config", "gguf"})
"""Fields that hold another tool's JSON verbatim: floats stay floats there."""


class BodyDecoder(Generic[T]):
    """Decoder of one Struct that answers with problem documents."""

    def __init__(self, struct: type[T]) -> None:
        self.struct = struct
        self._decode = msgspec.json.Decoder(struct).decode

    def __call__(self, body: bytes) -> T:
        """
        The Struct that a body holds.

        Args:
            body: JSON text.

        Returns:
            Checked value.

        Raises:
            ProblemError: 400 when it is not JSON or repeats a key, 413 when it holds too much, 422 when it breaks the contract.
        """
        parts = body.count(b"[") + body.count(b"{")
        if parts > MAX_PARTS:
            raise ProblemError(TOO_LARGE, f"a body holds at most {MAX_PARTS} objects and lists")
        try:
            value = self._decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return self._again(body, error)
        if parts > MAX_DEPTH:
            _refuse_depth(untyped(body))
        refuse_repeated_keys(body)
        return value

    def _again(self, body: bytes, first: Exception) -> T:
        """Second look at a refused body: not JSON at all, an integral float, or a breach to explain."""
        raw = untyped(body)
        _refuse_depth(raw)
        if "got `float`" in str(first):
            try:
                value = msgspec.convert(_integers(raw), self.struct)
            except msgspec.ValidationError as error:
                raise explained(error, self.struct, raw) from error
            refuse_repeated_keys(body)
            return value
        raise explained(first, self.struct, raw) from first


def untyped(body: bytes) -> Any:
    """Plain JSON value of a body, or the 400 that says why there is none."""
    try:
        return msgspec.json.decode(body)
    except RecursionError as error:
        raise ProblemError(MALFORMED, f"nested deeper than {MAX_DEPTH} levels") from error
    except msgspec.ValidationError as error:
        raise _too_large_number(body) or explained(error, object) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        detail = "the body is empty" if not body.strip() else _lone_surrogate(body) or str(error)
        raise ProblemError(MALFORMED, detail) from error


def _lone_surrogate(body: bytes) -> str:
    """Half of a UTF-16 pair escaped alone, which no text holds; msgspec says that the data ends there."""
    found = _SURROGATES.search(body)
    return f"{found[0].decode()} is half of a surrogate pair: the text is not Unicode" if found else ""


def _too_large_number(body: bytes) -> ProblemError | None:
    """Where a body holds a number beyond 64-bit floats, for which msgspec has no path."""
    try:
        path = _path_to_infinity(json.loads(body))
    except (ValueError, RecursionError):
        return None
    if path is None:
        return None
    pointer = "".join(f"/{escape(step)}" for step in path)
    detail = "the number is out of range: a 64-bit float ends at 1.8e308"
    return ProblemError(INVALID, f"{pointer or 'the request'}: {detail}", errors=[FieldError(pointer, detail)])


def _path_to_infinity(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, float):
        return () if math.isinf(value) else None
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in children:
        path = _path_to_infinity(child)
        if path is not None:
            return (str(step), *path)
    return None


def media_type(content_type: bytes | None) -> bytes:
    """Media type of a Content-Type header, without its parameters. [unitless]"""
    return b"" if content_type is None else content_type.partition(b";")[0].strip().lower()


def require_json(content_type: bytes | None, content_encoding: bytes | None) -> None:
    """Refuse a body that is not plain JSON; the answer names what is read."""
    if content_encoding is not None and content_encoding.strip().lower() not in (b"", b"identity"):
        detail = f"content encoding {content_encoding.decode('latin-1')!r} is not read; send the body as it is"
        raise ProblemError(UNSUPPORTED_MEDIA_TYPE, detail, headers=[(b"accept-encoding", b"identity")])
    if content_type == b"application/json":
        return
    kind = media_type(content_type)
    if kind not in JSON_TYPES or not _is_utf8(content_type or b""):
        shown = (content_type or b"none").decode("latin-1")
        detail = f"content type {shown!r} is not read; send application/json or application/x-ndjson in UTF-8"
        raise ProblemError(UNSUPPORTED_MEDIA_TYPE, detail, headers=[(b"accept-post", b", ".join(JSON_TYPES))])


def _is_utf8(content_type: bytes) -> bool:
    _, found, charset = content_type.lower().partition(b"charset=")
    return not found or charset.strip(b' "').startswith((b"utf-8", b"utf8"))


def _refuse_depth(value: Any) -> None:
    level, depth = [value] if isinstance(value, (dict, list)) else [], 0
    while level:
        if depth > MAX_DEPTH:
            raise ProblemError(MALFORMED, f"nested deeper than {MAX_DEPTH} levels")
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
        depth += 1


def _integers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: child if key in _FREE_FORM else _integers(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_integers(child) for child in value]
    return whole(value) if isinstance(value, float) else value


def whole(value: float) -> int | float:
    """The integer that an integral float is, as JSON Schema has it; any other float as it is. [unitless]"""
    return int(value) if value.is_integer() and abs(value) < _EXACT_FLOAT else value


def explained(error: Exception, struct: Any, value: Any = None) -> ProblemError:
    """
    The 422 for a value that msgspec refused.

    Args:
        error: msgspec's ValidationError; its text ends in the path.
        struct: Type the value was meant for; gives the names that a typo may have meant.
        value: What was refused, to say of a size without a unit what it could mean.

    Returns:
        Problem with a JSON pointer and near names.
    """
    match = _PATH.match(str(error))
    detail, path = (match["detail"], match["path"] or "") if match else (str(error), "")
    steps = [name or index for name, index in _STEP.findall(path)]
    wrong = _UNKNOWN_FIELD.match(detail)
    missing = _MISSING_FIELD.match(detail)
    enum = _BAD_ENUM.match(detail)
    close: list[str] = []
    if detail == _NOT_A_SIZE:
        detail = _size_complaint(value, steps)
    elif detail in _FORMS:
        detail = f"{str(_at(value, steps))[:80]!r} is not {_FORMS[detail]}"
    elif wrong:
        close = near(shortened(wrong[1]), field_names(struct, steps, value))
        detail = f"unknown field {shortened(wrong[1])!r}{_elsewhere(wrong[1], struct, steps, value)}"
        steps = [*steps, shortened(wrong[1])]
    elif missing:
        detail = f"required field {missing[1]!r} is missing"
        steps = [*steps, missing[1]]
    elif enum:
        known = choices(struct, steps)
        close = near(shortened(enum[1]), known)
        detail = f"{shortened(enum[1])!r} is not one of {', '.join(known)}"
    if close:
        detail += f"; did you mean {', '.join(close)}?"
    pointer = "".join(f"/{escape(step)}" for step in steps if step != "...")
    field = FieldError(pointer, detail, close or msgspec.UNSET)
    return ProblemError(INVALID, f"{pointer or 'the request'}: {detail}", errors=[field])


def _size_complaint(value: Any, steps: Sequence[str]) -> str:
    """What is wrong with a size: no unit, or one that could mean either prefix."""
    value = _at(value, steps)
    try:
        return f"a size needs its unit, such as '6 GiB' or '24 GB': {parse_size(str(value)[:80])} has none"
    except ValueError as error:
        share = ", or {'fraction': 0.1} for a part" if str(value).endswith("%") and steps == ["reserve"] else ""
        return f"{error}{share}"


def escape(step: str) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return step.replace("~", "~0").replace("/", "~1")


def _at(value: Any, steps: Sequence[str]) -> Any:
    """What a body holds at a path, None where it holds nothing."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        else:
            value = (
                value[int(step)] if isinstance(value, list) and step.isdecimal() and int(step) < len(value) else None
            )
    return value


def shortened(text: str) -> str:
    """What of a caller's text is looked at and repeated once it is refused. [unitless]"""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _elsewhere(name: str, struct: Any, steps: Sequence[str], value: Any) -> str:
    """Whose field an unknown name is: that of another engine, or of another part of the card."""
    tags = {s.__struct_config__.tag for s in _structs_at(struct, steps) if name in _own_fields(s)}
    given = _tag_of(_at(value, steps), _structs_at(struct, steps))
    if tags and given:
        return f" of {given}: it is one of {', '.join(sorted(map(str, tags)))}"
    homes = [part.encode_name for part in msgspec.structs.fields(struct) if steps[:1] != [part.encode_name]]
    found = [home for home in homes if name in field_names(struct, [home])]
    return f": it stands in {' or '.join(map(repr, found))}" if found and len(steps) < 2 else ""


def _tag_of(value: Any, structs: Sequence[type[Struct]]) -> str | None:
    """Tag that an object of a tagged union carries, where it is one of them."""
    fields = {s.__struct_config__.tag: s.__struct_config__.tag_field for s in structs}
    return next((str(tag) for tag, field in fields.items() if field and _at(value, [field]) == tag), None)


def _own_fields(struct: type[Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def field_names(struct: Any, steps: Sequence[str], value: Any = None) -> list[str]:
    """Fields of the Structs that may stand at a path, of the one that a body's tag chooses where it has one."""
    structs = _structs_at(struct, steps)
    chosen = _tag_of(_at(value, steps), structs)
    fitting = [s for s in structs if chosen is None or s.__struct_config__.tag == chosen]
    tags = {s.__struct_config__.tag_field for s in fitting}
    return sorted({name for s in fitting for name in _own_fields(s)} | {tag for tag in tags if tag is not None})


def choices(struct: Any, steps: Sequence[str]) -> list[str]:
    """Values that a Literal or a tag at a path allows."""
    if not steps:
        return []
    found: set[str] = set()
    for owner in _structs_at(struct, steps[:-1]):
        config = owner.__struct_config__
        if config.tag_field == steps[-1]:
            found.add(str(config.tag))
        for field in msgspec.structs.fields(owner):
            if field.encode_name == steps[-1]:
                found.update(
                    str(v)
                    for part in _members(field.type)
                    if get_origin(part) is typing.Literal
                    for v in get_args(part)
                )
    return sorted(found)


def _structs_at(struct: Any, steps: Sequence[str]) -> list[type[Struct]]:
    here = list(_members(struct))
    for step in steps:
        following: list[Any] = []
        for part in here:
            if isinstance(part, type) and issubclass(part, Struct):
                following += [f.type for f in msgspec.structs.fields(part) if f.encode_name == step]
            else:
                following += get_args(part)[-1:]
        here = [member for kind in following for member in _members(kind)]
    return [part for part in here if isinstance(part, type) and issubclass(part, Struct)]


def _members(kind: Any) -> list[Any]:
    """Parts of a union, without annotations."""
    if get_origin(kind) is typing.Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (typing.Union, types.UnionType):
        return [member for part in get_args(kind) for member in _members(part)]
    return [kind]
