"""
Commands in documents: found, run against a live service, their output compared or written anew.

A fenced block of the kind `console` holds commands after `$ ` (continued after `> `) and their output below;
one of the kind `pycon` holds `>>> ` lines as doctest knows them. What names `localhost:8000` meets the service
of the run. Blocks of other kinds are for people and are not run.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import tonnage

BLOCK = re.compile(r"^```(console|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "localhost:8000"


class Step(NamedTuple):
    """One command and what it prints."""

    command: str
    output: str


def steps(text: str) -> Iterator[Step]:
    """Commands of one console block."""
    command: list[str] = []
    output: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield Step("\n".join(command), "\n".join(output))
            command, output = [line[2:]], []
        elif (line == ">" or line.startswith("> ")) and not output:
            command.append(line[2:])
        else:
            output.append(line)
    if command:
        yield Step("\n".join(command), "\n".join(output))


class Runner:
    """Runs commands where `tonnage`, `python` and the service are at hand."""

    def __init__(self, address: str, folder: Path, root: Path) -> None:
        self.address = address
        self.folder = folder
        shims = folder / ".bin"
        shims.mkdir()
        for name, words in {"python": [sys.executable], "tonnage": [sys.executable, "-m", "tonnage"]}.items():
            (shims / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (shims / name).chmod(0o755)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TONNAGE_")}
        self.env |= {
            "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(Path(tonnage.__file__).parent.parent),
            "COLUMNS": "120",
        }
        for name in ("examples", "deploy", "service"):
            (folder / name).symlink_to(root / name)

    def output(self, command: str) -> str:
        """What a command prints, and its exit code where the command asks for it."""
        here = command.replace(ADDRESS, self.address)
        result = subprocess.run(
            ["bash", "-c", here], cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        return (result.stdout + result.stderr).rstrip().replace(self.address, ADDRESS)

    def renewed(self, text: str) -> str:
        """The document with the output that its commands have now."""

        def block(match: re.Match[str]) -> str:
            kind, body = match.groups()
            return f"```{kind}\n{self._console(body) if kind == 'console' else _doctest(body)}```"

        return BLOCK.sub(block, text)

    def _console(self, body: str) -> str:
        lines = []
        for step in steps(body):
            first, *rest = step.command.split("\n")
            printed = self.output(step.command)
            lines += [f"$ {first}", *(f"> {line}".rstrip() for line in rest), *([printed] if printed else [])]
        return "\n".join(lines) + "\n"


def _doctest(body: str) -> str:
    names: dict[str, object] = {}
    out = []
    for example in doctest.DocTestParser().get_examples(body):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example.source, "<document>", "single"), names)
        first, *rest = example.source.rstrip("\n").split("\n")
        out.append("\n".join([f">>> {first}", *(f"... {line}".rstrip() for line in rest)]) + "\n" + printed.getvalue())
    return "".join(out)


@contextlib.contextmanager
def running(root: Path) -> Iterator[Runner]:
    """A runner with its own service; commands see the examples and data of the checkout."""
    from tests.api.serving import serving

    with tempfile.TemporaryDirectory() as folder, serving() as service:
        yield Runner(f"127.0.0.1:{service.port}", Path(folder), root)
