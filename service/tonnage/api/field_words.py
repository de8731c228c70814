"""What the line under a Struct's field says, for the API description; msgspec itself does not keep it."""

import ast
import inspect
import itertools
import textwrap
from functools import cache
from typing import Any

from msgspec import Struct


@cache
def field_words(struct: type[Struct]) -> dict[str, str]:
    """
    Descriptions of a Struct's fields.

    Args:
        struct: Type whose source is at hand.

    Returns:
        Text by field name, those of the types it extends included.
    """
    found: dict[str, str] = {}
    for owner in reversed(struct.__mro__):
        if isinstance(owner, type) and issubclass(owner, Struct) and owner is not Struct:
            found |= _own_words(owner)
    return found


def _own_words(struct: Any) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(struct))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    found = {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for field, words in itertools.pairwise(statements):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(words, ast.Expr) and isinstance(words.value, ast.Constant):
            found[field.target.id] = inspect.cleandoc(str(words.value.value)).replace("\n", " ")
    return found
