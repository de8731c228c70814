"""
`tonnage completion SHELL`: a script with every command, option, field and known id in it.

All words are written into the script, so that completing costs no start of the command.
"""

import argparse
from collections.abc import Iterable
from importlib.resources import files

from tonnage.api.catalog_views import COLLECTIONS
from tonnage.catalog import Catalog, load_catalog
from tonnage.cli.output import write
from tonnage.cli.program import COMMANDS, parser_of
from tonnage.cli.questions import card_reader, request_reader

SHELLS = ("bash", "zsh", "fish")
_FILES = "@files"
"""Stands where the shell completes names of files. [unitless]"""
_FILE_OPTIONS = frozenset({"card", "overlay", "output"})
_FILE_POSITIONALS = frozenset({"source", "target", "folder", "before", "after", "file"})
_NAMED_FIRST = {"estimate": "model", "fit": "model", "models": "gpu"}
"""What a word without `=` is, by command. [unitless]"""


def completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage completion`."""
    parser.epilog = "bash: . <(tonnage completion bash). zsh, fish: into a file of fpath or completions."
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="one of %(choices)s")


def completion(chosen: argparse.Namespace) -> int:
    """The script of one shell on standard output."""
    write(script(chosen.shell, load_catalog()))
    return 0


def script(shell: str, catalog: Catalog) -> str:
    """
    The completion script of a shell.

    Args:
        shell: One of `SHELLS`.
        catalog: Whose ids it knows.

    Returns:
        Script.
    """
    text = (files("tonnage.cli") / f"completion.{shell}").read_text(encoding="utf-8")
    return text.replace("#COMMANDS#", _commands(shell)).replace("#VALUES#", _values(shell, catalog))


def words_of(command: tuple[str, ...]) -> list[str]:
    """Options, choices of positionals and field names of one command. [unitless]"""
    actions = parser_of(command)._actions
    options = [option for action in actions for option in action.option_strings[:1]]
    choices = [str(c) for action in actions if not action.option_strings for c in action.choices or ()]
    fields = [action.dest.removeprefix("card:") + "=" for action in actions if action.dest.startswith("card:")]
    return [*choices, *fields, *options]


def values_of(catalog: Catalog) -> dict[str, list[str]]:
    """
    Known values by option or field name.

    Args:
        catalog: Whose ids they are.

    Returns:
        Values without blanks.
    """
    models = list(dict.fromkeys(name for record in catalog.models for name in (record.id, *record.same_architecture)))
    gpus = [record.id for record in catalog.gpus]
    known = {
        "model": models,
        "gpu": gpus,
        "gpus": gpus,
        "engine": [record.id for record in catalog.engines],
        "framework": [record.id for record in catalog.frameworks],
        "weights_format": [record.id for record in catalog.formats],
        "kv_cache_dtype": ["auto", *(record.id for record in catalog.kv_formats)],
        "optimizer": [record.id for record in catalog.optimizers],
        "skus": [record.id for record in catalog.packages],
        "providers": sorted({record.provider for record in catalog.packages}),
    }
    return {**card_reader().choices(), **request_reader().choices(), **known}


def places_of(catalog: Catalog) -> dict[str, list[str]]:
    """
    What completes in one command only: its options with choices, and its words without an option.

    Args:
        catalog: Whose ids they are.

    Returns:
        Values by `COMMAND option` or `COMMAND positional`, names of files as `@files`.
    """
    known, found = values_of(catalog), {}
    for words in COMMANDS:
        command = " ".join(words)
        for action in parser_of(words)._actions:
            if action.choices and action.option_strings and not action.dest.startswith("card:"):
                found[f"{command} {action.dest}"] = [str(choice) for choice in action.choices]
            elif action.dest in _FILE_OPTIONS and action.option_strings:
                found[f"{command} {action.dest}"] = [_FILES]
            elif action.dest in _FILE_POSITIONALS and not action.option_strings:
                found[f"{command} positional"] = [_FILES]
    return {**found, **{f"{command} positional": known[field] for command, field in _NAMED_FIRST.items()}}


def _commands(shell: str) -> str:
    firsts = dict.fromkeys(words[0] for words in COMMANDS)
    seconds = [words[1] for words in COMMANDS if len(words) > 1]
    rows = {"": list(firsts), "catalog": seconds, **{" ".join(words): words_of(words) for words in COMMANDS}}
    if shell == "fish":
        return "\n".join(_fish_command(name, words) for name, words in rows.items())
    return "\n".join(f"    {_quoted(name)}) words={_quoted(' '.join(words))} ;;" for name, words in rows.items())


def _fish_command(name: str, words: Iterable[str]) -> str:
    return f"        case {_quoted(name)}\n            printf '%s\\n' {' '.join(map(_quoted, words))}"


def _values(shell: str, catalog: Catalog) -> str:
    rows = {"kind": list(COLLECTIONS), **values_of(catalog), **places_of(catalog)}
    if shell == "fish":
        return "\n".join(_fish_command(name, words) for name, words in rows.items())
    return "\n".join(f"    {_quoted(name)}) words={_quoted(' '.join(words))} ;;" for name, words in rows.items())


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
