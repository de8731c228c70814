"""
`tonnage mcp`: the service as tools for assistants, by the Model Context Protocol over standard input and output.

JSON-RPC 2.0, one message a line. Tools take the query names of GET, so that what an assistant has to know is flat.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from tonnage import evidence
from tonnage import fit as fitting
from tonnage.api.catalog_pages import page_of
from tonnage.api.catalog_views import COLLECTIONS, entry_of
from tonnage.api.problems import ProblemError
from tonnage.api.query import QueryReader
from tonnage.catalog import Catalog
from tonnage.cli.facts import catalog_argument, chosen_catalog
from tonnage.cli.program import said
from tonnage.errors import SizingError
from tonnage.render import table
from tonnage.spec.card import SizingCard
from tonnage.spec.fit import FitRequest
from tonnage.spec.fit_models import ModelsRequest
from tonnage.version import __version__

PROTOCOLS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions of the protocol that these messages belong to, newest first."""
_PARSE_ERROR, _INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS = -32700, -32600, -32601, -32602
_FIT_ROWS = 8
_MODEL_ROWS = 25

Arguments = Mapping[str, Any]


class Tool(NamedTuple):
    """One tool: how it is described, and what does it."""

    title: str
    description: str
    schema: dict[str, Any]
    run: Callable[[Catalog, Arguments], tuple[str, Any]]


class ToolError(Exception):
    """An error of the protocol, with its JSON-RPC code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def mcp_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tonnage mcp`."""
    catalog_argument(parser)


def mcp(chosen: argparse.Namespace) -> int:
    """Answer messages until standard input ends."""
    server = Server(chosen_catalog(chosen))
    for line in sys.stdin:
        if line.strip() and (reply := server.reply(line)) is not None:
            sys.stdout.write(json.dumps(reply, ensure_ascii=False) + "\n")
            sys.stdout.flush()
    return 0


