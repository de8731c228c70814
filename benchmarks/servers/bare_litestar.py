"""A Litestar route that decodes by hand and answers with the prebuilt answer; and one that answers a GET."""

import msgspec
from benchmarks.servers.question import prebuilt
from litestar import Litestar, Request, Response, get, post

from tonnage.spec.card import SizingCard

decode = msgspec.json.Decoder(SizingCard).decode
encode = msgspec.json.Encoder().encode
ANSWER = prebuilt()


@post("/estimate", status_code=200)
async def echo(request: Request) -> Response:
    decode(await request.body())
    return Response(encode(ANSWER), media_type="application/json")


@get("/catalog/gpus/h100-sxm")
async def small() -> Response:
    return Response(b'{"id":"h100-sxm"}', media_type="application/json")


app = Litestar([echo, small], openapi_config=None, logging_config=None)
