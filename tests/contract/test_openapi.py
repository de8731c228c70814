"""The committed description is the one the code makes, and it says what the routes do."""

import importlib.util
import json
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tonnage.api.app import Application, create_app
from tonnage.api.openapi import document
from tonnage.api.operations import OPERATIONS
from tonnage.api.settings import Settings


@pytest.fixture(scope="module")
def app() -> Application:
    return create_app(Settings(access_log=False, deadline_seconds=600))


@pytest.fixture(scope="module")
def compatible(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("compatible", repository / "openapi" / "compatible.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def described() -> dict[str, Any]:
    return deepcopy(json.loads(json.dumps(document())))


def test_the_committed_description_is_current(repository: Path, described: dict[str, Any]) -> None:
    """After a change of the wire types run `make openapi` and commit the result."""
    assert json.loads((repository / "openapi" / "openapi.json").read_text()) == described


def test_the_table_of_operations_is_the_list_of_routes(app: Application) -> None:
    routes = {(method, route.path_format) for route in app.litestar.routes for method in route.methods - {"OPTIONS"}}

    assert {(operation.method, operation.path) for operation in OPERATIONS} == routes


def test_operation_ids_are_unique(described: dict[str, Any]) -> None:
    ids = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]

    assert len(ids) == len(set(ids))


def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [found for child in node.values() for found in references(child)]
        return [found for child in node for found in references(child)] if isinstance(node, list) else []

    for reference in references(described):
        target: Any = described
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]


def test_a_pair_is_an_array_of_two(described: dict[str, Any]) -> None:
    shape = described["components"]["schemas"]["WeightFormat"]["properties"]["block_shape"]["anyOf"][0]

    assert {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "integer"}} == shape


def test_request_schemas_refuse_unknown_fields(described: dict[str, Any]) -> None:
    for name in ("SizingCard", "Vllm", "Training", "Placement", "FitRequest", "WeightsCard"):
        assert described["components"]["schemas"][name]["additionalProperties"] is False


def test_fields_say_what_their_source_says(described: dict[str, Any]) -> None:
    gpu = described["components"]["schemas"]["Gpu"]["properties"]

    assert "nvidia-smi" in gpu["memory_device_bytes"]["description"]


def test_a_document_is_compatible_with_itself(compatible: ModuleType, described: dict[str, Any]) -> None:
    assert [] == compatible.breaks(described, described)


def test_additions_are_compatible(compatible: ModuleType, described: dict[str, Any]) -> None:
    new = deepcopy(described)
    new["components"]["schemas"]["SizingCard"]["properties"]["extra"] = {"type": "string", "default": ""}
    new["components"]["schemas"]["Estimate"]["properties"]["extra"] = {"type": "string"}
    new["components"]["schemas"]["Estimate"]["required"].append("extra")
    new["paths"]["/more"] = {"get": {"responses": {}}}

    assert [] == compatible.breaks(described, new)


def _without(document: dict[str, Any], *path: str) -> dict[str, Any]:
    *parents, last = path
    node: Any = document
    for step in parents:
        node = node[step]
    del node[last]
    return document


@pytest.mark.parametrize(
    "path",
    [
        ("paths", "/fit"),
        ("paths", "/estimate", "get"),
        ("paths", "/estimate", "get", "responses", "304"),
        ("components", "schemas", "Vllm", "properties", "max_model_len"),
        ("components", "schemas", "Estimate", "properties", "digest"),
        ("components", "schemas", "Problem"),
    ],
)
def test_removals_are_found(compatible: ModuleType, described: dict[str, Any], path: tuple[str, ...]) -> None:
    assert 1 <= len(compatible.breaks(described, _without(deepcopy(described), *path)))


def test_a_newly_required_request_field_is_found_even_with_a_default(
    compatible: ModuleType, described: dict[str, Any]
) -> None:
    new = deepcopy(described)
    card = new["components"]["schemas"]["SizingCard"]
    card["required"].append("reserve")

    assert ["schema SizingCard: request field 'reserve' became required"] == compatible.breaks(described, new)


def test_a_narrower_bound_is_found(compatible: ModuleType, described: dict[str, Any]) -> None:
    new = deepcopy(described)
    new["components"]["schemas"]["Placement"]["properties"]["tensor_parallel_size"]["maximum"] = 8

    assert ["schema Placement: field 'tensor_parallel_size': maximum fell"] == compatible.breaks(described, new)
