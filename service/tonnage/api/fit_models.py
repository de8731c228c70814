"""POST and GET /fit/models: which models of the catalogue a GPU serves under one set of settings."""

from tonnage.api.answers import Answer, content_type
from tonnage.api.batch import BatchAnswer
from tonnage.api.catalog_pages import flat
from tonnage.api.context import Context
from tonnage.api.decoding import BodyDecoder
from tonnage.api.negotiation import CSV, NDJSON, choose
from tonnage.api.query import QueryReader, parameters, refuse_parameters
from tonnage.api.representations import answer_in, chosen_fields, encode_json, offers, shown
from tonnage.api.routing import Route
from tonnage.render import table_csv
from tonnage.spec.fit_models import ModelsAnswer, ModelsRequest

OFFERS = (*offers("models"), CSV)

decode_request = BodyDecoder(ModelsRequest)
read_request = QueryReader(ModelsRequest)


async def post_models(context: Context) -> Answer | BatchAnswer:
    """Models that fit, met ones first, largest first; or the same for each line."""
    given = parameters(context.query)
    fields = chosen_fields(given, ModelsAnswer)
    refuse_parameters(given, ["fields"])
    if context.is_batch:
        return _batch(context, fields)
    media_type = choose(context.accept, OFFERS)
    answer = await context.desk.fitting_models(decode_request(await context.json_body()))
    return _in(media_type, answer, fields)


async def get_models(context: Context) -> Answer:
    """The same for settings as flat query parameters."""
    given = parameters(context.query)
    fields = chosen_fields(given, ModelsAnswer)
    media_type = choose(context.accept, OFFERS)
    answer = await context.desk.fitting_models(read_request(given))
    return context.cacheable(_in(media_type, answer, fields), answer.digest, fields)


def _in(media_type: str, answer: ModelsAnswer, fields: tuple[str, ...]) -> Answer:
    if media_type == CSV:
        return Answer(table_csv(map(flat, answer.models)).encode(), content_type(CSV))
    return answer_in(media_type, "models", answer, fields)


def _batch(context: Context, fields: tuple[str, ...]) -> BatchAnswer:
    context.require_json()
    choose(context.accept, (NDJSON,))

    async def answer_line(line: bytes) -> bytes:
        return encode_json(shown(await context.desk.fitting_models(decode_request(line)), fields))

    return BatchAnswer(context, answer_line)


ROUTES = (Route("POST", "/fit/models", post_models), Route("GET", "/fit/models", get_models))
