"""The floor: ASGI and msgspec, nothing else."""

import msgspec
from benchmarks.servers.question import prebuilt

from tonnage.spec.card import SizingCard

decode = msgspec.json.Decoder(SizingCard).decode
encode = msgspec.json.Encoder().encode
ANSWER = prebuilt()


async def app(scope, receive, send) -> None:
    if scope["type"] != "http":
        await receive()
        return await send({"type": "lifespan.startup.complete"})
    body = b""
    more = True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    if body:
        decode(body)
    out = encode(ANSWER)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(out))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": out})
    return None
