"""
Query strings into the same Structs as bodies, by names read off the Structs themselves.

A parameter is a field's own name where only one field has it (`max_model_len`, `gpu`), else its dotted path
(`lora.rank`, `weights.format` or `weights_format`). `engine` makes the card one for serving, a training field
one for training. Lists are comma-separated. Unknown and repeated parameters are refused.
"""

import math
import re
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin
from urllib.parse import unquote_plus

import msgspec
from msgspec import UNSET, Struct

from tonnage.api.decoding import explained, shortened, whole
from tonnage.api.near_names import near
from tonnage.api.problems import INVALID, FieldError, ProblemError

T = TypeVar("T")

Path = tuple[str, ...]

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_ABBREVIATED = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([kKmMbB%])", re.ASCII)
_POWERS = {"k": 3, "m": 6, "b": 9, "%": -2}
_MAX_PARAMETERS = 200
_MAX_TEXT = 2000
"""Longest text a parameter holds. [characters]"""
_PLAIN_SECTIONS = frozenset({"serving", "training", "placement", "offer", "requirements"})
"""Parts of a card whose fields are known by their own name."""
_WORKLOADS = ("serving", "training")
_SHORT_FOR = {"model": "id"}
"""A plain text in this field stands for that field of the object."""


class Leaf(NamedTuple):
    """One field that a query parameter can fill."""

    path: Path
    kind: Any
    """Annotation of the field."""


def parameters(query: bytes) -> dict[str, str]:
    """
    Names and values of a query string, in order.

    Args:
        query: Raw query string.

    Returns:
        Decoded values by name.

    Raises:
        ProblemError: 422 for a repeated name, too many names, or what is not UTF-8.
    """
    found: dict[str, str] = {}
    parts = query.decode("latin-1").split("&") if query else []
    if len(parts) > _MAX_PARAMETERS:
        raise refusal("", f"more than {_MAX_PARAMETERS} query parameters")
    for part in parts:
        name, _, value = part.partition("=")
        try:
            name, value = unquote_plus(name, errors="strict"), unquote_plus(value, errors="strict")
        except UnicodeDecodeError:
            raise refusal("", "the query string is not UTF-8") from None
        if name in found:
            raise refusal(name, f"query parameter {shortened(name)!r} is given twice")
        if part:
            found[name] = value
    return found


def refuse_parameters(given: Iterable[str], known: Sequence[str] = ()) -> None:
    """The 422 for a parameter that the route does not know."""
    for name in given:
        if name not in known:
            raise unknown(name, known)


def unknown(name: str, known: Iterable[str]) -> ProblemError:
    """The 422 for one unknown parameter, with near names."""
    name = shortened(name)
    close = near(name, list(known))
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    return refusal(name, f"unknown query parameter {name!r}{hint}", close)


def flag(given: dict[str, str], name: str) -> bool:
    """One boolean parameter, taken out of the others; false when absent."""
    text = given.pop(name, "false")
    return bool(value_of(bool, text, name))


def refusal(name: str, detail: str, close: list[str] | None = None) -> ProblemError:
    """The 422 for a query parameter."""
    pointer = f"/{shortened(name).replace('.', '/')}" if name else ""
    return ProblemError(INVALID, detail, errors=[FieldError(pointer, detail, close or UNSET)])


