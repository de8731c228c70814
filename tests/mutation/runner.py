"""
One process collects the tests; a fork of it first notes which lines each test runs, then one fork per mutant runs the
tests that reach its line, the quickest first, until one fails.
"""

import gc
import importlib
import io
import os
import pickle
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest
from tests.mutation.mutants import Mutant

Line = tuple[str, int]
_PATIENCE = 3.0
"""Least time a mutant has; else ten times what its tests took. [s]"""


class Traced(NamedTuple):
    """What a test needs and reaches."""

    seconds: float
    lines: frozenset[Line]


class Runner:
    """Pytest plug-in that runs the tests in forks."""

    def __init__(self, paths: set[str], work: Callable[["Runner"], None]) -> None:
        self._paths = paths
        self._work = work
        self._failed = False
        self._items: dict[str, pytest.Item] = {}
        self.traced: dict[str, Traced] = {}
        self._reached: dict[Line, list[str]] = defaultdict(list)
        self._killers: Counter[str] = Counter()
        """How many mutants each test killed; those that did are asked first."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        self.traced = self._forked(self._trace, 3600)
        for name, traced in self.traced.items():
            for line in traced.lines:
                self._reached[line].append(name)
        self._work(self)
        return True

    def verdict(self, mutant: Mutant) -> str:
        """`killed`, `survived`, `timed out` or `not reached`."""
        names = self._reached.get((str(mutant.path), mutant.line), [])
        if not names:
            return "not reached"
        names = sorted(names, key=lambda name: (-self._killers[name], self.traced[name].seconds))
        patience = max(_PATIENCE, 10 * sum(self.traced[name].seconds for name in names))
        killer = self._forked(lambda: self._killer(mutant, names), patience)
        if killer:
            self._killers[killer] += 1
        return "timed out" if killer is None else "killed" if killer else "survived"

    def _killer(self, mutant: Mutant, names: list[str]) -> str:
        """The first test that fails; empty without any."""
        found = replacement(mutant)
        if found is not None:
            _replace(*found)
        return next((name for name in names if not self._passes(self._items[name])), "")

    def _passes(self, item: pytest.Item) -> bool:
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self._failed

    def _trace(self) -> dict[str, Traced]:
        return {name: self._traced(item) for name, item in self._items.items()}

    def _traced(self, item: pytest.Item) -> Traced:
        lines: set[Line] = set()

        def local(frame: FrameType, event: str, argument: Any) -> Any:
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return local

        def enter(frame: FrameType, event: str, argument: Any) -> Any:
            return local if frame.f_code.co_filename in self._paths else None

        started = time.perf_counter()
        sys.settrace(enter)
        passed = self._passes(item)
        sys.settrace(None)
        if not passed:
            sys.__stderr__.write(f"left out, fails without a mutant: {item.nodeid}\n")
            return Traced(0, frozenset())
        return Traced(time.perf_counter() - started, frozenset(lines))

    def _forked(self, work: Callable[[], Any], patience: float) -> Any:
        """What the work returns in a fork; None when it takes too long."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            try:
                with os.fdopen(writer, "wb") as out:
                    pickle.dump(work(), out)
            except BaseException as error:
                sys.__stderr__.write(f"{type(error).__name__}: {error}\n")
            os._exit(0)
        os.close(writer)
        try:
            return _read_all(reader, patience)
        finally:
            os.close(reader)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _read_all(reader: int, patience: float) -> Any:
    deadline, received = time.monotonic() + patience, io.BytesIO()
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            return pickle.loads(received.getvalue()) if received.tell() else True
        received.write(part)
    return None


def replacement(mutant: Mutant) -> tuple[FunctionType, CodeType] | None:
    """Function of a mutant and the code that takes its place; None where there is no such place."""
    found: Any = importlib.import_module(module_name(mutant.path))
    for name in mutant.function:
        found = vars(found).get(name)
    function, code = _unwrapped(found), mutant.compiled()
    if function is None or code is None or function.__code__.co_freevars != code.co_freevars:
        return None
    return function, code


def _replace(function: FunctionType, code: CodeType) -> None:
    """Also in functions that it has made already, as closures that modules keep."""
    inner = dict(_pairs(function.__code__, code))
    if inner:
        for held in gc.get_objects():
            if isinstance(held, FunctionType) and held.__code__ in inner:
                made = inner[held.__code__]
                if made.co_freevars == held.__code__.co_freevars:
                    held.__code__ = made
    function.__code__ = code


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Code objects inside of both, at the same place."""
    mine, theirs = ([c for c in code.co_consts if isinstance(c, CodeType)] for code in (old, new))
    for before, after in zip(mine, theirs, strict=False):
        if before.co_name == after.co_name:
            yield before, after
            yield from _pairs(before, after)


def _unwrapped(found: Any) -> FunctionType | None:
    for attribute in ("fget", "func", "__func__", "__wrapped__"):
        found = getattr(found, attribute, found)
    return found if isinstance(found, FunctionType) else None


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[len(parts) - parts[::-1].index("tonnage") - 1 :]).removesuffix(".__init__")
