"""Lots of questions answered: what every worker runs, in this process, in another, or on Ray."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tonnage import evidence
from tonnage import fit as fitting
from tonnage.api.decoding import BodyDecoder
from tonnage.api.failures import as_problem
from tonnage.api.problems import Problem, encode
from tonnage.api.query import QueryReader
from tonnage.api.representations import chosen_fields, encode_json, shown
from tonnage.catalog import Catalog, load_catalog
from tonnage.spec.card import SizingCard
from tonnage.spec.fit import FitAnswer, FitRequest
from tonnage.spec.report import Estimate


class Ask(NamedTuple):
    """What is asked of every card; small, because it travels to every worker."""

    fit: bool
    fields: tuple[str, ...]
    overlay: str
    table: bool
    """Answers become rows with figures, not lines of JSON."""

    @property
    def path(self) -> str:
        """Path of the operation this is. [unitless]"""
        return "/fit" if self.fit else "/estimate"


class Question(NamedTuple):
    """One card: as JSON, or as texts by query name."""

    number: int
    card: bytes | None
    given: dict[str, str]
    row: dict[str, Any]
    """Cells that stand before the figures in a table of answers."""


class Rows(NamedTuple):
    """Answers of one lot, in order: lines that end in a newline, or rows by column."""

    lines: bytes
    rows: list[dict[str, Any]]
    size: int
    problems: int


def ask_of(*, fit: bool, fields: str | None, overlay: Path | None, table: bool) -> Ask:
    """
    What the options ask.

    Args:
        fit: /fit instead of /estimate.
        fields: Names separated by commas, None for all.
        overlay: Directory on top of the built-in catalogue.
        table: Rows instead of lines.

    Returns:
        Checked: the fields exist.
    """
    chosen = chosen_fields({"fields": fields} if fields else {}, FitAnswer if fit else Estimate)
    return Ask(fit, chosen, "" if overlay is None else str(overlay.resolve()), table)


@cache
def query_reader(*, fit: bool) -> QueryReader[Any]:
    """Reader of rows by query name."""
    return QueryReader(FitRequest if fit else SizingCard)


@cache
def _decoder(*, fit: bool) -> BodyDecoder[Any]:
    return BodyDecoder(FitRequest if fit else SizingCard)


@cache
def _catalog(overlay: str) -> Catalog:
    return load_catalog(Path(overlay) if overlay else None)


def answered(ask: Ask, lot: list[Question]) -> Rows:
    """
    Answers of one lot.

    Args:
        ask: What is asked.
        lot: Questions in order.

    Returns:
        Lines or rows in the same order; a refused card is its problem.
    """
    lines, rows, problems = [], [], 0
    for question in lot:
        answer = _answer(ask, question)
        problems += isinstance(answer, Problem)
        if ask.table:
            rows.append({**question.row, **_figures(ask, answer)})
        else:
            lines.append(encode(answer) if isinstance(answer, Problem) else encode_json(shown(answer, ask.fields)))
    return Rows(b"".join(line + b"\n" for line in lines), rows, len(lot), problems)


def _answer(ask: Ask, question: Question) -> Estimate | FitAnswer | Problem:
    try:
        card = (
            _decoder(fit=ask.fit)(question.card)
            if question.card is not None
            else query_reader(fit=ask.fit)(question.given)
        )
        catalog = _catalog(ask.overlay)
        return fitting.fit(catalog, card) if ask.fit else evidence.estimate(catalog, card)
    except Exception as error:  # one bad card stops nothing
        return as_problem(error).document(f"{ask.path}#line={question.number}")


def figures_of(ask: Ask) -> dict[str, str]:
    """
    Columns that a table of answers ends with, and their types.

    Args:
        ask: What is asked.

    Returns:
        "string" or "int64" by column; the same whatever the answers, so that a table stays one.
    """
    return {**(_FIT if ask.fit else _ESTIMATE), "digest": "string", "problem": "string", "answer": "string"}


_ESTIMATE = {
    "verdict": "string",
    "required_low_bytes": "int64",
    "required_expected_bytes": "int64",
    "required_high_bytes": "int64",
    "usable_bytes": "int64",
    "headroom_expected_bytes": "int64",
}
_FIT = {
    "status": "string",
    "first_sku": "string",
    "first_gpu": "string",
    "first_gpu_count": "int64",
    "first_weights_format": "string",
    "price_for_duration": "string",
    "price_currency": "string",
    "required_expected_bytes": "int64",
}


def _figures(ask: Ask, answer: Estimate | FitAnswer | Problem) -> dict[str, Any]:
    figures: dict[str, Any] = dict.fromkeys(figures_of(ask))
    if isinstance(answer, Problem):
        return {**figures, "problem": answer.detail}
    figures |= _fit_figures(answer) if isinstance(answer, FitAnswer) else _estimate_figures(answer)
    if ask.fields:
        figures["answer"] = encode_json(shown(answer, ask.fields)).decode()
    return figures


def _estimate_figures(answer: Estimate) -> dict[str, Any]:
    required, capacity, headroom = answer.required, answer.capacity, answer.headroom
    return {
        "verdict": answer.verdict,
        "required_low_bytes": required.low,
        "required_expected_bytes": required.expected,
        "required_high_bytes": required.high,
        "usable_bytes": capacity.usable_bytes if capacity else None,
        "headroom_expected_bytes": headroom.expected if headroom else None,
        "digest": answer.digest,
    }


def _fit_figures(answer: FitAnswer) -> dict[str, Any]:
    """The selected candidate, or else the first to confirm."""
    first = answer.selected or next(iter(answer.candidates), None)
    if first is None:
        return {"status": "excluded", "digest": answer.digest}
    return {
        "status": first.status,
        "first_sku": first.sku,
        "first_gpu": first.gpu,
        "first_gpu_count": first.gpu_count,
        "first_weights_format": first.weights_format,
        "price_for_duration": str(first.price.for_duration) if first.price else None,
        "price_currency": first.price.currency if first.price else None,
        "required_expected_bytes": first.memory.required.expected if first.memory else None,
        "digest": answer.digest,
    }
