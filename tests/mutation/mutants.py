"""
Small wrong changes to functions.

A mutant replaces the code object of one function, so nothing is imported twice and every caller sees the change.
Left alone: docstrings, annotations, decorators, defaults, the words of a refusal, and what only asserts (`assert`, `strict=`).
"""

import ast
import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType
from typing import NamedTuple

_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}


class Mutant(NamedTuple):
    """One change."""

    path: Path
    function: tuple[str, ...]
    """Names from the module down to the function."""
    line: int
    change: str
    compiled: Callable[[], CodeType | None]
    """Makes the code object: a sample compiles only what it takes. None where the name is not the only one."""


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file, in its order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for names, function in _functions(tree, ()):
        for node in _own_nodes(function):
            for change, changed in _changes(node):
                compiled = partial(_compiled, tree, function, node, changed, path, names)
                yield Mutant(path, names, node.lineno, change, compiled)


def _functions(node: ast.AST, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield (*above, child.name), child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, (*above, child.name))


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.expr | ast.stmt]:
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.expr | ast.stmt):
            yield node
        if not isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            waiting.extend(reversed([*_children(node)]))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue
        yield from (child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST))


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    changed = copy.copy(node)
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _BINARY:
            changed.op = _BINARY[type(op)]()
            yield f"{type(op).__name__} -> {type(changed.op).__name__}", changed
        case ast.Compare(ops=[op, *rest]) if type(op) in _COMPARE:
            changed.ops = [_COMPARE[type(op)](), *rest]
            yield f"{type(op).__name__} -> {type(changed.ops[0]).__name__}", changed
        case ast.BoolOp(op=op):
            changed.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield f"{type(op).__name__} -> {type(changed.op).__name__}", changed
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield f"{type(node.op).__name__} dropped", operand
        case ast.Constant(value=bool() as value):
            yield f"{value} -> {not value}", ast.copy_location(ast.Constant(not value), node)
        case ast.Constant(value=int() as value):
            yield f"{value} -> {value + 1}", ast.copy_location(ast.Constant(value + 1), node)
        case ast.Constant(value=float() as value):
            yield f"{value} -> {value * 2 + 1}", ast.copy_location(ast.Constant(value * 2 + 1), node)
        case ast.Call(func=ast.Name(id=name)) if name in _NAMES:
            changed.func = ast.copy_location(ast.Name(_NAMES[name], ast.Load()), node)
            yield f"{name} -> {_NAMES[name]}", changed
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare):
            changed.test = ast.copy_location(ast.UnaryOp(ast.Not(), test), node)
            yield "condition negated", changed
        case ast.Break() | ast.Continue():
            other = ast.Continue() if isinstance(node, ast.Break) else ast.Break()
            yield f"{type(node).__name__} -> {type(other).__name__}", ast.copy_location(other, node)
        case ast.Raise():
            yield "refusal dropped", ast.copy_location(ast.Pass(), node)


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else self.generic_visit(_shallow(node))


def _shallow(node: ast.AST) -> ast.AST:
    """A node whose lists may be changed without changing the original."""
    made = copy.copy(node)
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            setattr(made, name, list(value))
    return made


def _compiled(
    tree: ast.Module, function: ast.FunctionDef, old: ast.AST, new: ast.AST, path: Path, names: tuple[str, ...]
) -> CodeType | None:
    mutated = _Replace(old, new).visit(function)
    whole = _Replace(function, mutated).visit(tree)
    return code_of(compile(ast.fix_missing_locations(whole), str(path), "exec"), names)


def code_of(code: CodeType, names: tuple[str, ...]) -> CodeType | None:
    """Code object inside a module's, by names."""
    for name in names:
        inner = [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name]
        if len(inner) != 1:
            return None
        code = inner[0]
    return code
