"""
Every error as one RFC 9457 problem document, from one table of types.

`title` is constant per type, what happened stands in `detail`, where it happened in `errors` as JSON pointers.
"""

from typing import NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

from tonnage import errors

MEDIA_TYPE = b"application/problem+json"


class FieldError(Struct, frozen=True, omit_defaults=True):
    """One field that is wrong."""

    pointer: str
    detail: str
    did_you_mean: list[str] | UnsetType = UNSET


class Problem(Struct, frozen=True, kw_only=True):
    """RFC 9457 problem document."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FieldError] | UnsetType = UNSET


class Kind(NamedTuple):
    """One kind of problem: the stable name, its title, its status."""

    slug: str
    title: str
    status: int


MALFORMED = Kind("malformed-json", "The body is not JSON", 400)
BAD_REQUEST = Kind("bad-request", "The request cannot be read", 400)
UNAUTHORIZED = Kind("unauthorized", "A valid API key is required", 401)
FORBIDDEN = Kind("forbidden", "The API key does not allow this", 403)
NOT_FOUND = Kind("not-found", "Nothing is here", 404)
METHOD_NOT_ALLOWED = Kind("method-not-allowed", "The path does not know this method", 405)
NOT_ACCEPTABLE = Kind("not-acceptable", "No media type of the answer is acceptable", 406)
SLOW_BODY = Kind("body-too-slow", "The body did not arrive in time", 408)
NOTHING_SELECTED = Kind("nothing-selected", "No candidate meets every requirement", 409)
TOO_LARGE = Kind("body-too-large", "The body is too large", 413)
UNSUPPORTED_MEDIA_TYPE = Kind("unsupported-media-type", "The body has a media type that is not read", 415)
INVALID = Kind("invalid-request", "The request breaks the contract", 422)
UNKNOWN_NAME = Kind("unknown-name", "The catalogue has no such entry", 422)
CONTRADICTION = Kind("contradictory-workload", "The request contradicts itself", 422)
MISSING_FACT = Kind("missing-fact", "A required fact is neither in the request nor in the catalogue", 422)
UNSUPPORTED = Kind("unsupported", "This version has no law for the question", 422)
RATE_LIMITED = Kind("rate-limited", "Too many requests", 429)
HEAD_TOO_LARGE = Kind("head-too-large", "The request head is too large", 431)
INTERNAL = Kind("internal-error", "The service failed", 500)
SOURCE_UNAVAILABLE = Kind("source-unavailable", "A remote source of facts does not answer", 503)
OVERLOADED = Kind("overloaded", "The service is busy", 503)
DEADLINE = Kind("deadline-exceeded", "The request took too long", 503)
NOT_READY = Kind("not-ready", "The service is not ready", 503)

KINDS: dict[str, Kind] = {kind.slug: kind for kind in list(globals().values()) if isinstance(kind, Kind)}

SIZING_ERRORS: dict[type[errors.SizingError], Kind] = {
    errors.UnknownName: UNKNOWN_NAME,
    errors.ContradictoryWorkload: CONTRADICTION,
    errors.MissingFact: MISSING_FACT,
    errors.Unsupported: UNSUPPORTED,
    errors.SourceUnavailable: SOURCE_UNAVAILABLE,
    errors.SizingError: INVALID,
}

BY_STATUS: dict[int, Kind] = {
    400: BAD_REQUEST,
    401: UNAUTHORIZED,
    403: FORBIDDEN,
    404: NOT_FOUND,
    405: METHOD_NOT_ALLOWED,
    406: NOT_ACCEPTABLE,
    408: SLOW_BODY,
    413: TOO_LARGE,
    415: UNSUPPORTED_MEDIA_TYPE,
    422: INVALID,
    429: RATE_LIMITED,
    503: NOT_READY,
}

Headers = list[tuple[bytes, bytes]]


class ProblemError(Exception):
    """Raised anywhere in the API to answer with a problem document."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        errors: list[FieldError] | UnsetType = UNSET,
        headers: Headers | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = errors
        self.headers: Headers = headers or []

    def document(self, instance: str) -> Problem:
        """
        What the caller reads.

        Args:
            instance: Path of the request.

        Returns:
            The document.
        """
        return Problem(
            type=f"/problems/{self.kind.slug}",
            title=self.kind.title,
            status=self.kind.status,
            detail=self.detail,
            instance=instance,
            errors=self.errors,
        )


def of_sizing_error(error: errors.SizingError) -> ProblemError:
    """
    The problem that an error of the domain is.

    Args:
        error: Raised by the catalogue, the estimate or the fit.

    Returns:
        Problem with the field's pointer; a source that may come back says when to retry.
    """
    kind = next(SIZING_ERRORS[cls] for cls in type(error).__mro__ if cls in SIZING_ERRORS)
    close = error.did_you_mean if isinstance(error, errors.UnknownName) and error.did_you_mean else UNSET
    fields = [FieldError(error.pointer, error.detail, close)]
    headers: Headers = []
    if isinstance(error, errors.SourceUnavailable):
        headers = [(b"retry-after", b"5")]
    return ProblemError(kind, error.detail, errors=fields, headers=headers)


_encoder = msgspec.json.Encoder()


def encode(problem: Problem) -> bytes:
    """JSON of a problem document."""
    return _encoder.encode(problem)
