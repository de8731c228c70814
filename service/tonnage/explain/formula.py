"""A law applied, as the lines a person would write down; read from the law's own source and evaluated by it."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from tonnage.explain.notation import NotWritten, Writer, Written, lines, name, number
from tonnage.explain.watch import last_line
from tonnage.kept import Kept
from tonnage.spec.report import Step

MOST_STEPS = 8
LONGEST_LINE = 34
"""What a phone has room for. [characters]"""
_LAWS = "tonnage.laws."
_kept: Kept[tuple[FunctionType, str, str], tuple[Step, ...]] = Kept(1024)


class _Source(NamedTuple):
    body: ast.FunctionDef
    first_line: int


@cache
def _source(function: FunctionType) -> _Source:
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    assert isinstance(tree.body[0], ast.FunctionDef)  # noqa: S101  (a law is a def)
    return _Source(tree.body[0], first)


def lines_of(function: FunctionType, inputs: Mapping[str, Any], result_name: str = "") -> tuple[Step, ...]:
    """
    Steps of a law for these inputs, the last of which is its result.

    Args:
        function: The law, or a helper of one.
        inputs: What it was applied to.
        result_name: Name of the result; empty: the law's own.

    Returns:
        Steps; none when the law is a loop or a choice that no formula shows.
    """
    key = (function, repr(inputs), result_name)
    kept = _kept.get(key)
    return kept if kept is not None else _kept.keep(key, _lines(function, inputs, result_name or function.__name__))


@cache
def hides(function: FunctionType) -> bool:
    """
    Whether a law's expression has a part that only its code shows: a sum over a table, a helper.

    Args:
        function: The law.

    Returns:
        True where the formula names that part and no more.
    """
    calls = [node.func for node in ast.walk(_source(function).body) if isinstance(node, ast.Call)]
    return any(isinstance(called, ast.Name) and (called.id == "sum" or called.id.startswith("_")) for called in calls)


def _lines(function: FunctionType, inputs: Mapping[str, Any], result_name: str) -> tuple[Step, ...]:
    try:
        result, line, values = last_line(function, dict(inputs))
        return tuple(_steps(function, line, values, result, result_name))[-MOST_STEPS:]
    except NotWritten:
        return ()


def _steps(function: FunctionType, line: int, values: dict[str, Any], result: Any, result_name: str) -> Iterator[Step]:
    source = _source(function)
    returned = _returned(source, line)

    def value_of(node: ast.expr) -> Any:
        return _value(function, node, values)

    if isinstance(returned, ast.Call) and (called := _law_called(function, returned, values)):
        yield from lines_of(*called, result_name)
        return
    defined = _defined_once(source.body)
    for known in _names(returned, value_of):
        if known in defined:
            yield from _defined(function, known, defined[known], values)
    yield step(result_name, Writer(value_of, names=True)(returned), Writer(value_of, names=False)(returned), result)


def step(result_name: str, formula: Written, numbers: Written, value: Any) -> Step:
    """One quantity: its formula, the numbers put in and what they give."""
    title, found = name(result_name), number(value)
    shown = [formula, numbers, found]
    rows = [part for at, part in enumerate(shown) if part.text not in [other.text for other in shown[at + 1 :]]]
    table = "".join(_row(line, place == 0) for row in rows for place, line in enumerate(lines(row, LONGEST_LINE)))
    return Step(
        name=title.text,
        formula=formula.text,
        numbers=numbers.text,
        value=value,
        mathml=f'<math display="block"><mtable>{table}</mtable></math>',
    )


def _row(line: Written, first: bool) -> str:
    begin = '<mo form="infix">=</mo>' if first else '<mspace width="1.5em"/>'
    one_name = re.fullmatch(r"<mtext>([^<]*)</mtext>", line.mathml)  # text is a space to MathML: "=" would lose its own
    return f"<mtr><mtd><mrow>{begin}{f'<mn>{one_name[1]}</mn>' if one_name else line.mathml}</mrow></mtd></mtr>"


def _returned(source: _Source, line: int) -> ast.expr:
    at = line - source.first_line + 1
    for node in ast.walk(source.body):
        if isinstance(node, ast.Return) and node.value is not None and node.lineno <= at <= (node.end_lineno or 0):
            return node.value
    raise NotWritten(source.body.name)


def _value(function: FunctionType, node: ast.expr, values: dict[str, Any]) -> Any:
    """What a part of the law's own source is worth; a choice or a call is evaluated as Python does."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    return eval(_code(node), function.__globals__, values)  # noqa: S307  (source of this package, numbers of this estimate)


@cache
def _code(node: ast.expr) -> CodeType:
    """One for each part of the laws' sources, which are kept."""
    return compile(ast.Expression(node), "<law>", "eval")


def _names(node: ast.expr, value_of: Any) -> list[str]:
    """Names that the formula shows, in order."""
    if isinstance(node, ast.IfExp):
        return _names(node.body if value_of(node.test) else node.orelse, value_of)
    if isinstance(node, ast.Name):
        return [node.id]
    parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return list(dict.fromkeys(found for part in parts for found in _names(part, value_of)))


def _defined_once(body: ast.FunctionDef) -> dict[str, ast.expr]:
    """Names that the law gives to a part of its formula: assigned once, at its top level."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(body):
        for target, value in _assigned(node, top=node in body.body):
            found.setdefault(target, []).append(value)
    return {known: values[0] for known, values in found.items() if len(values) == 1 and values[0] is not None}


def _assigned(node: ast.AST, *, top: bool) -> Iterator[tuple[str, ast.expr | None]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=known)], value=value):
            yield known, value if top else None
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            for target, value in zip(targets, values, strict=False):
                if isinstance(target, ast.Name):
                    yield target.id, value if top else None
        case ast.Assign(targets=[ast.Tuple(elts=targets)]) | ast.For(target=ast.Tuple(elts=targets)):
            yield from ((target.id, None) for target in targets if isinstance(target, ast.Name))
        case ast.AugAssign(target=ast.Name(id=known)) | ast.For(target=ast.Name(id=known)):
            yield known, None


def _defined(function: FunctionType, known: str, node: ast.expr, values: dict[str, Any]) -> Iterator[Step]:
    value = values.get(known)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return

    def value_of(part: ast.expr) -> Any:
        return _value(function, part, values)

    if isinstance(node, ast.Call) and (called := _law_called(function, node, values)):
        inner = lines_of(*called, known)
        yield from inner if inner else [step(known, name(called[0].__name__), number(value), value)]
        return
    try:
        formula, numbers = Writer(value_of, names=True)(node), Writer(value_of, names=False)(node)
    except NotWritten:
        return
    yield step(known, formula, numbers, value)


def _law_called(
    function: FunctionType, node: ast.Call, values: dict[str, Any]
) -> tuple[FunctionType, dict[str, Any]] | None:
    """Another law, or a helper of this one, and what it is applied to here."""
    try:
        called = _value(function, node.func, values)
        if not isinstance(called, FunctionType) or not called.__module__.startswith(_LAWS):
            return None
        positional = [_value(function, argument, values) for argument in node.args]
        named = {word.arg: _value(function, word.value, values) for word in node.keywords if word.arg is not None}
        return called, dict(inspect.signature(called).bind(*positional, **named).arguments)
    except (NameError, TypeError):
        return None
