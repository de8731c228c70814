"""Which command is meant, and what becomes of its errors: one line on standard error and exit code 1."""

import argparse
import difflib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from tonnage.api.problems import ProblemError
from tonnage.api.settings import SettingsError
from tonnage.cli.failure import CommandError
from tonnage.errors import CatalogError, SizingError
from tonnage.version import __version__

FAILED = 1
"""Exit code of whatever could not be answered."""


class Command(NamedTuple):
    """One command; its module is imported only when it is the one."""

    summary: str
    module: str
    name: str

    @property
    def arguments(self) -> Callable[[argparse.ArgumentParser], None]:
        """What adds its options and positionals to a parser."""
        found: Callable[[argparse.ArgumentParser], None] = getattr(self._module, f"{self.name}_arguments")
        return found

    @property
    def run(self) -> Callable[[argparse.Namespace], int]:
        """What does it and returns the exit code."""
        found: Callable[[argparse.Namespace], int] = getattr(self._module, self.name)
        return found

    @property
    def _module(self) -> Any:
        return importlib.import_module(f"tonnage.cli.{self.module}")


COMMANDS: Mapping[tuple[str, ...], Command] = {
    ("estimate",): Command("memory of one workload on one placement", "questions", "estimate"),
    ("fit",): Command("packages that serve a workload, and why the others do not", "questions", "fit"),
    ("models",): Command("models of the catalogue that a GPU serves", "questions", "models"),
    ("bulk",): Command("many cards from a file into a file", "bulk", "bulk"),
    ("mcp",): Command("tools for assistants, over standard input and output", "mcp", "mcp"),
    ("completion",): Command("print the completion script of a shell", "completion", "completion"),
    ("catalog", "list"): Command("what the catalogue holds of one kind", "catalog", "listing"),
    ("catalog", "show"): Command("one entry by id or alias", "catalog", "show"),
    ("catalog", "validate"): Command("check an overlay directory", "catalog", "validate"),
    ("catalog", "diff"): Command("compare two catalogues", "catalog", "diff"),
    ("catalog", "import"): Command("price lists of others into an overlay file", "catalog", "importing"),
    ("serve",): Command("answer over HTTP; settings are TONNAGE_* variables", "service", "serve"),
    ("openapi",): Command("print the OpenAPI description", "service", "openapi"),
    ("key",): Command("make an API key: the token goes to the caller, the line to the service", "service", "key"),
    ("overlay",): Command("check an overlay, publish it to all replicas, withdraw it", "service", "overlay"),
}


class Parser(argparse.ArgumentParser):
    """A parser whose complaints leave exit codes 2 and 3 to verdicts."""

    def error(self, message: str) -> NoReturn:
        """One line and exit code 1, with the option that a misspelt one may have meant."""
        wrong = message.removeprefix("unrecognized arguments: ").partition(" ")[0].partition("=")[0]
        close = difflib.get_close_matches(wrong, self._option_string_actions, n=1) if wrong.startswith("--") else []
        hint = f"; did you mean {close[0]}?" if close else ""
        self.exit(FAILED, f"{self.prog}: {message}{hint}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `tonnage` command."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.exit(_run(words))
    except (ProblemError, SizingError) as error:
        _fail(said(error))
    except (CommandError, SettingsError, CatalogError, OSError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


def said(error: ProblemError | SizingError) -> str:
    """What is wrong, after the place in the card where it is. [unitless]"""
    pointer = getattr(error, "pointer", "")
    return f"{pointer}: {error.detail}" if pointer else error.detail


def parser_of(words: tuple[str, ...]) -> argparse.ArgumentParser:
    """
    The parser of one command.

    Args:
        words: Name of the command, such as ("catalog", "list").

    Returns:
        Parser that knows its arguments.
    """
    command = COMMANDS[words]
    parser = Parser(prog=f"tonnage {' '.join(words)}", description=f"{command.summary}.", allow_abbrev=False)
    command.arguments(parser)
    return parser


def _run(words: list[str]) -> int:
    named = next((name for name in (tuple(words[:2]), tuple(words[:1])) if name in COMMANDS), None)
    if named is None:
        return _overview(words)
    parser = parser_of(named)
    return COMMANDS[named].run(parser.parse_intermixed_args(words[len(named) :]))


def _overview(words: list[str]) -> int:
    """Help, the version, or the complaint about a command that is none."""
    rows = [(" ".join(name), command.summary) for name, command in COMMANDS.items()]
    if words[:1] == ["catalog"]:
        rows = [row for row in rows if row[0].startswith("catalog ")]
    width = max(len(name) for name, _ in rows)
    text = "".join(f"  {name.ljust(width)}  {summary}\n" for name, summary in rows)
    text = f"usage: tonnage command [arguments]\n\n{text}\n`tonnage command --help` tells more of one.\n"
    if words[:1] == ["--version"]:
        text = f"tonnage {__version__}\n"
    elif words[-1:] not in (["--help"], ["-h"]):
        sys.stderr.write(_no_command(words) + text)
        return FAILED
    sys.stdout.write(text)
    return 0


def _no_command(words: list[str]) -> str:
    """The complaint about words that start no command, with the one that was meant."""
    said = " ".join(words[: 2 if words[:1] == ["catalog"] else 1])
    if said in ("", "catalog"):
        return ""
    close = difflib.get_close_matches(said, [" ".join(name) for name in COMMANDS], n=1)
    return f"tonnage: there is no command {said!r}{f'; did you mean {close[0]}?' if close else ''}\n\n"


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"tonnage: {message}\n")
    sys.exit(FAILED)
