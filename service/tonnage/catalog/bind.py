"""The law that a fact names -> the function; a name without a function never gets past loading."""

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tonnage.errors import CatalogError


@functools.cache
def bound_law(name: str) -> Callable[..., Any]:
    """
    Function in `tonnage.laws` that a data file names.

    Args:
        name: Module and function, such as "optimizer.adamw_states".

    Returns:
        The function.

    Raises:
        CatalogError: No such module or function.
    """
    module_name, _, function_name = name.rpartition(".")
    try:
        module = importlib.import_module(f"tonnage.laws.{module_name}")
    except ModuleNotFoundError as error:
        raise CatalogError(f"law {name!r}: there is no module tonnage.laws.{module_name}") from error
    function = vars(module).get(function_name)
    if not inspect.isfunction(function) or function_name.startswith("_"):
        known = sorted(n for n, f in vars(module).items() if inspect.isfunction(f) and not n.startswith("_"))
        raise CatalogError(f"law {name!r}: tonnage.laws.{module_name} has no such function; it has {', '.join(known)}")
    return function


def check_arguments(name: str, *, given: Iterable[str], needed: Mapping[str, bool]) -> None:
    """
    Comparison of what a fact gives a law with what the law takes.

    Args:
        name: As for `bound_law`.
        given: Arguments that the record names.
        needed: Inputs that only a record can give, and whether it does.

    Raises:
        CatalogError: An argument that the law does not take, or an input it lacks.
    """
    parameters = inspect.signature(bound_law(name)).parameters
    unknown = sorted(set(given) - set(parameters))
    if unknown:
        raise CatalogError(f"law {name!r} takes no {', '.join(unknown)}; it takes {', '.join(parameters)}")
    missing = sorted(argument for argument, is_given in needed.items() if argument in parameters and not is_given)
    if missing:
        raise CatalogError(f"law {name!r} needs {', '.join(missing)}")
