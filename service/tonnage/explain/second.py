"""
A second instance of the estimate, whose laws note what they are applied to.

Its modules are those of the first, executed once more in a namespace of their own: with laws that give traced numbers,
and an `int` that keeps them traced. The first instance knows nothing of it and pays nothing for it.
"""

import builtins
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache, lru_cache, wraps
from importlib.machinery import SourceFileLoader
from threading import RLock
from types import FunctionType, ModuleType
from typing import Any, cast

import msgspec

from tonnage import laws
from tonnage.explain.traced import Applied, Labelled, Named, Part, Traced, bare, computed, is_traced
from tonnage.spec.report import Estimate
from tonnage.spec.workload import Workload

_AGAIN = ("tonnage.estimate", "tonnage.kept", "tonnage.laws", "tonnage.units")
"""Packages and modules that the second instance has of its own."""
_LAWS = "tonnage.laws."
_ROUNDING = ("ceil_div", "round_up")


@cache
def law_functions() -> dict[str, FunctionType]:
    """Every law by its name, such as "laws.kv_cache.row"."""
    return {
        f"laws.{topic}.{name}": function
        for topic, module in _law_modules().items()
        for name, function in vars(module).items()
        if _is_law(module, name, function)
    }


def _law_modules() -> dict[str, ModuleType]:
    names = [entry.name for entry in pkgutil.iter_modules(laws.__path__)]
    return {name: importlib.import_module(f"{laws.__name__}.{name}") for name in names}


def _is_law(module: ModuleType, name: str, value: Any) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == module.__name__ and not name.startswith("_")


def estimated(workload: Workload) -> Estimate:
    """
    Estimate a resolved card with numbers that remember how they came about.

    Args:
        workload: Resolved card.

    Returns:
        The estimate, whose sizes are traced where a law has a part in them.
    """
    own = _second()
    with own.lock:
        try:
            return cast("Estimate", own.module("tonnage.estimate").estimate(workload))
        finally:  # what it remembered would show where others' numbers came from
            own.module("tonnage.kept").forget()
            _labelled.cache_clear()


def opened(applied: Applied) -> Any:
    """
    A law from within.

    Args:
        applied: One application of it.

    Returns:
        Its result, traced to the numbers it is given.
    """
    own = _second()
    own.module(f"tonnage.{applied.law.rpartition('.')[0]}")
    inputs = {known: _given(known, value) for known, value in plain(dict(applied.inputs)).items()}
    return own.bare_laws[applied.law](**inputs)


def _given(known: str, value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return Traced(value, Named(known))
    if isinstance(value, tuple | list):
        names = _PARTS.get(known, ())
        parts = [
            [_given(f"{name} {place}", one) for name, one in zip(names, part, strict=True)]
            if names and len(names) == len(part)
            else _given(f"{known} {place}", part)
            for place, part in enumerate(value, 1)
        ]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def merged(applied: Applied) -> Applied:
    """
    A law with its table of tensors in short: equal ones together, in the order they first appear.

    Args:
        applied: One application of it.

    Returns:
        The same law on the shorter table; where order counts, its result may be another one.
    """
    table = plain(applied.inputs.get("tensors"))
    if not isinstance(table, tuple | list):
        return applied
    counts: dict[int, int] = {}
    for size, count in table:
        counts[size] = counts.get(size, 0) + count
    return applied._replace(inputs={**applied.inputs, "tensors": tuple(counts.items())})


_PARTS = {
    "shapes": ("rows", "columns", "copies"), "rest": ("further rows", "further columns", "further copies"),
    "tensors": ("size", "count"),
}  # fmt: skip
"""What the entries of tables that laws are given consist of."""


@cache
def _second() -> "_Second":
    return _Second()


class _Second:
    """Modules of the second instance, each executed when it is first imported there."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.bare_laws: dict[str, Callable[..., Any]] = {}
        self._modules: dict[str, ModuleType] = {}
        own = vars(builtins) | {"__import__": self._import, "int": _Int, "round": _rounded}
        own |= {"max": _choosing("max", max), "min": _choosing("min", min)}
        self._builtins = own

    def module(self, name: str) -> ModuleType:
        """The second instance of a module."""
        found = self._modules.get(name)
        if found is None:
            with self.lock:
                found = self._modules.get(name) or self._executed(name)
        return found

    def _executed(self, name: str) -> ModuleType:
        first = importlib.import_module(name)
        spec = first.__spec__
        assert spec is not None  # noqa: S101  (of this package)
        found = self._modules[name] = ModuleType(name)
        found.__dict__.update(
            __builtins__=self._builtins, __spec__=spec, __package__=first.__package__, __file__=first.__file__
        )
        if hasattr(first, "__path__"):
            found.__path__ = first.__path__
        code = cast("SourceFileLoader", spec.loader).get_code(name)
        assert code is not None  # noqa: S101  (it has been imported)
        exec(code, found.__dict__)  # noqa: S102  (source of this package)
        self._note_laws(found)
        parent, _, last = name.rpartition(".")
        if _is_again(parent):
            setattr(self.module(parent), last, found)
        return found

    def _note_laws(self, module: ModuleType) -> None:
        if module.__name__ == "tonnage.estimate.weights":
            module.stage_weights = _by_component(module.stage_weights)  # type: ignore[attr-defined]  # found by name
        for name, value in list(vars(module).items()):
            if module.__name__.startswith(_LAWS) and _is_law(module, name, value):
                law = f"{module.__name__.removeprefix('tonnage.')}.{name}"
                self.bare_laws[law] = value
                setattr(module, name, _noting(law, value))
            elif module.__name__ == "tonnage.units" and name in _ROUNDING:
                setattr(module, name, _as_operation(name, value))

    def _import(
        self, name: str, globals_: Any = None, locals_: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        if fromlist and name == "tonnage":
            return cast("ModuleType", _Names({part: self._named(f"tonnage.{part}") for part in fromlist}))
        if not _is_again(name) or level:
            return builtins.__import__(name, globals_, locals_, fromlist, level)
        found = self.module(name)
        for part in fromlist or ():
            if not hasattr(found, part) and hasattr(found, "__path__"):
                self.module(f"{name}.{part}")
        return found

    def _named(self, name: str) -> Any:
        return self.module(name) if _is_again(name) else importlib.import_module(name)


class _Names:
    """What a `from tonnage import …` takes its names from."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.__dict__.update(names)


def _is_again(name: str) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in _AGAIN)


