"""Which laws an estimate applies, with which inputs, and what each gives: seen from outside, so that no law pays for it."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, TypeVar, cast

from tonnage import laws
from tonnage.estimate.identity_cache import afresh
from tonnage.estimate.weights import stage_weights

R = TypeVar("R")


class Applied(NamedTuple):
    """One application of a law."""

    law: str
    """Its name, as items say it."""
    inputs: dict[str, Any]
    result: Any


@cache
def law_functions() -> dict[str, FunctionType]:
    """Every law by its name, such as "laws.kv_cache.row"."""
    return {
        f"laws.{topic}.{name}": function
        for topic, module in _modules().items()
        for name, function in vars(module).items()
        if isinstance(function, FunctionType) and function.__module__ == module.__name__ and not name.startswith("_")
    }


def _modules() -> dict[str, Any]:
    names = [entry.name for entry in pkgutil.iter_modules(laws.__path__)]
    return {name: importlib.import_module(f"{laws.__name__}.{name}") for name in names}


STAGES = "weights by stage"
"""Name under which the sum over tensors is noted beside the laws."""


@cache
def _codes() -> dict[CodeType, str]:
    summed = cast("FunctionType", inspect.unwrap(stage_weights))
    return {summed.__code__: STAGES} | {function.__code__: law for law, function in law_functions().items()}


def watched(question: Callable[[], R]) -> tuple[R, tuple[Applied, ...]]:
    """
    Answer a question and note the laws it applies.

    Args:
        question: What to compute; everything remembered is computed anew, in this thread alone.

    Returns:
        The answer, and the applications in the order they end.
    """
    codes, found = _codes(), []
    given: list[dict[str, Any]] = []

    def note(frame: FrameType, event: str, result: Any) -> None:
        law = codes.get(frame.f_code)
        if law is None:
            return
        if event == "call":
            given.append(dict(frame.f_locals))
        elif event == "return":
            inputs = given.pop()
            if result is not None:  # a law that refuses ends here too
                found.append(Applied(law, inputs, result))

    with afresh():
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            answer = question()
        finally:
            sys.setprofile(before)
    return answer, tuple(found)


def last_line(function: FunctionType, inputs: dict[str, Any]) -> tuple[Any, int, dict[str, Any]]:
    """
    Apply a law once more and look at how it ends.

    Args:
        function: The law.
        inputs: What to apply it to.

    Returns:
        Its result, the line of the source it returns from, and its names with their values.
    """
    seen: list[tuple[int, dict[str, Any]]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is function.__code__:
            seen.append((frame.f_lineno, dict(frame.f_locals)))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = function(**inputs)
    finally:
        sys.setprofile(before)
    return (result, *seen[-1])
