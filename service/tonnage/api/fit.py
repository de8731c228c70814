"""POST and GET /fit: which package serves a card, which does not, and why."""

from typing import Any

from litestar import Controller, Request, get, post

from tonnage.api.answers import Answer
from tonnage.api.context import context_of
from tonnage.api.decoding import BodyDecoder
from tonnage.api.negotiation import choose
from tonnage.api.problems import NOTHING_SELECTED, FieldError, ProblemError
from tonnage.api.query import QueryReader, flag, parameters, refuse_parameters
from tonnage.api.representations import answer_in, offers
from tonnage.spec.fit import FitAnswer, FitRequest

decode_request = BodyDecoder(FitRequest)
read_request = QueryReader(FitRequest)


class FitRoutes(Controller):
    """Packages for one card."""

    path = "/fit"

    @post(status_code=200)
    async def post_fit(self, request: Request[Any, Any, Any]) -> Answer:
        """Packages that serve the card, ranked; those that do not, with reasons; one change at a time."""
        context = context_of(request)
        given = parameters(context.query)
        strict = flag(given, "strict")
        refuse_parameters(given, ["strict"])
        media_type = choose(context.accept, offers("fit"))
        question = decode_request(await context.json_body())
        answer = context.desk.fit(question, await context.desk.fetch_for(question))
        return answer_in(media_type, "fit", selected(answer) if strict else answer)

    @get()
    async def get_fit(self, request: Request[Any, Any, Any]) -> Answer:
        """The same for a card of flat query parameters."""
        context = context_of(request)
        given = parameters(context.query)
        strict = flag(given, "strict")
        media_type = choose(context.accept, offers("fit"))
        question = read_request(given)
        answer = context.desk.fit(question, await context.desk.fetch_for(question))
        shown = selected(answer) if strict else answer
        return context.cacheable(answer_in(media_type, "fit", shown), answer.digest)


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
