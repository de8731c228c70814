"""
A card from the command line: options and `name=value` pairs with the query names of GET, on top of a file.

The names are read off the Structs by `api/query.py`; nothing of them is repeated here.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

import msgspec

from tonnage.api.decoding import BodyDecoder
from tonnage.api.field_words import field_words
from tonnage.api.query import Leaf, QueryReader, members
from tonnage.api.repeated_keys import distinct
from tonnage.cli.failure import CommandError

T = TypeVar("T")

_GROUPS = {"serving": "serving", "training": "fine-tuning and training", "placement": "placement"}
_VALUE = "VALUE"


class CardReader(Generic[T]):
    """Reads one kind of question from options, pairs and a file."""

    def __init__(self, struct: type[T], *, bare: str = "model") -> None:
        """`bare` is the field that a word without a name fills."""
        self._bare = bare
        self._query = QueryReader(struct)
        self._decode = BodyDecoder(struct)
        self._struct = struct

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Every field as an option, and pairs and a file beside them."""
        parser.add_argument(
            "words",
            nargs="*",
            metavar=f"{self._bare.upper()} | name=value",
            help=f"the {self._bare}'s id, and fields by their names",
        )
        parser.add_argument(
            "--card", metavar="FILE", help="JSON or TOML file with a card, - for JSON on standard input"
        )
        groups: dict[str, Any] = {}
        for name, leaf in self._query.documented.items():
            title = _GROUPS.get(leaf.path[0], "card")
            group = groups.get(title) or groups.setdefault(title, parser.add_argument_group(title))
            group.add_argument(
                *_spellings(name), dest=f"card:{name}", action=_Once, metavar=_VALUE, help=self._help(leaf)
            )

    def __call__(self, chosen: argparse.Namespace) -> T:
        """
        The question that parsed arguments put.

        Args:
            chosen: Parsed arguments.

        Returns:
            Checked question; what the line says wins over the file.

        Raises:
            ProblemError: A name or value is wrong.
            CommandError: The file cannot be read, or nothing was asked.
        """
        given = _given(chosen, self._bare)
        if chosen.card is None:
            if not given:
                raise CommandError(f"name a {self._bare}, or a file with --card")
            return self._query(given)
        document = card_document(chosen.card)
        section = next((part for part in ("serving", "training") if part in document), None)
        return self._decode(msgspec.json.encode(_merged(document, self._query.document(given, section))))

    def choices(self) -> dict[str, list[str]]:
        """Values of the fields that have a closed list, by name. [unitless]"""
        return {name: words for name, leaf in self._query.documented.items() if (words := _choices(leaf))}

    def _help(self, leaf: Leaf) -> str:
        words = _choices(leaf)
        said = field_words(_owner(self._struct, leaf.path)).get(leaf.path[-1], "")
        text = said or (f"one of {', '.join(words)}" if words else f"field {'.'.join(leaf.path)}")
        return text.replace("%", "%%")


class _Once(argparse.Action):
    """An option that is refused when it is given twice."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        """Keep the value."""
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option} is given twice")
        setattr(namespace, self.dest, values)


def _spellings(name: str) -> Sequence[str]:
    """An option may be written with hyphens or with underscores."""
    return tuple(dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}")))


def _given(chosen: argparse.Namespace, bare: str) -> dict[str, str]:
    given: dict[str, str] = {
        key.removeprefix("card:"): value
        for key, value in vars(chosen).items()
        if key.startswith("card:") and value is not None
    }
    for word in chosen.words:
        name, equals, value = word.partition("=")
        if not equals:
            name, value = bare, word
        if name in given:
            raise CommandError(f"{name} is given twice")
        given[name] = value
    return given


def card_document(name: str) -> dict[str, Any]:
    """
    What a card file holds.

    Args:
        name: Path of a JSON or TOML file, "-" for JSON on standard input.

    Returns:
        Its object.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        document = tomllib.loads(text) if name.endswith(".toml") else json.loads(text, object_pairs_hook=distinct)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{name}: {error}") from error
    if not isinstance(document, dict):
        raise CommandError(f"{name} does not hold an object")
    return document


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The file with the line's values on top; a model's plain id is the object that holds it."""
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        if name == "model" and isinstance(under, str) and isinstance(value, dict):
            under = {"id": under}
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[name] = _merged(under, value) if both else value  # type: ignore[arg-type]
    return merged


def _owner(struct: Any, path: Sequence[str]) -> Any:
    """The Struct that holds the field at a path; of a union the first that has it."""
    owner = struct
    for step in path[:-1]:
        kinds = [field.type for field in msgspec.structs.fields(owner) if field.encode_name == step]
        owner = next((s for kind in kinds for s in _structs(kind) if path[-1] in s.__struct_fields__), owner)
    return owner


def _structs(kind: Any) -> list[Any]:
    parts = [get_args(part)[0] if hasattr(part, "__metadata__") else part for part in members(kind)]
    return [part for part in parts if isinstance(part, type) and issubclass(part, msgspec.Struct)]


def _choices(leaf: Leaf) -> list[str]:
    parts = members(leaf.kind)
    if bool in parts:
        return ["true", "false"]
    return [str(value) for part in parts if get_origin(part) is Literal for value in get_args(part)]
