"""
The small arithmetic that architecture tables are written in: "hidden_size // num_attention_heads".

An expression is parsed once into nested closures; it can read fields, count, compare and choose,
and nothing else. Names resolve through the lookup it is called with.
"""

import ast
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tonnage.errors import CatalogError
from tonnage.units import ceil_div, round_up

Lookup = Callable[[str], Any]
Expression = Callable[[Lookup], Any]


def _product(left: Any, right: Any) -> Any:
    """Numbers only: a text or list from a config must not be repeated a billion times."""
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise TypeError("a product needs numbers")
    return left * right


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: _product, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda item, many: item in many, ast.NotIn: lambda item, many: item not in many,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {
    "max": max, "min": min, "len": len, "int": int, "sum": sum, "count": lambda many, item: many.count(item),
    "ceil_div": ceil_div, "round_up": round_up, "is_list": lambda value: isinstance(value, list),
    "is_text": lambda value: isinstance(value, str),
    "get": lambda mapping, key: mapping.get(key) if mapping else None,
    "one": lambda value: value[0] if isinstance(value, list) else value,
}  # fmt: skip


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Expression of its text; refuses anything but arithmetic, comparison, choice and the listed calls."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise CatalogError(f"architecture expression {text!r}: {error.msg}") from error
    return _build(tree, text)


@lru_cache(maxsize=4096)
def names_in(text: str) -> tuple[str, ...]:
    """Fields an expression reads, calls left out, in order."""
    found = (node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name))
    return tuple(name for name in dict.fromkeys(found) if name not in _CALLS)


def _build(node: ast.expr, text: str) -> Expression:
    builder = _BUILDERS.get(type(node))
    if builder is None:
        raise CatalogError(f"architecture expression {text!r}: {type(node).__name__} is not allowed")
    return builder(node, text)


def _constant(node: ast.Constant, _: str) -> Expression:
    value = node.value
    return lambda _: value


def _name(node: ast.Name, _: str) -> Expression:
    name = node.id
    return lambda lookup: lookup(name)


def _list(node: ast.List, text: str) -> Expression:
    items = [_build(item, text) for item in node.elts]
    return lambda lookup: [item(lookup) for item in items]


def _binary(node: ast.BinOp, text: str) -> Expression:
    apply = _BINARY.get(type(node.op))
    if apply is None:
        raise CatalogError(f"architecture expression {text!r}: {type(node.op).__name__} is not allowed")
    left, right = _build(node.left, text), _build(node.right, text)
    return lambda lookup: apply(left(lookup), right(lookup))


def _unary(node: ast.UnaryOp, text: str) -> Expression:
    operand = _build(node.operand, text)
    if isinstance(node.op, ast.Not):
        return lambda lookup: not operand(lookup)
    return lambda lookup: -operand(lookup)


def _boolean(node: ast.BoolOp, text: str) -> Expression:
    parts = [_build(part, text) for part in node.values]
    stop_at = isinstance(node.op, ast.Or)

    def evaluate(lookup: Lookup) -> Any:
        value = None
        for part in parts:
            value = part(lookup)
            if bool(value) is stop_at:
                break
        return value

    return evaluate


def _compare(node: ast.Compare, text: str) -> Expression:
    left = _build(node.left, text)
    steps = [(_COMPARE[type(op)], _build(right, text)) for op, right in zip(node.ops, node.comparators, strict=True)]

    def evaluate(lookup: Lookup) -> bool:
        value = left(lookup)
        for compare, right in steps:
            other = right(lookup)
            if not compare(value, other):
                return False
            value = other
        return True

    return evaluate


def _choice(node: ast.IfExp, text: str) -> Expression:
    test, then, otherwise = (_build(part, text) for part in (node.test, node.body, node.orelse))
    return lambda lookup: then(lookup) if test(lookup) else otherwise(lookup)


def _call(node: ast.Call, text: str) -> Expression:
    function = _CALLS.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is None or node.keywords:
        raise CatalogError(f"architecture expression {text!r}: only {', '.join(_CALLS)} can be called")
    arguments = [_build(argument, text) for argument in node.args]
    return lambda lookup: function(*(argument(lookup) for argument in arguments))


def _subscript(node: ast.Subscript, text: str) -> Expression:
    many, index = _build(node.value, text), _build(node.slice, text)
    return lambda lookup: many(lookup)[index(lookup)]


def _attribute(node: ast.Attribute, text: str) -> Expression:
    part, name = _build(node.value, text), node.attr
    return lambda lookup: part(lookup)[name]


_BUILDERS: dict[type[ast.expr], Callable[[Any, str], Expression]] = {
    ast.Constant: _constant, ast.Name: _name, ast.List: _list, ast.BinOp: _binary, ast.UnaryOp: _unary,
    ast.BoolOp: _boolean, ast.Compare: _compare, ast.IfExp: _choice, ast.Call: _call, ast.Subscript: _subscript,
    ast.Attribute: _attribute,
}  # fmt: skip