class Server:
    """One session."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tools = tools()

    def reply(self, line: str) -> dict[str, Any] | None:
        """
        The answer to one message.

        Args:
            line: JSON text.

        Returns:
            Response, None for a notification.
        """
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            return _error(None, _PARSE_ERROR, str(error))
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return _error(None, _INVALID_REQUEST, "not a JSON-RPC request")
        if "id" not in message:
            return None
        try:
            result = self._result(message["method"], message.get("params") or {})
        except ToolError as error:
            return _error(message["id"], error.code, str(error))
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def _result(self, method: str, params: Any) -> dict[str, Any]:
        if not isinstance(params, dict):
            raise ToolError(_INVALID_PARAMS, "params must be an object")
        if method == "initialize":
            return _initialized(params.get("protocolVersion"))
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": [_described(name, tool) for name, tool in self._tools.items()]}
        if method == "tools/call":
            return self._call(params)
        raise ToolError(_NO_METHOD, f"no method {method!r}")

    def _call(self, params: Arguments) -> dict[str, Any]:
        tool = self._tools.get(str(params.get("name")))
        if tool is None:
            raise ToolError(_INVALID_PARAMS, f"no tool {params.get('name')!r}; there are {', '.join(self._tools)}")
        arguments = {} if params.get("arguments") is None else params["arguments"]
        if not isinstance(arguments, dict):
            raise ToolError(_INVALID_PARAMS, f"arguments must be an object of names and values, not {arguments!r:.60}")
        try:
            text, value = tool.run(self._catalog, arguments)
        except (ProblemError, SizingError) as error:
            return {"content": [{"type": "text", "text": said(error)}], "isError": True}
        content = [{"type": "text", "text": text}]
        return {"content": content, "structuredContent": msgspec.to_builtins(value, str_keys=True), "isError": False}


def tools() -> dict[str, Tool]:
    """Every tool by name."""
    card, request, models = QueryReader(SizingCard), QueryReader(FitRequest), QueryReader(ModelsRequest)
    return {
        "estimate": Tool(
            "GPU memory of a workload",
            "How much GPU memory a model needs on one placement, for serving (give engine) or fine-tuning (give method), as a "
            "95 % band with every item, its law and how it is known; with gpu also a verdict. A size is text with a unit, 6 GiB.",
            _schema(card),
            lambda catalog, given: _estimated(catalog, card(_texts(given))),
        ),
        "fit": Tool(
            "Which package to order",
            "Packages and GPUs that serve a workload, by price, with what is met, what needs confirmation and why the others are "
            "excluded. Give duration, such as 3 days.",
            _schema(request),
            lambda catalog, given: _fitted(catalog, request(_texts(given))),
        ),
        "models": Tool(
            "Which models a GPU serves",
            "Models of the catalogue that fit a GPU (give gpu) under settings for serving (engine) or fine-tuning (method), "
            "largest first, with what they need and what stays free. Narrow with q, min_parameters and max_parameters.",
            _schema(models),
            lambda catalog, given: _fitting(catalog, models(_texts(given))),
        ),
        "catalog": Tool(
            "Facts behind the answers",
            "Lists entries of one kind (id, name or alias contains q), or shows one by name.",
            _catalog_schema(),
            _looked_up,
        ),
    }


def _estimated(catalog: Catalog, card: SizingCard) -> tuple[str, Any]:
    answer = evidence.estimate(catalog, card)
    names = (
        "verdict",
        "required",
        "headroom",
        "capacity",
        "peak",
        "kv_cache",
        "reasons",
        "assumptions",
        "unknowns",
        "digest",
    )
    return table.estimate(answer), {name: getattr(answer, name) for name in names}


def _fitted(catalog: Catalog, request: FitRequest) -> tuple[str, Any]:
    answer = fitting.fit(catalog, msgspec.structs.replace(request, limit=min(request.limit, _FIT_ROWS)))
    names = ("selected", "confirmations", "considered", "unknowns", "digest")
    return table.fit(answer), {name: getattr(answer, name) for name in names}


def _fitting(catalog: Catalog, request: ModelsRequest) -> tuple[str, Any]:
    answer = fitting.models(catalog, msgspec.structs.replace(request, limit=min(request.limit, _MODEL_ROWS)))
    names = ("models", "considered", "not_estimated", "digest")
    return table.models(answer), {name: getattr(answer, name) for name in names}


def _looked_up(catalog: Catalog, given: Arguments) -> tuple[str, Any]:
    texts = _texts(given)
    kind = texts.pop("kind", "")
    if kind not in COLLECTIONS:
        raise ToolError(_INVALID_PARAMS, f"kind is one of {', '.join(COLLECTIONS)}")
    collection = COLLECTIONS[kind]
    if "name" in texts:
        entry = entry_of(collection, catalog, texts["name"])
        return msgspec.json.encode(entry).decode(), entry
    page = page_of(collection, catalog, texts)
    return "\n".join(row.id for row in page.items), {"total": page.total, "ids": [row.id for row in page.items]}


def _texts(given: Arguments) -> dict[str, str]:
    """Arguments as a query string would have them."""
    return {name: _text(value) for name, value in given.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)


def _schema(reader: QueryReader[Any]) -> dict[str, Any]:
    properties = {name: msgspec.json.schema(leaf.kind) for name, leaf in reader.documented.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _catalog_schema() -> dict[str, Any]:
    text = {"type": "string"}
    properties = {"kind": {**text, "enum": list(COLLECTIONS)}, "q": text, "name": text, "limit": {"type": "integer"}}
    return {"type": "object", "properties": properties, "required": ["kind"], "additionalProperties": False}


def _described(name: str, tool: Tool) -> dict[str, Any]:
    hints = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
    return {
        "name": name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.schema,
        "annotations": hints,
    }


def _initialized(wanted: Any) -> dict[str, Any]:
    return {
        "protocolVersion": wanted if wanted in PROTOCOLS else PROTOCOLS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "tonnage", "version": __version__},
    }


def _error(request: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": message}}
