"""/openapi.json and /docs."""

from typing import Any

HANDLERS: list[Any] = []
