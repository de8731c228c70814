"""How a law ends: seen from outside, so that no law pays for it."""

import sys
from types import FrameType, FunctionType
from typing import Any


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