class QueryReader(Generic[T]):
    """Reader of one Struct from query parameters."""

    def __init__(self, struct: type[T]) -> None:
        self.struct = struct

    def __call__(self, given: dict[str, str]) -> T:
        """
        The Struct that parameters describe.

        Args:
            given: Values by parameter name.

        Returns:
            Checked value.

        Raises:
            ProblemError: 422 with the parameter that is wrong.
        """
        document = self.document(given)
        if "engine" not in document.get("serving", {"engine": ""}):
            orphan = next(name for name in given if self._leaf(name, "serving").path[0] == "serving")
            raise refusal("engine", f"{orphan!r} is a setting of an engine: add engine=vllm or another")
        if document.keys() >= set(_WORKLOADS):
            one, other = (next(n for n in given if self._leaf(n, w).path[0] == w) for w in _WORKLOADS)
            raise refusal(
                other, f"{one!r} is a setting of serving, {other!r} one of training: a card is for one of them"
            )
        try:
            return msgspec.convert(document, self.struct)
        except msgspec.ValidationError as error:
            raise explained(error, self.struct, document) from error

    def document(self, given: dict[str, str], section: str | None = None) -> dict[str, Any]:
        """
        The JSON value that parameters describe, not yet checked as a whole.

        Args:
            given: Values by parameter name.
            section: "serving" or "training" where something else has settled it; None: the parameters tell.

        Returns:
            Nested values.

        Raises:
            ProblemError: 422 for a name that is unknown, given twice or ambiguous, or a value of another type.
        """
        section = section or self._section(given)
        document: dict[str, Any] = {}
        seen: dict[Path, str] = {}
        for name, text in given.items():
            leaf = self._leaf(name, section)
            if leaf.path in seen:
                raise refusal(name, f"{name!r} and {seen[leaf.path]!r} are the same field")
            seen[leaf.path] = name
            _place(document, leaf, value_of(leaf.kind, text, name))
        return document

    @cached_property
    def leaves(self) -> dict[Path, Leaf]:
        """Every field that a parameter can fill."""
        found: dict[Path, Leaf] = {}
        for leaf in _walk(self.struct, ()):
            known = found.get(leaf.path)
            found[leaf.path] = leaf if known is None else Leaf(leaf.path, known.kind | leaf.kind)
        return found

    @cached_property
    def names(self) -> dict[str, list[Path]]:
        """What each accepted parameter name may mean; several only where serving and training share it."""
        by_suffix: dict[str, list[Path]] = {}
        for path in self.leaves:
            for start in range(len(path)):
                by_suffix.setdefault(".".join(path[start:]), []).append(path)
        names: dict[str, list[Path]] = {}
        for name, paths in by_suffix.items():
            nearest = _nearest(paths)
            if len({path[0] for path in nearest}) == len(nearest):
                names[name] = nearest
        for name, paths in list(names.items()):
            if name.count(".") == 1:
                names.setdefault(name.replace(".", "_"), paths)
        return names

    @cached_property
    def documented(self) -> dict[str, Leaf]:
        """The one name per field that the API description lists."""
        found: dict[str, Leaf] = {}
        for path, leaf in self.leaves.items():
            plain = len(path) == 1 or (len(path) == 2 and path[0] in _PLAIN_SECTIONS)
            dotted = ".".join(path[1:] if path[0] in _PLAIN_SECTIONS else path)
            name = path[-1] if plain and path in self.names.get(path[-1], ()) else dotted
            if path[0] == "weights":
                name = "_".join(path)
            found.setdefault(name, leaf)
        return found

    def _section(self, given: Iterable[str]) -> str | None:
        """Whether the parameters describe serving or training."""
        if "engine" in given or "serving.engine" in given:
            return "serving"
        for name in given:
            sections = {path[0] for path in self.names.get(name, ())}
            if sections == {"training"}:
                return "training"
        return None

    def _leaf(self, name: str, section: str | None) -> Leaf:
        paths = self.names.get(name)
        if paths is None:
            raise unknown(name, self.documented)
        if len(paths) == 1:
            return self.leaves[paths[0]]
        mine = [path for path in paths if path[0] == section]
        if not mine:
            readings = " or ".join(".".join(path) for path in paths)
            raise refusal(name, f"{name!r} is a field of serving and of training: write {readings}")
        return self.leaves[mine[0]]


def _nearest(paths: list[Path]) -> list[Path]:
    """Of the fields that share a name, those least deep; the others need their dotted path."""
    depth = min(map(len, paths))
    plain = [path for path in paths if len(path) == depth]
    preferred = [path for path in plain if path[0] in (*_WORKLOADS, "placement")]
    return preferred or plain


def _walk(struct: Any, path: Path) -> Iterator[Leaf]:
    config = struct.__struct_config__
    if config.tag_field is not None:
        yield Leaf((*path, config.tag_field), typing.Literal[config.tag])
    for field in msgspec.structs.fields(struct):
        here = (*path, field.encode_name)
        scalar, structs = _split(field.type)
        if scalar is not None:
            yield Leaf(here, scalar)
        for part in structs:
            yield from _walk(part, here)


