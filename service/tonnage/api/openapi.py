"""
The OpenAPI document: components from the wire types themselves, operations from one table.

Litestar's own generator loses what the decoder enforces (unknown fields refused, bounds of optional fields,
discriminators), so it is not used; a test compares the table with the routes.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, get_args

import msgspec

from tonnage.api.catalog_pages import CatalogPage
from tonnage.api.deprecations import DEPRECATED
from tonnage.api.field_words import field_words
from tonnage.api.negotiation import NDJSON
from tonnage.api.operations import OPERATIONS, Operation, Parameter
from tonnage.api.problems import BY_STATUS, HEAD_TOO_LARGE, Problem
from tonnage.version import __version__

_REFERENCE = "#/components/schemas/{name}"
_ALWAYS = (400, 401, 403, 404, 405, 429, 431, 500, 503)
"""Problems that any operation may answer with."""
_PHRASES = {409: "Nothing is selected", 431: "The request head is too large", 500: "The service failed"}

_HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-ID": {"description": "Id of the request, as in the log.", "schema": {"type": "string"}},
    "Api-Version": {"description": "Version of the API.", "schema": {"type": "string"}},
    "ETag": {"description": "Version of the answer.", "schema": {"type": "string"}},
    "Cache-Control": {"description": "How long the answer may be used.", "schema": {"type": "string"}},
    "Link": {"description": "The next page.", "schema": {"type": "string"}},
    "Allow": {"description": "Methods of the path.", "schema": {"type": "string"}},
    "Retry-After": {"description": "When to try again. [s]", "schema": {"type": "integer"}},
    "WWW-Authenticate": {"description": "How to authenticate.", "schema": {"type": "string"}},
}
_COMMON = ("X-Request-ID", "Api-Version")


@cache
def document() -> dict[str, Any]:
    """The whole description as JSON values."""
    types = [kind for kind in map(_answer_type, OPERATIONS) if kind is not None]
    types += [operation.body for operation in OPERATIONS if operation.body is not None] + [Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, by_type)
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _exact(_with_words(components, types)),
            "headers": _HEADERS,
            "responses": {str(status): _problem(status) for status in sorted(_problem_statuses())},
            "parameters": _shared_parameters(),
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"apiKey": []}],
    }


def _with_words(components: dict[str, Any], types: Sequence[Any]) -> dict[str, Any]:
    """Components whose fields say what the line under them in the source says."""
    for struct in _structs(types):
        properties = components.get(struct.__name__, {}).get("properties", {})
        for field in msgspec.structs.fields(struct):
            words = field_words(struct).get(field.name)
            if words and "description" not in properties.get(field.encode_name, {"description": ""}):
                properties[field.encode_name]["description"] = words
    return components


def _structs(types: Sequence[Any]) -> set[type[msgspec.Struct]]:
    """Every Struct that the types reach."""
    found: set[type[msgspec.Struct]] = set()
    waiting = list(types)
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in found:
                found.add(kind)
                waiting += [field.type for field in msgspec.structs.fields(kind)]
        else:
            waiting += get_args(kind)
    return found


_INFO = {
    "title": "Tonnage",
    "version": __version__,
    "summary": "How much GPU memory a model needs, which package to order, and how sure that is.",
    "description": (
        "Amounts are bytes as integers; in requests also text with a unit (`6 GiB`, `24 GB`). An `Amount` is a 95 % band "
        "`{low, expected, high}`. Unknown fields are refused, a string is never a number, and a whole float is an integer. "
        "Every error is an RFC 9457 problem document with JSON pointers."
    ),
    "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
}
_TAGS = {
    "estimate": "How much memory, where, in which phase, how sure.",
    "fit": "Which package serves a card, which does not, why, and what one change would do.",
    "catalog": "Facts and laws behind the answers.",
    "operations": "For the machinery around the service.",
    "documents": "About the API itself.",
}


def _answer_type(operation: Operation) -> Any:
    return None if operation.answer is None or "application/json" not in operation.media_types else operation.answer


def _operation(operation: Operation, by_type: dict[int, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation_id(operation),
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation, by_type),
    }
    if (operation.method, operation.path) in DEPRECATED:
        described["deprecated"] = True
    if operation.parameters:
        described["parameters"] = [
            {"$ref": f"#/components/parameters/{parameter.name}"} if parameter.shared else _parameter(parameter)
            for parameter in operation.parameters
        ]
    if operation.body is not None:
        media = {"schema": by_type[id(operation.body)], "examples": operation.examples}
        content = {"application/json": media} | ({NDJSON: _LINES} if operation.batch else {})
        described["requestBody"] = {"required": True, "content": content}
    return described


def operation_id(operation: Operation) -> str:
    """Name of an operation, such as getCatalogGpusName. [unitless]"""
    words = operation.path.replace("{", "").replace("}", "").replace(".", "/").replace("-", "/").split("/")
    return operation.method.lower() + "".join(word.capitalize() for word in words if word)


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema = parameter.kind if isinstance(parameter.kind, dict) else _exact(msgspec.json.schema(parameter.kind))
    described = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.summary,
        "schema": schema,
    }
    if schema.get("type") == "array":
        described |= {"style": "form", "explode": False}
    if parameter.example is not None:
        described["example"] = parameter.example
    return described


def _responses(operation: Operation, by_type: dict[int, Any]) -> dict[str, Any]:
    headers = [
        *_COMMON,
        *(("ETag", "Cache-Control") if operation.cacheable else ()),
        *(("Link",) if operation.page else ()),
    ]
    good: dict[str, Any] = {
        "description": operation.summary,
        "headers": _headers(_COMMON),
        "content": {media_type: _media(operation, media_type, by_type) for media_type in operation.media_types}
        | ({NDJSON: _LINES} if operation.batch else {}),
    }
    good["headers"] = _headers(headers, optional=("Link",))
    if operation.link is not None:
        good["links"] = {
            operation.link: {"operationId": operation.link, "parameters": {"name": "$response.body#/items/0/id"}}
        }
    answers: dict[str, Any] = {"200": good}
    if operation.cacheable:
        answers["304"] = {"description": "The caller has it already", "headers": _headers((*_COMMON, "ETag"))}
    for status in sorted({*_ALWAYS, *operation.statuses}):
        answers[str(status)] = {"$ref": f"#/components/responses/{status}"}
    return answers


def _problem_statuses() -> set[int]:
    return {*_ALWAYS, *(status for operation in OPERATIONS for status in operation.statuses)}


def _shared_parameters() -> dict[str, Any]:
    """Parameters that several operations take, once."""
    return {
        parameter.name: _parameter(parameter)
        for operation in OPERATIONS
        for parameter in operation.parameters
        if parameter.shared
    }


def _media(operation: Operation, media_type: str, by_type: dict[int, Any]) -> dict[str, Any]:
    if media_type != "application/json":
        return {} if media_type == "application/vnd.msgpack" else {"schema": {"type": "string"}}
    schema = by_type[id(operation.answer)]
    return {"schema": _page_schema(schema) if operation.page else schema}


def _page_schema(row: dict[str, Any]) -> dict[str, Any]:
    page: dict[str, Any] = msgspec.json.schema_components([CatalogPage], ref_template=_REFERENCE)[1]["CatalogPage"]
    return {**page, "properties": {**page["properties"], "items": {"type": "array", "items": row}}}


_LINES = {"schema": {"type": "string", "description": "one JSON document a line, in the order of the questions"}}
_EXTRA_HEADERS = {401: ("WWW-Authenticate",), 405: ("Allow",), 429: ("Retry-After",), 503: ("Retry-After",)}


def _problem(status: int) -> dict[str, Any]:
    kind = BY_STATUS.get(status)
    return {
        "description": kind.title if kind else _PHRASES[status],
        "headers": _headers((*(() if status == HEAD_TOO_LARGE.status else _COMMON), *_EXTRA_HEADERS.get(status, ()))),
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def _headers(names: Any, optional: Any = ()) -> dict[str, Any]:
    return {
        name: {"$ref": f"#/components/headers/{name}"} if name in optional else {**_HEADERS[name], "required": True}
        for name in names
    }


def _exact(schema: Any) -> Any:
    """The same schema, saying what the decoder does: pairs of one kind, single choices, decimals as text or number."""
    if isinstance(schema, list):
        return [_exact(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "decimal":
        return {**_DECIMAL, **{key: value for key, value in schema.items() if key not in ("type", "format")}}
    exact = {key: _exact(value) for key, value in schema.items()}
    if exact.get("items") is False and exact.get("maxItems") == len(exact.get("prefixItems", ())):
        del exact["items"]  # says nothing more than maxItems, and generators of clients stumble over it
    places = exact.get("prefixItems")
    if places and all(place == places[0] for place in places):
        del exact["prefixItems"]
        exact["items"] = places[0]
    choices = exact.get("enum")
    if isinstance(choices, list) and len(choices) == 1:
        del exact["enum"]
        exact["const"] = choices[0]
    return exact


_DECIMAL: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "pattern": r"^-?\d{1,15}(\.\d{1,12})?$(?!\n)", "description": "decimal number"},
        {"type": "number"},
    ]
}
