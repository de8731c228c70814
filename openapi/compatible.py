"""
Whether one OpenAPI document only adds to another, as CONTRACT's rule has it.

Compatible: new paths, methods, optional request fields, response fields, accepted values. Anything else breaks a
client: something removed, a request field that becomes required, a type that changes. Usage:

    python openapi/compatible.py old.json new.json
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Schema = dict[str, Any]


def breaks(old: Schema, new: Schema) -> list[str]:
    """What a client of `old` would trip over in `new`; empty when nothing."""
    return list(_operations(old, new)) + list(_components(old, new))


def _operations(old: Schema, new: Schema) -> Iterator[str]:
    for path, methods in old["paths"].items():
        for method, before in methods.items():
            after = new["paths"].get(path, {}).get(method)
            where = f"{method.upper()} {path}"
            if after is None:
                yield f"{where}: removed"
                continue
            yield from _parameters(where, _named(old, before), _named(new, after))
            yield from _bodies(where, before, after)
            yield from _answers(where, before, after)


def _named(document: Schema, operation: Schema) -> dict[str, Schema]:
    """Parameters by name, references followed."""
    shared = document["components"].get("parameters", {})
    found = [shared[p["$ref"].rpartition("/")[2]] if "$ref" in p else p for p in operation.get("parameters", [])]
    return {parameter["name"]: parameter for parameter in found}


def _parameters(where: str, before: dict[str, Schema], after: dict[str, Schema]) -> Iterator[str]:
    for name, parameter in before.items():
        if name not in after:
            yield f"{where}: parameter {name!r} removed"
        else:
            yield from _narrowed(f"{where}: parameter {name!r}", parameter["schema"], after[name]["schema"])
    for name, parameter in after.items():
        if parameter.get("required") and not before.get(name, {}).get("required"):
            yield f"{where}: parameter {name!r} became required"


def _bodies(where: str, before: Schema, after: Schema) -> Iterator[str]:
    kinds = after.get("requestBody", {}).get("content", {})
    for kind in before.get("requestBody", {}).get("content", {}):
        if kind not in kinds:
            yield f"{where}: body as {kind} removed"
    if "requestBody" in after and "requestBody" not in before:
        yield f"{where}: now wants a body"


def _answers(where: str, before: Schema, after: Schema) -> Iterator[str]:
    for status, answer in before["responses"].items():
        if status not in after["responses"]:
            yield f"{where}: answer {status} removed"
            continue
        for kind in answer.get("content", {}):
            if kind not in after["responses"][status].get("content", {}):
                yield f"{where}: answer {status} as {kind} removed"


def _components(old: Schema, new: Schema) -> Iterator[str]:
    asked = _reachable(old, "requestBody") | _reachable(new, "requestBody")
    answered = _reachable(old, "responses") | _reachable(new, "responses")
    for name, before in old["components"]["schemas"].items():
        after = new["components"]["schemas"].get(name)
        if after is None:
            yield f"schema {name}: removed"
            continue
        yield from _fields(name, before, after, asked=name in asked, answered=name in answered)


def _fields(name: str, before: Schema, after: Schema, *, asked: bool, answered: bool) -> Iterator[str]:
    kept = after.get("properties", {})
    for field, schema in before.get("properties", {}).items():
        if field not in kept:
            yield f"schema {name}: field {field!r} removed"
        elif asked:
            yield from _narrowed(f"schema {name}: field {field!r}", schema, kept[field])
    if asked:
        for field in sorted(set(after.get("required", [])) - set(before.get("required", []))):
            yield f"schema {name}: request field {field!r} became required"
    if answered and not asked:
        for field in sorted(set(before.get("required", [])) - set(after.get("required", []))):
            yield f"schema {name}: answer field {field!r} is no longer always there"


_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


def _narrowed(where: str, before: Schema, after: Schema) -> Iterator[str]:
    """Values that were accepted and are not any more."""
    if (old := _types(before)) and (lost := old - _types(after)) and _types(after):
        yield f"{where}: no longer takes {', '.join(sorted(lost))}"
    if (old := _values(before)) and (lost := old - _values(after)) and _values(after):
        yield f"{where}: no longer takes {', '.join(sorted(lost))}"
    for bound in _LOWER:
        if bound in after and after[bound] > before.get(bound, float("-inf")):
            yield f"{where}: {bound} rose"
    for bound in _UPPER:
        if bound in after and after[bound] < before.get(bound, float("inf")):
            yield f"{where}: {bound} fell"
    if "pattern" in after and after["pattern"] != before.get("pattern"):
        yield f"{where}: pattern changed"


def _parts(schema: Schema) -> list[Schema]:
    return [leaf for part in schema["anyOf"] for leaf in _parts(part)] if "anyOf" in schema else [schema]


def _types(schema: Schema) -> set[str]:
    return {part.get("$ref") or part.get("type", "any") for part in _parts(schema)} - {"any"}


def _values(schema: Schema) -> set[str]:
    return {
        str(value) for part in _parts(schema) for value in part.get("enum", [part["const"]] if "const" in part else [])
    }


def _reachable(document: Schema, part: str) -> set[str]:
    """Names of the schemas that one part of the operations refers to."""
    schemas = document["components"]["schemas"]
    waiting = [operation.get(part, {}) for methods in document["paths"].values() for operation in methods.values()]
    found: set[str] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            name = str(node.get("$ref", "")).removeprefix("#/components/schemas/")
            if name in schemas and name not in found:
                found.add(name)
                waiting.append(schemas[name])
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return found


def main() -> int:
    old, new = (json.loads(Path(name).read_text()) for name in sys.argv[1:3])
    found = breaks(old, new)
    print("\n".join(found) if found else "compatible")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
