"""The Accept header decides the media type, by weight and specificity."""

import pytest

from tonnage.api.negotiation import choose
from tonnage.api.problems import ProblemError

OFFERS = ("application/json", "application/vnd.msgpack", "text/plain")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, "application/json"),
        (b"", "application/json"),
        (b"*/*", "application/json"),
        (b"text/plain", "text/plain"),
        (b"TEXT/PLAIN", "text/plain"),
        (b"text/*", "text/plain"),
        (b"application/*", "application/json"),
        (b"application/vnd.msgpack, application/json;q=0.5", "application/vnd.msgpack"),
        (b"text/html, */*;q=0.1", "application/json"),
        (b"*/*, application/json;q=0", "application/vnd.msgpack"),
        (b"text/plain;q=0.5, application/json;q=0.4", "text/plain"),
        (b"application/json;charset=utf-8", "application/json"),
    ],
)
def test_the_best_offer_is_chosen(accept: bytes | None, chosen: str) -> None:
    assert chosen == choose(accept, OFFERS)


@pytest.mark.parametrize(
    "accept", [b"image/png", b"*/*;q=0", b"application/json;q=0", b"application/json;q=nan", b";q=1,x"]
)
def test_nothing_acceptable_is_a_406(accept: bytes) -> None:
    with pytest.raises(ProblemError) as caught:
        choose(accept, OFFERS)

    assert 406 == caught.value.kind.status
