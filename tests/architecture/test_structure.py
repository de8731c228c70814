"""What DESIGN asks of the code's shape, checked on the installed package."""

import ast
import importlib
import inspect
import pkgutil
import re
import statistics
from pathlib import Path

import pytest

import tonnage
import tonnage.laws

PACKAGE = Path(tonnage.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
PREFIXES = {2**10, 2**20, 2**30, 2**40, 10**9, 10**12}
LAWS = [
    (f"{module.name}.{name}", function)
    for module in pkgutil.iter_modules(tonnage.laws.__path__)
    for name, function in vars(importlib.import_module(f"tonnage.laws.{module.name}")).items()
    if inspect.isfunction(function)
    and function.__module__ == f"tonnage.laws.{module.name}"
    and not name.startswith("_")
]


def functions(tree):
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def body_lines(function):
    body = function.body
    if (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body = body[1:]
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def prefix_literals(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value in PREFIXES - {2**10}:
            yield node.lineno, node.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.LShift):
            left, right = node.left, node.right
            if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
                value = left.value**right.value if isinstance(node.op, ast.Pow) else left.value << right.value
                if value in PREFIXES:
                    yield node.lineno, value


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_units_knows_what_a_prefix_is_worth(path):
    if path.name == "units.py":
        return

    assert [] == list(prefix_literals(ast.parse(path.read_text())))


def test_files_stay_readable():
    long = {str(p.relative_to(PACKAGE)): n for p in MODULES if (n := len(p.read_text().splitlines())) > 500}

    assert {} == long


def test_functions_stay_short():
    sizes = {
        f"{p.relative_to(PACKAGE)}:{f.name}": body_lines(f)
        for p in MODULES
        for f in functions(ast.parse(p.read_text()))
    }

    assert {} == {name: lines for name, lines in sizes.items() if lines > 70}
    assert statistics.median(sizes.values()) <= 8


@pytest.mark.parametrize(("name", "law"), LAWS, ids=[name for name, _ in LAWS])
def test_every_law_names_units_and_source(name, law):
    document = inspect.getdoc(law) or ""
    parameters = list(inspect.signature(law).parameters.values())

    assert "Source:" in document
    assert re.search(r"Returns:\n.*\[[^\]]+\]", document, re.DOTALL), "the result has a unit in brackets"
    for parameter in parameters:
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, f"{parameter.name} is keyword-only"
        assert re.search(rf"\b{parameter.name}: ", document), f"{parameter.name} is described"


@pytest.mark.parametrize(("name", "law"), LAWS, ids=[name for name, _ in LAWS])
def test_every_law_is_tested(name, law, repository):
    tests = "\n".join(p.read_text() for p in (repository / "tests").rglob("test_*.py"))

    assert law.__name__ in tests
