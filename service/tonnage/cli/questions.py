"""`tonnage estimate`, `tonnage fit` and `tonnage models`: the questions, with exit codes for pipelines."""

import argparse
from functools import cache
from pathlib import Path
from typing import Any

from tonnage import evidence
from tonnage import fit as fitting
from tonnage.api.query import refusal
from tonnage.api.representations import chosen_fields, shown
from tonnage.api.settings import Settings, read_settings
from tonnage.catalog import Catalog
from tonnage.catalog.models import wanted_from_hub
from tonnage.cli.cards import CardReader
from tonnage.cli.facts import catalog_argument, chosen_catalog
from tonnage.cli.output import MODELS_FORMATS, QUESTION_FORMATS, answer_text, write
from tonnage.cli.progress import Progress
from tonnage.spec.card import SizingCard
from tonnage.spec.fit import FitAnswer, FitRequest
from tonnage.spec.fit_models import ModelsAnswer, ModelsRequest
from tonnage.spec.hub import Fetch
from tonnage.spec.report import Estimate, Verdict

MET, TO_CONFIRM, EXCLUDED = 0, 2, 3
EXIT_CODES: dict[Verdict | None, int] = {None: MET, "met": MET, "needs_confirmation": TO_CONFIRM, "excluded": EXCLUDED}

_EXITS = "Exit code: 0 met, 2 needs confirmation, 3 excluded, 1 for a question that cannot be answered."


@cache
def card_reader() -> CardReader[SizingCard]:
    """Reader of /estimate's question."""
    return CardReader(SizingCard)


@cache
def request_reader() -> CardReader[FitRequest]:
    """Reader of /fit's question."""
    return CardReader(FitRequest)


@cache
def models_reader() -> CardReader[ModelsRequest]:
    """Reader of /fit/models' question."""
    return CardReader(ModelsRequest, bare="gpu")


def estimate_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage estimate`."""
    _common(parser, "Without a GPU there is no verdict, and the exit code is 0.")
    card_reader().arguments(parser)


def fit_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage fit`."""
    _common(
        parser, "met: a package is selected; needs confirmation: there are candidates only; excluded: there are none."
    )
    request_reader().arguments(parser)


def models_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage models`."""
    _common(parser, "met: at least one model fits; needs confirmation: some may; excluded: none does.", bare="GPU")
    models_reader().arguments(parser)


def estimate(chosen: argparse.Namespace) -> int:
    """One estimate on standard output."""
    card = card_reader()(chosen)
    catalog = chosen_catalog(chosen)
    answer = evidence.estimate(catalog, card, fetch=_fetch(chosen, catalog, card))
    _write("estimate", answer, Estimate, chosen)
    return EXIT_CODES[answer.verdict]


def fit(chosen: argparse.Namespace) -> int:
    """One fit on standard output."""
    request = request_reader()(chosen)
    with Progress("judging packages"):
        catalog = chosen_catalog(chosen)
        answer = fitting.fit(catalog, request, fetch=_fetch(chosen, catalog, request))
    _write("fit", answer, FitAnswer, chosen)
    return fit_exit_code(answer)


def models(chosen: argparse.Namespace) -> int:
    """Models that fit on standard output."""
    request = models_reader()(chosen)
    with Progress("judging models"):
        answer = fitting.models(chosen_catalog(chosen), request)
    _write("models", answer, ModelsAnswer, chosen)
    found = answer.considered
    return MET if found.met else TO_CONFIRM if found.needs_confirmation else EXCLUDED


def fit_exit_code(answer: FitAnswer) -> int:
    """Exit code of a fit. [unitless]"""
    if answer.selected is not None:
        return MET
    return TO_CONFIRM if answer.candidates else EXCLUDED


def _common(parser: argparse.ArgumentParser, exits: str, bare: str = "MODEL") -> None:
    parser.usage = f"{parser.prog} [{bare}] [name=value ...] [--name VALUE ...] [--card FILE] [--format FORMAT]"
    parser.epilog = f"{_EXITS} {exits}"
    parser.add_argument(
        "--format",
        choices=QUESTION_FORMATS if bare == "MODEL" else MODELS_FORMATS,
        default="table",
        help="default table",
    )
    parser.add_argument("--fields", metavar="A,B", help="of json and yaml only these fields of the answer")
    if bare == "MODEL":
        parser.add_argument("--hub", action="store_true", help="ask the Hub for models the catalogue does not hold")
    catalog_argument(parser)


def _write(subject: str, answer: Any, struct: Any, chosen: argparse.Namespace) -> None:
    fields = chosen_fields({"fields": chosen.fields}, struct) if chosen.fields else ()
    if fields and chosen.format not in ("json", "yaml"):
        raise refusal("fields", f"{chosen.format} always shows the whole answer; fields go with json and yaml")
    write(answer_text(subject, answer, shown(answer, fields), chosen.format))


def _fetch(chosen: argparse.Namespace, catalog: Catalog, card: SizingCard) -> Fetch | None:
    """What the card needs of the Hub, where asking it is switched on."""
    settings = read_settings()
    if not (chosen.hub or settings.hub_enabled):
        return None
    import asyncio  # noqa: PLC0415  (costs start-up time)

    wanted = wanted_from_hub(catalog, card)
    return asyncio.run(_fetched(settings, wanted)) if wanted else None


async def _fetched(settings: Settings, wanted: list[tuple[str, str | None]]) -> Fetch:
    from tonnage.adapters.hub import Hub, HubSettings  # noqa: PLC0415  (httpx costs start-up time)

    token = Path(settings.hub_token_file).read_text(encoding="utf-8").strip() if settings.hub_token_file else ""
    hub = Hub(HubSettings(endpoint=settings.hub_endpoint, token=token))
    try:
        return await hub.fetched(wanted)
    finally:
        await hub.close()