class _IntMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(bare(instance), int)


class _Int(metaclass=_IntMeta):
    """`int` as the second instance has it."""

    def __new__(cls, value: Any = 0, *base: Any) -> Any:
        return computed("floor", int, value) if isinstance(value, Traced) else int(value, *base)


def _rounded(value: Any, digits: Any = None) -> Any:
    return computed("round", round, value) if digits is None else round(bare(value), digits)


def _by_component(stage_weights: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Weights as the sum of their components."""

    @wraps(stage_weights)
    def labelled(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return tuple(map(_labelled, stage_weights(*args, **kwargs)))

    return labelled


@lru_cache(256)
def _labelled(stage: Any) -> Any:
    parts = {
        part: Traced(bare(size), Labelled(part.replace("_", " "), size))
        for part, size in sorted(stage.bytes_by_component.items(), key=lambda part: -part[1])
    }
    return msgspec.structs.replace(stage, bytes_by_component=parts, total=sum(parts.values()))


def _choosing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`max` or `min`, of which a limit that no law gave is part of the formula when it decides."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if kwargs or len(args) < 2 or isinstance(result, Traced) or not any(map(is_traced, args)):
            return result
        return computed(name, function, *args)

    return chosen


def _as_operation(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda first, second: computed(name, function, first, second)


def _noting(law: str, function: FunctionType) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @wraps(function)
    def applied(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        inputs = {name: plain(value) for name, value in bound.arguments.items()}
        result = plain(function(**inputs))
        return _traced(result, Applied(law, dict(bound.arguments), result))

    return applied


def plain(value: Any) -> Any:
    """
    A value with all its numbers bare.

    Args:
        value: A number, or what holds some.

    Returns:
        The same without origins.
    """
    if isinstance(value, Traced):
        return value.value
    if isinstance(value, tuple | list | frozenset | set):
        parts = [plain(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {plain(key): plain(part) for key, part in value.items()}
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        changed = {name: bared for name, part in fields.items() if (bared := plain(part)) is not part}
        return msgspec.structs.replace(value, **changed) if changed else value
    return value


def _traced(result: Any, applied: Applied) -> Any:
    if isinstance(result, bool):
        return result
    if isinstance(result, int | float):
        return Traced(result, applied)
    if isinstance(result, tuple):
        names = getattr(result, "_fields", None) or [str(place + 1) for place in range(len(result))]
        parts = [
            Traced(part, Part(applied, name)) if isinstance(part, int | float) else part
            for name, part in zip(names, result, strict=True)
        ]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    return result
