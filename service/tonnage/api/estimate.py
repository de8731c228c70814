"""POST and GET /estimate: one workload on one placement, or many by line."""

from tonnage.api.answers import Answer
from tonnage.api.batch import BatchAnswer
from tonnage.api.context import Context
from tonnage.api.decoding import BodyDecoder
from tonnage.api.negotiation import NDJSON, choose
from tonnage.api.query import QueryReader, flag, parameters, refuse_parameters
from tonnage.api.representations import answer_in, chosen_fields, encode_json, offers, shown
from tonnage.api.routing import Route
from tonnage.api.sizing import may_take_long
from tonnage.spec.card import SizingCard
from tonnage.spec.report import Estimate

decode_card = BodyDecoder(SizingCard)
read_card = QueryReader(SizingCard)
_DERIVED = "derivations"
"""The field that `explain` fills."""


async def post_estimate(context: Context) -> Answer | BatchAnswer:
    """Memory by phase and item for the card in the body, or for the card in each of its lines."""
    given = parameters(context.query)
    fields = chosen_fields(given, Estimate)
    explain = flag(given, "explain") or _DERIVED in fields
    refuse_parameters(given, ["explain", "fields"])
    if context.is_batch:
        return _batch(context, fields, explain=explain)
    media_type = choose(context.accept, offers("estimate"))
    card = decode_card(await context.json_body())
    return answer_in(media_type, "estimate", await _estimated(context, card, explain=explain), fields)


async def get_estimate(context: Context) -> Answer:
    """The same for a card of flat query parameters."""
    given = parameters(context.query)
    fields = chosen_fields(given, Estimate)
    explain = flag(given, "explain") or _DERIVED in fields
    media_type = choose(context.accept, offers("estimate"))
    card = read_card(given)
    estimate = await _estimated(context, card, explain=explain)
    told = (*fields, "explained") if explain else fields
    return context.cacheable(answer_in(media_type, "estimate", estimate, fields), estimate.digest, told)


async def _estimated(context: Context, card: SizingCard, *, explain: bool) -> Estimate:
    fetch = await context.desk.fetch_for(card)
    answer = context.desk.explained if explain else context.desk.estimated
    return await answer(card, fetch)


def _batch(context: Context, fields: tuple[str, ...], *, explain: bool) -> BatchAnswer:
    context.require_json()
    choose(context.accept, (NDJSON,))
    desk = context.desk

    async def answer_line(line: bytes) -> bytes:
        card = decode_card(line)
        if explain:
            return encode_json(shown(await _estimated(context, card, explain=True), fields))
        fetch = await desk.fetch_for(card) if desk.hub is not None else None
        if fields and not may_take_long(card):
            return encode_json(desk.fields_of(card, fields, fetch))
        return encode_json(shown(await desk.estimated(card, fetch), fields))

    return BatchAnswer(context, answer_line)


ROUTES = (Route("POST", "/estimate", post_estimate), Route("GET", "/estimate", get_estimate))
