"""Module names as quantization configs write them: dotted parts, globs and regular expressions, with layer numbers."""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from msgspec import Struct

_ROOTS = (
    "model.",
    "model.language_model.",
    "language_model.model.",
    "model.text_model.",
    "backbone.",
    "transformer.",
    "",
)
_LAYER_LISTS = ("layers", "h", "blocks")


class Pattern(Struct, frozen=True):
    """One entry of a list of modules."""

    text: str
    regex: re.Pattern[str] | None = None

    def matches(self, paths: tuple[str, ...]) -> bool:
        """Whether any spelling of a module's full name is meant."""
        if self.regex is not None:
            return any(self.regex.match(path) for path in paths)
        wanted = f".{self.text}."
        return any(wanted in f".{path}." for path in paths)


def patterns(*lists: Iterable[str]) -> Iterator[Pattern]:
    """Compiled entries; unreadable regular expressions match nothing."""
    for names in lists:
        for name in names:
            yield _compiled(name)


@lru_cache(maxsize=8192)
def _compiled(name: str) -> Pattern:
    try:
        if name.startswith("re:"):
            return Pattern(name, re.compile(name[3:]))
        if "*" in name or "?" in name:
            return Pattern(name, re.compile(fnmatch.translate(name)))
    except re.error:
        return Pattern("\0")
    return Pattern(name.strip("."))


@lru_cache(maxsize=65536)
def module_paths(tensor_name: str, layer: int | None) -> tuple[str, ...]:
    """
    Full names that checkpoints give to the module of a tensor.

    Args:
        tensor_name: Name below the layer or below the model.
        layer: Layer number, None outside of layers.

    Returns:
        Module names without the trailing ".weight", by the roots in use.
    """
    module = tensor_name.removesuffix(".weight").removesuffix(".bias")
    if layer is None:
        return tuple(dict.fromkeys((module, *(root + module for root in _ROOTS))))
    return tuple(f"{root}{many}.{layer}.{module}" for root in _ROOTS for many in _LAYER_LISTS)
