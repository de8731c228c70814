"""POST and GET /estimate: one workload on one placement."""

from typing import Any

from litestar import Controller, Request, get, post

from tonnage.api.answers import Answer
from tonnage.api.context import context_of
from tonnage.api.decoding import BodyDecoder
from tonnage.api.negotiation import choose
from tonnage.api.query import QueryReader, parameters, refuse_parameters
from tonnage.api.representations import answer_in, offers
from tonnage.spec.card import SizingCard

decode_card = BodyDecoder(SizingCard)
read_card = QueryReader(SizingCard)


class EstimateRoutes(Controller):
    """Memory of one workload on one placement."""

    path = "/estimate"

    @post(status_code=200)
    async def post_estimate(self, request: Request[Any, Any, Any]) -> Answer:
        """Memory by phase and item for the card in the body."""
        context = context_of(request)
        refuse_parameters(parameters(context.query))
        media_type = choose(context.accept, offers("estimate"))
        card = decode_card(await context.json_body())
        fetch = await context.desk.fetch_for(card)
        return answer_in(media_type, "estimate", context.desk.estimate(card, fetch))

    @get()
    async def get_estimate(self, request: Request[Any, Any, Any]) -> Answer:
        """The same for a card of flat query parameters."""
        context = context_of(request)
        media_type = choose(context.accept, offers("estimate"))
        card = read_card(parameters(context.query))
        estimate = context.desk.estimate(card, await context.desk.fetch_for(card))
        return context.cacheable(answer_in(media_type, "estimate", estimate), estimate.digest)
