"""Python expressions of laws as people write them: one line of text, and MathML."""

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

_SUM, _PRODUCT, _ATOM = 1, 2, 3
_SIGNS: dict[type[ast.operator], tuple[str, int]] = {
    ast.Add: ("+", _SUM), ast.Sub: ("−", _SUM), ast.Mult: ("×", _PRODUCT),
}  # fmt: skip
_PREFIXES = frozenset({"KiB", "MiB", "GiB"})
_GROUP = "\u202f"
"""Between groups of three digits: no country takes it for a decimal sign."""

Evaluate = Callable[[ast.expr], Any]


class Written(NamedTuple):
    """An expression, and how tightly it binds."""

    text: str
    mathml: str
    binds: int = _ATOM
    terms: "tuple[Written, ...]" = ()
    """Of a sum: what it adds, each after its sign; a long one is broken between them."""


class NotWritten(Exception):
    """The expression is of a kind that has no place in a formula."""


def number(value: Any) -> Written:
    """A value as it is printed: groups of three digits, sizes never rounded."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Written(str(value), f"<mtext>{escape(str(value))}</mtext>")
    digits = f"{value:,}" if isinstance(value, int) else _digits(value)
    bare = Written(digits, f"<mn>{digits.replace(',', _GROUP)}</mn>")
    return bare if value >= 0 else Written(f"({digits})", f"<mrow><mo>(</mo>{bare.mathml}<mo>)</mo></mrow>")


def _digits(value: float) -> str:
    """A fraction so that reading it gives the same number."""
    short = f"{value:,.12g}"
    return short if "e" not in short and float(short.replace(",", "")) == value else f"{value:,}"


def name(text: str) -> Written:
    """A quantity by its name, words apart."""
    words = text.strip("_").replace("_", " ")
    return Written(words, f"<mtext>{escape(words)}</mtext>")


class Writer:
    """Writes expressions, with names or with the values that stand for them."""

    def __init__(self, value_of: Evaluate, *, names: bool) -> None:
        self.value_of = value_of
        self.names = names

    def __call__(self, node: ast.expr) -> Written:  # noqa: PLR0911  (one case for each kind of expression)
        """One expression."""
        match node:
            case ast.Constant():
                return number(node.value)
            case ast.Name(id=known) if known in _PREFIXES:
                return Written(known, f"<mi>{known}</mi>")
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._quantity(node)
            case ast.IfExp():
                return self(node.body if self.value_of(node.test) else node.orelse)
            case ast.UnaryOp(op=ast.USub(), operand=ast.BinOp(ast.UnaryOp(operand=dividend), ast.FloorDiv(), divisor)):
                return between(fraction(self(dividend), self(divisor)), "⌈", "⌉")
            case ast.UnaryOp(op=ast.USub()):
                inside = self._tight(node.operand, _PRODUCT)
                return Written(f"−{inside.text}", f"<mrow><mo>−</mo>{inside.mathml}</mrow>", _SUM)
            case ast.BinOp():
                return self._operation(node)
            case ast.Call(func=ast.Name(id=function), keywords=[]):
                return self._applied(function, node)
            case ast.Call():
                return self._quantity(node)
        raise NotWritten(ast.unparse(node))

    def _quantity(self, node: ast.expr) -> Written:
        if not self.names:
            return number(self.value_of(node))
        match node:
            case (
                ast.Call(func=ast.Name(id=text) | ast.Attribute(attr=text))
                | ast.Attribute(attr=text)
                | ast.Name(id=text)
            ):
                return name(text)
        return name(ast.unparse(node))

    def _operation(self, node: ast.BinOp) -> Written:
        if isinstance(node.op, ast.Div):
            return fraction(self(node.left), self(node.right))
        if isinstance(node.op, ast.FloorDiv):
            return between(fraction(self(node.left), self(node.right)), "⌊", "⌋")
        if isinstance(node.op, ast.Pow):
            return above(self(node.left), self(node.right))
        sign, binds = _SIGNS.get(type(node.op), ("", 0))
        if not sign:
            raise NotWritten(ast.unparse(node))
        left, right = self._tight(node.left, binds), self._tight(node.right, binds + (sign == "−"))
        return joined(sign, (left, right))

    def _tight(self, node: ast.expr, binds: int) -> Written:
        inside = self(node)
        return inside if inside.binds >= binds else between(inside, "(", ")")

    def _applied(self, function: str, node: ast.Call) -> Written:
        match function, node.args:
            case "ceil_div", [dividend, divisor]:
                return between(fraction(self(dividend), self(divisor)), "⌈", "⌉")
            case "round_up", [amount, multiple]:
                part, whole = between(fraction(self(amount), self(multiple)), "⌈", "⌉"), self._tight(multiple, _ATOM)
                return Written(f"{part.text} × {whole.text}", f"{part.mathml}<mo>×</mo>{whole.mathml}", _PRODUCT)
            case "int", [ast.expr() as argument]:
                return between(self(argument), "⌊", "⌋")
            case "min" | "max", [_, _, *_]:
                parts = [self(argument) for argument in node.args]
                inside = "<mo>,</mo>".join(f"<mrow>{part.mathml}</mrow>" for part in parts)
                text = f"{function}({', '.join(part.text for part in parts)})"
                body = f"<mi>{function}</mi>{between(Written('', inside), '(', ')').mathml}"
                return Written(text, body, _ATOM, () if "<mfrac>" in inside else tuple(_listed(function, parts)))
        return self._quantity(node)


def joined(sign: str, parts: Sequence[Written]) -> Written:
    """Parts with a sign between them."""
    text, mathml = f" {sign} ".join(p.text for p in parts), f"<mo>{sign}</mo>".join(p.mathml for p in parts)
    if sign == "×":
        return Written(text, mathml, _PRODUCT)
    return Written(text, mathml, _SUM, tuple(_terms(sign, parts)))


def _terms(sign: str, parts: Sequence[Written]) -> Iterator[Written]:
    for place, part in enumerate(parts):
        first, *rest = part.terms or (part,)
        yield first if place == 0 else Written(f"{sign} {first.text}", f"<mo>{sign}</mo>{first.mathml}")
        yield from rest


def _listed(function: str, parts: Sequence[Written]) -> Iterator[Written]:
    """Arguments of a function, so that it can be broken where one of them is a long sum."""
    for place, part in enumerate(parts):
        terms = list(part.terms or (part,))
        if place == 0:
            terms[0] = Written(f"{function}({terms[0].text}", f"<mi>{function}</mi>{_bracket('(')}{terms[0].mathml}")
        sign = ")" if place == len(parts) - 1 else ","
        terms[-1] = Written(f"{terms[-1].text}{sign}", f"{terms[-1].mathml}{_bracket(sign)}")
        yield from terms


def _bracket(sign: str) -> str:
    return f'<mo stretchy="false">{sign}</mo>'


def lines(whole: Written, longest: int) -> Iterator[Written]:
    """
    A formula by lines, broken where a sum adds.

    Args:
        whole: The formula.
        longest: Length of a line, if no term is longer. [characters]

    Returns:
        Lines; those after the first begin with a sign.
    """
    if len(whole.text) <= longest or not whole.terms:
        yield whole
        return
    text, mathml = "", ""
    for term in whole.terms:
        if text and len(text) + 1 + len(term.text) > longest:
            yield Written(text, mathml)
            text, mathml = "", ""
        text, mathml = f"{text} {term.text}".strip(), mathml + term.mathml
    yield Written(text, mathml)


def tight(inside: Written) -> Written:
    """A factor: a sum gets parentheses."""
    return inside if inside.binds >= _PRODUCT else between(inside, "(", ")")


def above(base: Written, power: Written) -> Written:
    """A power."""
    low = base if base.binds == _ATOM else between(base, "(", ")")
    return Written(f"{low.text}^{power.text}", f"<msup><mrow>{low.mathml}</mrow><mrow>{power.mathml}</mrow></msup>")


def between(inside: Written, opening: str, closing: str) -> Written:
    """Something in brackets."""
    grows = "" if "<mfrac>" in inside.mathml else ' stretchy="false"'
    body = f"<mrow><mo{grows}>{opening}</mo>{inside.mathml}<mo{grows}>{closing}</mo></mrow>"
    return Written(f"{opening}{inside.text}{closing}", body)


def fraction(dividend: Written, divisor: Written) -> Written:
    """One thing over another."""
    over = dividend.text if dividend.binds > _SUM else f"({dividend.text})"
    under = divisor.text if divisor.binds == _ATOM else f"({divisor.text})"
    body = f"<mfrac><mrow>{dividend.mathml}</mrow><mrow>{divisor.mathml}</mrow></mfrac>"
    return Written(f"{over} / {under}", body, _PRODUCT)
