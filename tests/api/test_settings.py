"""Settings parse strictly, and the operator's page lists every one of them and every metric."""

import re
from pathlib import Path

import msgspec
import pytest

from tonnage.api.field_words import field_words
from tonnage.api.settings import Settings, SettingsError, read_settings
from tonnage.api.telemetry import Telemetry


def test_nothing_set_is_the_defaults() -> None:
    assert Settings() == read_settings({})


def test_variables_are_typed() -> None:
    given = {"TONNAGE_PORT": "9000", "TONNAGE_ACCESS_LOG": "false", "TONNAGE_DEADLINE_SECONDS": "2.5", "OTHER": "x"}
    settings = read_settings(given)

    assert (9000, False, 2.5) == (settings.port, settings.access_log, settings.deadline_seconds)


def test_the_command_line_wins() -> None:
    assert 1 == read_settings({"TONNAGE_PORT": "9000"}, port=1, host=None).port


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PROT", "8000"),
        ("PORT", "http"),
        ("PORT", "70000"),
        ("DEADLINE_SECONDS", "0"),
        ("DEADLINE_SECONDS", "nan"),
        ("DEADLINE_SECONDS", "inf"),
        ("ACCESS_LOG", "maybe"),
        ("MAX_IN_FLIGHT", "-1"),
        ("MAX_IN_FLIGHT", ""),
    ],
)
def test_a_variable_that_is_unknown_or_does_not_parse_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({f"TONNAGE_{name}": value})

    assert name.lower() in str(caught.value)


def test_what_kubernetes_says_of_a_service_is_no_setting() -> None:
    links = {
        "TONNAGE_SERVICE_HOST": "10.0.0.1",
        "TONNAGE_SERVICE_PORT": "8000",
        "TONNAGE_SERVICE_PORT_HTTP": "8000",
        "TONNAGE_PORT": "tcp://10.0.0.1:8000",
        "TONNAGE_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "TONNAGE_PORT_8000_TCP_ADDR": "10.0.0.1",
    }

    assert Settings() == read_settings(links)


def shown(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if value != "" else "empty"


def test_the_page_lists_every_setting_with_its_default_and_meaning(repository: Path) -> None:
    page = (repository / "docs" / "operations.md").read_text()
    rows = [
        f"| `TONNAGE_{field.name.upper()}` | {shown(field.default)} | {field_words(Settings)[field.name]} |"
        for field in msgspec.structs.fields(Settings)
    ]

    assert rows == re.findall(r"^\| `TONNAGE_.*$", page, re.MULTILINE)


def test_the_page_lists_every_metric(repository: Path) -> None:
    page = (repository / "docs" / "operations.md").read_text()
    listed = set(re.findall(r"^\| `((?:tonnage|process)_\w+)`", page, re.MULTILINE))
    families = list(Telemetry().registry.collect())
    made = {family.name.removesuffix("_total") + ("_total" if family.type == "counter" else "") for family in families}

    assert made == listed
