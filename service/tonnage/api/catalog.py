"""GET /catalog/**: what the service knows, with filters, pages and entity tags."""

from typing import Any

HANDLERS: list[Any] = []