def _split(kind: Any) -> tuple[Any, list[Any]]:
    """What of a field's type one text can hold, and which Structs it may be instead."""
    scalars, structs = [], []
    for part in members(kind):
        bare = get_args(part)[0] if get_origin(part) is typing.Annotated else part
        if isinstance(bare, type) and issubclass(bare, Struct):
            structs.append(bare)
        elif _is_long_text(part):
            continue
        elif bare in (int, float, str, bool) or get_origin(bare) is typing.Literal or _is_scalar_list(bare):
            scalars.append(part)
    union = None
    for part in scalars:
        union = part if union is None else union | part
    return union, structs


def _is_long_text(kind: Any) -> bool:
    """Texts that belong into a body, such as a pasted log."""
    limits = [meta.max_length for meta in get_args(kind)[1:]] if get_origin(kind) is typing.Annotated else []
    return get_args(kind)[:1] == (str,) and any(limit is not None and limit > _MAX_TEXT for limit in limits)


def _is_scalar_list(kind: Any) -> bool:
    if get_origin(kind) not in (list, tuple):
        return False
    scalar, structs = _split(get_args(kind)[0])
    return scalar is not None and not structs


def members(kind: Any) -> list[Any]:
    """Parts of a union; annotations stay on the parts they annotate."""
    if get_origin(kind) in (typing.Union, types.UnionType):
        return [member for part in get_args(kind) for member in members(part)]
    if get_origin(kind) is typing.Annotated and get_origin(get_args(kind)[0]) in (typing.Union, types.UnionType):
        return members(get_args(kind)[0])
    return [] if kind in (None, type(None)) else [kind]


def _place(document: dict[str, Any], leaf: Leaf, value: Any) -> None:
    *parents, last = leaf.path
    for parent in parents:
        inner = document.setdefault(parent, {})
        if isinstance(inner, str) and parent in _SHORT_FOR:
            inner = document[parent] = {_SHORT_FOR[parent]: inner}
        if not isinstance(inner, dict):
            detail = f"{parent!r} is given as a value and by its field {last!r}"
            raise refusal(".".join(leaf.path), detail)
        document = inner
    if isinstance(document.get(last), dict) and last in _SHORT_FOR:
        document, last = document[last], _SHORT_FOR[last]
    if last in document:
        raise refusal(last, f"{last!r} is given as a value and by one of its fields")
    document[last] = value


def value_of(kind: Any, text: str, name: str) -> Any:
    """
    JSON value that a parameter's text stands for, by the type of its field.

    Args:
        kind: Annotation of the field.
        text: Value as written.
        name: Parameter, for the refusal.

    Returns:
        Integer, float, boolean, text or list; bounds are checked later, by the Struct.
    """
    bare = [get_args(part)[0] if get_origin(part) is typing.Annotated else part for part in members(kind)]
    lists = [part for part in bare if get_origin(part) in (list, tuple)]
    if lists:
        return [value_of(get_args(lists[0])[0], piece.strip(), name) for piece in text.split(",")]
    if int in bare and _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and math.isfinite(number := float(text)):
        if float in bare:
            return number
        if int in bare and isinstance(whole(number), int):
            return whole(number)
    if bool in bare and text in ("true", "false"):
        return text == "true"
    if str in bare or any(get_origin(part) is typing.Literal for part in bare):
        return text
    expected = {int: "a whole number", float: "a number", bool: "true or false"}
    wanted = " or ".join(words for part, words in expected.items() if part in bare)
    raise refusal(name, f"{name!r} must be {wanted}, not {text[:80]!r}{_spelled_out(text)}")


def _spelled_out(text: str) -> str:
    """How a number with a letter behind it is written here, such as 7B or 95%."""
    found = _ABBREVIATED.fullmatch(text.strip())
    if not found:
        return ""
    number, letter = Decimal(found[1]), found[2].lower()
    plain = [f"{number.scaleb(_POWERS[letter]).normalize():f}"]
    if letter == "k":
        plain.insert(0, f"{(number * 1024).normalize():f}")
    return f": write {' or '.join(plain)}"
