"""
What will go one day, and how its callers hear of it: headers on every answer and a mark in the OpenAPI document.

An entry stays at least until its sunset. Nothing is deprecated today; the table is how it would be said.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from email.utils import format_datetime
from typing import NamedTuple

from tonnage.api.problems import Headers


class Deprecation(NamedTuple):
    """One operation on its way out."""

    since: date
    link: str
    """Page that says what to use instead."""
    sunset: date | None = None
    """Day after which it may be gone."""

    def headers(self) -> Headers:
        """`Deprecation` (RFC 9745), `Sunset` (RFC 8594) and a link to what to use instead. [unitless]"""
        found = [
            (b"deprecation", b"@%d" % _midnight(self.since).timestamp()),
            (b"link", f'<{self.link}>; rel="deprecation"'.encode()),
        ]
        if self.sunset is not None:
            found.append((b"sunset", format_datetime(_midnight(self.sunset), usegmt=True).encode()))
        return found


DEPRECATED: dict[tuple[str, str], Deprecation] = {}
"""By method and path, as in the OpenAPI document."""


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def deprecation_headers(method: str, route: str, table: Mapping[tuple[str, str], Deprecation] = DEPRECATED) -> Headers:
    """
    Headers that tell a caller.

    Args:
        method: Of the request.
        route: Template of its path.
        table: What is deprecated.

    Returns:
        Headers, none for what stays.
    """
    found = table.get(("GET" if method == "HEAD" else method, route))
    return [] if found is None else found.headers()
