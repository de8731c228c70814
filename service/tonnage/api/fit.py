"""POST and GET /fit: which package serves a card, which does not, and why."""

from tonnage.api.answers import Answer
from tonnage.api.batch import BatchAnswer
from tonnage.api.context import Context
from tonnage.api.decoding import BodyDecoder
from tonnage.api.negotiation import NDJSON, choose
from tonnage.api.problems import NOTHING_SELECTED, FieldError, ProblemError
from tonnage.api.query import QueryReader, flag, parameters, refuse_parameters
from tonnage.api.representations import answer_in, chosen_fields, encode_json, offers, shown
from tonnage.api.routing import Route
from tonnage.spec.fit import FitAnswer, FitRequest

decode_request = BodyDecoder(FitRequest)
read_request = QueryReader(FitRequest)


async def post_fit(context: Context) -> Answer | BatchAnswer:
    """Packages that serve the card, ranked; those that do not, with reasons; or the same for each line."""
    given = parameters(context.query)
    strict, fields = flag(given, "strict"), chosen_fields(given, FitAnswer)
    refuse_parameters(given, ["strict", "fields"])
    if context.is_batch:
        return _batch(context, fields, strict=strict)
    media_type = choose(context.accept, offers("fit"))
    answer = await _fitted(context, decode_request(await context.json_body()))
    return answer_in(media_type, "fit", selected(answer) if strict else answer, fields)


async def get_fit(context: Context) -> Answer:
    """The same for a card of flat query parameters."""
    given = parameters(context.query)
    strict, fields = flag(given, "strict"), chosen_fields(given, FitAnswer)
    media_type = choose(context.accept, offers("fit"))
    answer = await _fitted(context, read_request(given))
    whole = selected(answer) if strict else answer
    return context.cacheable(answer_in(media_type, "fit", whole, fields), answer.digest, fields)


async def _fitted(context: Context, question: FitRequest) -> FitAnswer:
    return await context.desk.fit(question, await context.desk.fetch_for(question))


def _batch(context: Context, fields: tuple[str, ...], *, strict: bool) -> BatchAnswer:
    context.require_json()
    choose(context.accept, (NDJSON,))

    async def answer_line(line: bytes) -> bytes:
        answer = await _fitted(context, decode_request(line))
        return encode_json(shown(selected(answer) if strict else answer, fields))

    return BatchAnswer(context, answer_line)


def selected(answer: FitAnswer) -> FitAnswer:
    """
    The answer itself when it selects a package.

    Args:
        answer: Of /fit.

    Returns:
        The same answer.

    Raises:
        ProblemError: 409 that lists what is still missing, for a pipeline that must stop here.
    """
    if answer.selected is not None:
        return answer
    missing = [FieldError("", text) for text in answer.confirmations]
    missing += [FieldError("", f"{group.requirement}: {group.reason}") for group in answer.excluded]
    raise ProblemError(NOTHING_SELECTED, "no candidate meets every requirement", errors=missing)


ROUTES = (Route("POST", "/fit", post_fit), Route("GET", "/fit", get_fit))
